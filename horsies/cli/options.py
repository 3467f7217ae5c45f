"""How the words of a command line are read: the options that several commands share, the conversion of words to values
(durations, JSON, lists), what the shell offers when a person presses TAB, and the examples that the help of each
command shows.

A word that cannot be read is a `typer.BadParameter`, which names the option. Completion imports no user code and
queries no database; it only reads the names of files.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

import typer

from horsies.cli import project
from horsies.core.text import visible

E = TypeVar("E", bound=StrEnum)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh]?)")
_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)d")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LONGEST = timedelta(days=365)
_OLDEST = timedelta(days=36_500)


class Invocation(NamedTuple):
    """How this command line was called. `words` are those after `horsies`, None in another program with the same
    commands; `is_program` means that this process runs nothing else."""

    words: tuple[str, ...] | None
    is_program: bool


class LogLevel(StrEnum):
    """The names that `logging` knows."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class LogFormat(StrEnum):
    """`text` for people, `json` for programs."""

    TEXT = "text"
    JSON = "json"


def parse_duration(text: str) -> timedelta:
    """`300` and `300s` are seconds, `5m` minutes, `2h` hours (M-02)."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: give seconds (300) or a number with s, m or h (30s, 5m)")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST.total_seconds():
        raise typer.BadParameter(f"{text!r} is longer than a year")
    return timedelta(seconds=seconds)


def parse_age(text: str) -> timedelta:
    """A duration that may also be in days; an age may be longer than a year."""
    if (match := _DAYS.fullmatch(text.strip())) is None:
        return parse_duration(text)
    if (days := float(match[1])) > _OLDEST.days:
        raise typer.BadParameter(f"{text!r} is longer than a century")
    return timedelta(days=days)


def parse_names(texts: list[str] | None, option: str = "--queues") -> tuple[str, ...] | None:
    """`--queues a,b --queues c` gives three names; None if the option is not given."""
    names = tuple(name.strip() for text in texts or () for name in text.split(",") if name.strip())
    if texts and not names:
        raise typer.BadParameter("no name was given", param_hint=f"'{option}'")
    return names or None


def parse_members(
    kind: type[E], texts: list[str] | None, option: str, among: Iterable[E] | None = None
) -> tuple[E, ...]:
    """The same for members of an enumeration, or of a part of it, in any case."""
    known = {str(member.value).upper(): member for member in (kind if among is None else among)}
    names = parse_names(texts, option) or ()
    if wrong := [name for name in names if name.upper() not in known]:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(known)}", param_hint=f"'{option}'")
    return tuple(known[name.upper()] for name in names)


def parse_json(text: str | None, kind: type, option: str) -> str | None:
    """A JSON text of the wanted kind (`list` or `dict`), returned unchanged; the task's codec decodes its values."""
    if text is None:
        return None
    wanted = "a JSON list, such as '[1, \"two\"]'" if kind is list else "a JSON object, such as '{\"id\": 1}'"
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise typer.BadParameter(f"this is not JSON: {problem}; give {wanted}", param_hint=f"'{option}'") from None
    if not isinstance(value, kind):
        raise typer.BadParameter(f"give {wanted}", param_hint=f"'{option}'")
    return text


def modules(incomplete: str) -> list[str]:
    """The modules and packages below the current directory whose names begin with `incomplete`."""
    try:
        names = sorted(name for name in _names(incomplete) if name.startswith(incomplete))
    except OSError:  # a directory that cannot be read has nothing to offer
        return []
    return [name for name in names if name == visible(name)]  # a shell may print the others as they are


