"""How each command is used: what its help shows below the options, and the page about the command line repeats."""

from __future__ import annotations

from collections.abc import Mapping

_ID = "0198c5de-0001-7000-8000-000000000001"

# What is done, and how.
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "worker": (
        ("four processes for all queues of an app", "horsies worker shop.tasks:app --processes 4"),
        ("async tasks of one queue, fifty at a time", "horsies worker shop.tasks --queues mail --concurrency 50"),
        ("seen by Prometheus and by probes", "horsies worker shop.tasks --metrics-port 9464"),
        ("in production", "horsies worker shop.tasks --worker-recovery --shutdown-grace 30s --log-format json"),
    ),
    "check": (
        ("everything that can be found wrong without a database", "horsies check shop.tasks:app"),
        ("before a deployment, also ask the database", "horsies check shop.tasks:app --live"),
    ),
    "init-db": (
        ("the database of an app", "horsies init-db shop.tasks:app"),
        ("any other", "horsies init-db --database-url postgresql://localhost/shop"),
    ),
    "send": (
        ("send a task, and get its id", "horsies send shop.tasks:app shop.price --kwargs '{\"order\": 1}'"),
        ("wait for its result", "horsies send shop.tasks:app shop.price --args '[1]' --wait --timeout 30s"),
    ),
    "demo": (("in the embedded server below the current directory", "horsies demo"),),
    "tasks": (
        ("the latest", "horsies tasks shop.tasks:app"),
        ("what failed in a queue, the last hundred", "horsies tasks --status failed --queue mail --limit 100"),
        ("who is next", "horsies tasks --sort claim_order --queue mail"),
        ("what runs, kept up to date", "horsies tasks --status running,claimed --watch"),
        ("send again what timed out", "horsies tasks --error-code TASK_TIMEOUT --ids | xargs horsies rerun"),
    ),
    "task": (
        ("everything about a task", f"horsies task shop.tasks:app {_ID}"),
        ("its result, for a program", f"horsies task {_ID} --json | jq .result"),
    ),
    "explain": (
        ("why a task is not running", f"horsies explain shop.tasks:app {_ID}"),
        ("the fourth node of a workflow", f"horsies explain {_ID}:3"),
    ),
    "cancel": (
        ("a task that waits", f"horsies cancel shop.tasks:app {_ID}"),
        ("whatever it is doing", f"horsies cancel {_ID} --include-running"),
    ),
    "rerun": (("send a failed task again", f"horsies rerun shop.tasks:app {_ID}"),),
    "queues": (
        ("what waits where", "horsies queues shop.tasks:app"),
        ("kept up to date", "horsies queues --watch --every 1s"),
        ("how much waits, for a program", "horsies queues --json | jq '.queues[] | {name, waiting}'"),
    ),
    "metrics": (
        ("for Prometheus, on port 9463 of this machine", "horsies metrics shop.tasks:app"),
        ("any database, where others can reach it", "horsies metrics --database-url $URL --host 0.0.0.0 --port 9463"),
        ("a look at them", "horsies metrics shop.tasks:app --once"),
    ),
    "purge": (
        ("what would be deleted", "horsies purge shop.tasks:app --older-than 30d"),
        ("delete it", "horsies purge shop.tasks:app --older-than 30d --yes"),
        ("only some of it", "horsies purge --older-than 2h --status completed --queue mail --task mail.send --yes"),
        ("cancel all that waits in a queue", "horsies purge --waiting --queue mail --yes"),
    ),
    "workers": (
        ("who is registered", "horsies workers shop.tasks:app"),
        ("who has been silent for a minute", "horsies workers --threshold 1m"),
    ),
    "stale-tasks": (("running tasks silent for five minutes", "horsies stale-tasks shop.tasks:app --minutes 5"),),
    "sweep-stale-workers": (
        ("which workers count as dead", "horsies sweep-stale-workers shop.tasks:app --dry-run"),
        ("return their tasks to the queue", "horsies sweep-stale-workers shop.tasks:app"),
    ),
    "force-unlock": (("take everything from a worker", "horsies force-unlock shop.tasks:app web-1:4242:9f3a11c0"),),
    "recover-workflows": (("move on what is stuck", "horsies recover-workflows shop.tasks:app"),),
    "workflow list": (
        ("which workflows there are", "horsies workflow list shop.tasks:app"),
        ("the last that failed", "horsies workflow list --status failed --limit 20"),
    ),
    "workflow show": (("the tree of a workflow", f"horsies workflow show shop.tasks:app {_ID}"),),
    "workflow pause": (("start nothing more", f"horsies workflow pause {_ID}"),),
    "workflow resume": (("go on", f"horsies workflow resume shop.tasks:app {_ID}"),),
    "workflow cancel": (("end it", f"horsies workflow cancel {_ID}"),),
    "workflow retry": (
        ("all that failed", f"horsies workflow retry shop.tasks:app {_ID}"),
        ("one node", f"horsies workflow retry shop.tasks:app {_ID} --node charge"),
    ),
    "scheduler": (("fire the schedules of an app", "horsies scheduler shop.tasks:app"),),
    "schedules": (("what will run when", "horsies schedules shop.tasks:app"),),
}


def epilog(command: str) -> str | None:
    """The examples as the end of a help text, not to be wrapped."""
    examples = EXAMPLES.get(command)
    if not examples:
        return None
    lines = [line for meaning, typed in examples for line in (f"  # {meaning}", f"  {typed}")]
    return "\b\nExamples:\n" + "\n".join(lines)
