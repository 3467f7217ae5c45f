"""What tasks say while they run, for people: the bar of a task's progress (P-50), and `horsies logs`, which shows what
a task has logged, and goes on until its end with `--follow` (P-51a).
"""

import time
from collections.abc import Sequence
from datetime import UTC
from typing import Annotated

import typer

from horsies.cli import options, output, session
from horsies.core.app import Horsies
from horsies.core.models.monitoring import tasks as models
from horsies.core.models.notes import LogPlace, TaskLogLine, TaskProgress
from horsies.core.models.tasks import TaskInfo
from horsies.core.store.notes import LOGGED_ROWS, START
from horsies.core.types import TASK_TERMINAL_STATES

USAGE = "horsies logs shop.tasks:app 0198c5de-0001-7000-8000-000000000001"
WIDTH = 20  # of a bar
FOLLOW_S = 1.0
LATE_S = 2.0  # the last lines may be written that much later than the end
_LEVELS = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_INDENT = " " * 4


def bar(progress: TaskProgress, *, is_running: bool = True) -> str:
    """`████████░░░░  40%  400/1000  12.5/s  48 s left  message`; without a total only what is known."""
    parts = []
    if (fraction := progress.fraction) is not None:
        full = int(fraction * WIDTH)
        parts += ["█" * full + "░" * (WIDTH - full), f"{int(fraction * 100)}%"]
    parts.append(_number(progress.done) + (f"/{_number(progress.total)}" if progress.total is not None else ""))
    if progress.rate:
        parts.append(f"{_number(progress.rate)}/s")
    if is_running and (left := progress.remaining) is not None:
        parts.append(f"{output.duration(left.total_seconds())} left")
    if progress.message:
        parts.append(progress.message)
    return "  ".join(parts)


def short(progress: TaskProgress | None) -> str | None:
    """For a cell of a table: `40%`, or how much is done."""
    if progress is None:
        return None
    fraction = progress.fraction
    return _number(progress.done) if fraction is None else f"{int(fraction * 100)}%"


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def logs(
    what: session.OneId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new lines as they come, until the task has ended.")
    ] = False,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Show what a task has logged, all attempts, the oldest line first. Times are UTC.

    Lines are kept if the app has task_logs: AppConfig(task_logs=TaskLogs()).
    """
    if follow and as_json:
        raise output.usage_error("--follow shows lines as they come, and JSON is one document", "use only one of them")
    with session.open_for_ids(session.only_one(what, database_url, USAGE), database_url, USAGE) as (app, [task_id]):
        if _info(app, task_id) is None:
            raise session.no_such_task(what, task_id, USAGE)
        try:
            place = _follow(app, task_id) if follow else _show(app, task_id, as_json=as_json)
        except KeyboardInterrupt:  # the normal end of following
            return 0
    if place == START and not as_json:
        output.say("no lines of this task are kept; AppConfig(task_logs=TaskLogs()) keeps them")
    return 0


def _show(app: Horsies, task_id: str, *, as_json: bool) -> LogPlace:
    page = session.value_of(app.get_broker().read_logs(task_id), app)
    if as_json:
        output.print_json(models.to_jsonable(page.lines))
    else:
        _print(page.lines, None)
    return page.place


def _follow(app: Horsies, task_id: str) -> LogPlace:
    place, attempt = START, None
    quiet_until: float | None = None
    while True:
        page = session.value_of(app.get_broker().read_logs(task_id, place, LOGGED_ROWS), app)
        attempt = _print(page.lines, attempt)
        place = page.place
        if not page.is_last:
            continue
        if quiet_until is not None and time.monotonic() > quiet_until:
            return place
        if quiet_until is None and ((info := _info(app, task_id)) is None or info.status in TASK_TERMINAL_STATES):
            quiet_until = time.monotonic() + LATE_S
        time.sleep(FOLLOW_S)


def _info(app: Horsies, task_id: str) -> TaskInfo | None:
    return session.value_of(app.get_task_info(task_id), app)


def _print(lines: Sequence[TaskLogLine], attempt: int | None) -> int | None:
    """Print the lines; return the attempt of the last one."""
    for line in lines:
        if line.attempt != attempt and (attempt is not None or line.attempt > 1):
            output.write_styled(output.styled((f"attempt {line.attempt}", "bold")))
        attempt = line.attempt
        if line.dropped:
            missing = f"… {output.count(line.dropped, 'line')} {'is' if line.dropped == 1 else 'are'} missing here"
            output.write_styled(output.styled((missing, "dim")))
        first, *more = line.text.split("\n")
        clock = line.time.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
        level = (f"{line.level:<7} ", _LEVELS.get(line.level, "green"))
        output.write_styled(output.styled((f"{clock} ", "dim"), level, (f"{line.logger}  ", "dim"), (first, "default")))
        output.write_styled(*(output.styled((f"{_INDENT}{rest.expandtabs()}", "default")) for rest in more))
    return attempt