def members(kind: Iterable[StrEnum]) -> Callable[[str], list[str]]:
    """The values of an enumeration, also after a comma, in the case in which the person types."""

    def complete(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        values = [member.value.lower() if last.islower() else member.value for member in kind]
        return [f"{given}{comma}{value}" for value in values if value.startswith(last)]

    return complete


def _names(incomplete: str) -> Iterator[str]:
    if "/" in incomplete:
        folder = incomplete[: incomplete.rindex("/") + 1]
        for path in Path(folder).iterdir():
            if path.suffix == ".py":
                yield f"{folder}{path.name}"
            elif path.is_dir() and not path.name.startswith((".", "__")):
                yield f"{folder}{path.name}/"
        return
    package = incomplete.rpartition(".")[0]
    prefix = f"{package}." if package else ""
    for path in Path(*package.split(".")).iterdir():
        if path.suffix == ".py" and path.stem.isidentifier() and not path.stem.startswith("__"):
            yield f"{prefix}{path.stem}"
        elif (path / "__init__.py").is_file():
            yield f"{prefix}{path.name}"


def absolute(path: Path | None) -> Path | None:
    """A path counts from where it was typed; the command may run in the directory of the project."""
    return None if path is None else path.absolute()


def _app(context: typer.Context, typed: str) -> str:
    return typed or ("" if context.resilient_parsing else project.required_app())


def _app_if_any(context: typer.Context, typed: str | None) -> str | None:
    """--database-url stands for itself."""
    is_given = context.resilient_parsing or context.params.get("database_url") is not None
    return typed or (None if is_given else project.named_app())


Module: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE",
        help="The app: pkg.mod:app, pkg.mod, path/file.py:app, path/file.py, or 'pkg.mod:create_app()'.",
        default_factory=str,
        show_default="HORSIES_APP, or app of [tool.horsies]",
        callback=_app,
        autocompletion=modules,
    ),
]

OptionalModule: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE",
        help="The app; without one, --database-url or DATABASE_URL is used.",
        show_default="HORSIES_APP, or app of [tool.horsies]",
        callback=_app_if_any,
        autocompletion=modules,
    ),
]

DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url", metavar="URL", help="Use this database instead: postgresql://… or embedded:DIRECTORY."
    ),
]

Mask: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Show *** for the values of arguments and fields with this name; can be given several times.",
    ),
]

Queues: TypeAlias = Annotated[
    list[str] | None, typer.Option("--queue", "-q", metavar="NAMES", help="Only tasks of these queues.")
]

TaskNames: TypeAlias = Annotated[
    list[str] | None, typer.Option("--task", "-t", metavar="NAMES", help="Only tasks with these names.")
]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]
Exact: TypeAlias = Annotated[
    bool, typer.Option("--exact", help="Count everything, however long it takes (up to five minutes).")
]
Wide: TypeAlias = Annotated[
    bool, typer.Option("--wide", help="Show all columns and whole cells, even if the terminal is too narrow.")
]
Columns: TypeAlias = Annotated[
    list[str] | None, typer.Option("--columns", metavar="NAMES", help="Show these columns, in this order.")
]
Watch: TypeAlias = Annotated[bool, typer.Option("--watch", "-w", help="Update the table until Ctrl-C.")]

Every: TypeAlias = Annotated[
    timedelta,
    typer.Option("--every", parser=parse_duration, metavar="D", help="With --watch: the time between updates."),
]

_ID = "0198c5de-0001-7000-8000-000000000001"

