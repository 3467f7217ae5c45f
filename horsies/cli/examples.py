"""Examples for each command. The help shows them below the options, and the page about the command line repeats
them."""

from __future__ import annotations

from collections.abc import Mapping

_ID = "0198c5de-0001-7000-8000-000000000001"

# What is done, and how.
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "worker": (
        ("four processes for all queues of an app", "horsies worker shop.tasks:app --processes 4"),
        ("async tasks of one queue, fifty at a time", "horsies worker shop.tasks --queues mail --concurrency 50"),
        ("with metrics and health probes", "horsies worker shop.tasks --metrics-port 9464"),
        ("in production", "horsies worker shop.tasks --worker-recovery --shutdown-grace 30s --log-format json"),
    ),
    "check": (
        ("find mistakes without a database", "horsies check shop.tasks:app"),
        ("before a deployment, also check the database", "horsies check shop.tasks:app --live"),
    ),
    "init-db": (
        ("create the tables in the database of an app", "horsies init-db shop.tasks:app"),
        ("in another database", "horsies init-db --database-url postgresql://localhost/shop"),
    ),
    "send": (
        ("send a task, and get its id", "horsies send shop.tasks:app shop.price --kwargs '{\"order\": 1}'"),
        ("wait for its result", "horsies send shop.tasks:app shop.price --args '[1]' --wait --timeout 30s"),
    ),
    "demo": (("use the embedded server below the current directory", "horsies demo"),),
    "tasks": (
        ("the latest tasks", "horsies tasks shop.tasks:app"),
        ("the last hundred failed tasks of a queue", "horsies tasks --status failed --queue mail --limit 100"),
        ("the next tasks of a queue", "horsies tasks --sort claim_order --queue mail"),
        ("running tasks, updated until Ctrl-C", "horsies tasks --status running,claimed --watch"),
        ("send tasks again that timed out", "horsies tasks --error-code TASK_TIMEOUT --ids | xargs horsies rerun"),
    ),
    "task": (
        ("everything about a task", f"horsies task shop.tasks:app {_ID}"),
        ("its result, for a program", f"horsies task {_ID} --json | jq .result"),
    ),
    "explain": (
        ("why a task is not running", f"horsies explain shop.tasks:app {_ID}"),
        ("why the fourth node of a workflow is not running", f"horsies explain {_ID}:3"),
    ),
    "cancel": (
        ("cancel a waiting task", f"horsies cancel shop.tasks:app {_ID}"),
        ("cancel a task even if it is running", f"horsies cancel {_ID} --include-running"),
    ),
    "rerun": (("send a failed task again", f"horsies rerun shop.tasks:app {_ID}"),),
    "queues": (
        ("the state of each queue", "horsies queues shop.tasks:app"),
        ("updated every second", "horsies queues --watch --every 1s"),
        ("the number of waiting tasks, for a program", "horsies queues --json | jq '.queues[] | {name, waiting}'"),
    ),
    "metrics": (
        ("serve Prometheus on port 9463 of this machine", "horsies metrics shop.tasks:app"),
        ("serve any database to other machines", "horsies metrics --database-url $URL --host 0.0.0.0 --port 9463"),
        ("print the metrics once", "horsies metrics shop.tasks:app --once"),
    ),
    "purge": (
        ("count the tasks that would be deleted", "horsies purge shop.tasks:app --older-than 30d"),
        ("delete them", "horsies purge shop.tasks:app --older-than 30d --yes"),
        (
            "delete only some of them",
            "horsies purge --older-than 2h --status completed --queue mail --task mail.send --yes",
        ),
        ("cancel all waiting tasks of a queue", "horsies purge --waiting --queue mail --yes"),
    ),
    "workers": (
        ("all registered workers", "horsies workers shop.tasks:app"),
        ("mark workers as stale after one minute of silence", "horsies workers --threshold 1m"),
    ),
    "stale-tasks": (
        ("running tasks without a heartbeat for five minutes", "horsies stale-tasks shop.tasks:app --minutes 5"),
    ),
    "sweep-stale-workers": (
        ("list the workers that count as dead", "horsies sweep-stale-workers shop.tasks:app --dry-run"),
        ("return their tasks to the queue", "horsies sweep-stale-workers shop.tasks:app"),
    ),
    "force-unlock": (
        ("return all tasks of a worker to the queue", "horsies force-unlock shop.tasks:app web-1:4242:9f3a11c0"),
    ),
    "recover-workflows": (("repair stuck workflows once", "horsies recover-workflows shop.tasks:app"),),
    "workflow list": (
        ("list the workflows", "horsies workflow list shop.tasks:app"),
        ("the last failed workflows", "horsies workflow list --status failed --limit 20"),
    ),
    "workflow show": (("the tree of a workflow", f"horsies workflow show shop.tasks:app {_ID}"),),
    "workflow pause": (("start no more nodes", f"horsies workflow pause {_ID}"),),
    "workflow resume": (("let a paused workflow continue", f"horsies workflow resume shop.tasks:app {_ID}"),),
    "workflow cancel": (("cancel a workflow", f"horsies workflow cancel {_ID}"),),
    "workflow retry": (
        ("run all failed nodes again", f"horsies workflow retry shop.tasks:app {_ID}"),
        ("run one failed node again", f"horsies workflow retry shop.tasks:app {_ID} --node charge"),
    ),
    "scheduler": (("send the scheduled tasks of an app", "horsies scheduler shop.tasks:app"),),
    "schedules": (("list the schedules and their next runs", "horsies schedules shop.tasks:app"),),
}


def epilog(command: str) -> str | None:
    """The examples as the end of a help text; they are not wrapped."""
    examples = EXAMPLES.get(command)
    if not examples:
        return None
    lines = [line for meaning, typed in examples for line in (f"  # {meaning}", f"  {typed}")]
    return "\b\nExamples:\n" + "\n".join(lines)