# Each example has its purpose and the command.
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "dev": (
        ("the app that pyproject.toml names", "horsies dev"),
        ("an app and the program that sends its tasks", "horsies dev shop:app --run 'uvicorn shop.api:api --reload'"),
    ),
    "worker": (
        ("four processes for all queues of an app", "horsies worker shop.tasks:app --processes 4"),
        ("an app that a function makes", "horsies worker 'shop.app:create_app()'"),
        ("async tasks of one queue, fifty at a time", "horsies worker shop.tasks --queues mail --concurrency 50"),
        ("with metrics and health probes", "horsies worker shop.tasks --metrics-port 9464"),
        ("while you write it", "horsies worker shop.tasks --reload"),
        ("in production", "horsies worker shop.tasks --worker-recovery --shutdown-grace 30s --log-format json"),
    ),
    "new": (
        ("a project in a new directory", "horsies new shop"),
        ("with a web application", "horsies new shop --template fastapi"),
    ),
    "check": (
        ("find mistakes without a database", "horsies check shop.tasks:app"),
        ("before a deployment, also check the database", "horsies check shop.tasks:app --live"),
    ),
    "init-db": (
        ("create the tables in the database of an app", "horsies init-db shop.tasks:app"),
        ("in another database", "horsies init-db --database-url postgresql://localhost/shop"),
    ),
    "grants": (
        (
            "a script for three roles",
            "horsies grants --producer web --worker jobs --monitor grafana | psql",
        ),
        ("grant them", "horsies grants shop.tasks:app --client web --worker jobs --scheduler jobs --apply"),
    ),
    "schema": (
        ("the tasks of an app, as a table", "horsies schema shop.tasks:app"),
        ("as JSON Schema", "horsies schema shop.tasks:app --json"),
        ("a client for TypeScript", "horsies schema shop.tasks:app --typescript --output tasks.ts"),
        ("let horsies_send know the queues before the first worker starts", "horsies schema shop.tasks:app --publish"),
    ),
    "send": (
        ("send a task, and get its id", "horsies send shop.tasks:app shop.price --kwargs '{\"order\": 1}'"),
        ("wait for its result", "horsies send shop.tasks:app shop.price --args '[1]' --wait --timeout 30s"),
    ),
    "demo": (
        ("use the embedded server below the current directory", "horsies demo"),
        ("a shop that stays busy, and its dashboard", "horsies demo --web"),
    ),
    "tasks": (
        ("the latest tasks", "horsies tasks shop.tasks:app"),
        ("the last hundred failed tasks of a queue", "horsies tasks --status failed --queue mail --limit 100"),
        ("only some columns", "horsies tasks --columns task,name,error,workflow"),
        ("what was sent within the last hour and failed", "horsies tasks --status failed --newer-than 1h"),
        ("the next tasks of a queue", "horsies tasks --sort claim_order --queue mail"),
        ("running tasks, updated until Ctrl-C", "horsies tasks --status running,claimed --watch"),
        ("send tasks again that timed out", "horsies tasks --error-code TASK_TIMEOUT --ids | xargs horsies rerun"),
    ),
    "task": (
        ("everything about a task", f"horsies task shop.tasks:app {_ID}"),
        ("its result, for a program", f"horsies task {_ID} --json | jq .result"),
    ),
    "logs": (
        ("what a task has logged", f"horsies logs shop.tasks:app {_ID}"),
        ("the same, until the task has ended", f"horsies logs {_ID} --follow"),
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
    "run-now": (("do not wait for the next retry", f"horsies run-now shop.tasks:app {_ID}"),),
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
    "web": (
        ("the dashboard of an app, on this machine", "horsies web shop.tasks:app"),
        ("any database, with actions", "horsies web --database-url $URL --enable-actions"),
        (
            "for other machines, with a token",
            "horsies web shop.tasks:app --auth token --token-file token --host 0.0.0.0 --allowed-host jobs.example.com",
        ),
    ),
    "mcp": (
        ("the tasks of an app, for a coding agent", "horsies mcp shop.tasks:app"),
        (
            "any database, with actions, without passwords",
            "horsies mcp --database-url $URL --enable-actions --mask password",
        ),
    ),
    "tui": (
        ("watch the database of an app", "horsies tui shop.tasks:app"),
        ("any database, over a slow line", "horsies tui --database-url $URL --tick-rate 1 --frame-rate 2"),
        ("the dashboard as text, for a script", "horsies tui shop.tasks:app --once"),
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
    "failures": (
        ("what failed in the last day", "horsies failures shop.tasks:app"),
        ("what failed in the last half hour", "horsies failures --since 30m"),
        ("send a group again", "horsies tasks --task mail.send --error-code TIMEOUT --ids | xargs horsies rerun"),
    ),
    "audit": (
        ("what people did of late", "horsies audit shop.tasks:app"),
        ("what was done to a task", f"horsies audit --task {_ID}"),
        ("what one person cancelled", "horsies audit --actor ann --action task.cancel"),
    ),
    "workers": (
        ("all registered workers", "horsies workers shop.tasks:app"),
        ("mark workers as stale after one minute of silence", "horsies workers --threshold 1m"),
    ),
    "drain": (("let a worker finish its tasks and leave", "horsies drain shop.tasks:app web-1:4242:9f3a11c0"),),
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
