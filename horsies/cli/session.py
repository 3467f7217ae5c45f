"""What the operator's commands share: the app they work with, which is made on the fly if only a database is given
(M-13); how a failure ends; and output as JSON or tables.

`[MODULE] ID...`: the words of a command about tasks, and which of them is the app.

`--watch`: show something repeatedly until Ctrl-C, in place on a terminal, otherwise one below the other.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

import typer
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from horsies.cli import database, output
from horsies.cli.options import modules, parse_duration
from horsies.core.app import Horsies
from horsies.core.db.failures import hint_for
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError
from horsies.core.locate import load_app
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerResult
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringResult
from horsies.core.models.workflow.results import HandleResult
from horsies.core.types.result import Err, Ok
from horsies.core.types.status import TaskStatus

T = TypeVar("T")

_NAMES = 10

WIDEST = 10_000  # characters; the width of a table is measured within this

STYLES = {
    TaskStatus.COMPLETED: "green",
    TaskStatus.FAILED: "bold red",
    TaskStatus.EXPIRED: "red",
    TaskStatus.CANCELLED: "dim",
    TaskStatus.RUNNING: "yellow",
    TaskStatus.CLAIMED: "cyan",
    TaskStatus.PENDING: "default",
}

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


@contextmanager
def opened(module: str | None, database_url: str | None, *, with_hooks: bool = False) -> Iterator[Horsies]:
    """The app of the module on the chosen database, which must exist, or an app with default settings; it is closed at
    the end."""
    app = None if module is None else load_app(module)
    chosen = database.choose(database_url, None if app is None else app.config.broker)
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    if app is None:
        app = Horsies(AppConfig(broker=chosen.config))
    else:
        database.use(app, chosen)
        if with_hooks:
            app.import_modules()  # they may register some
    try:
        yield app
    finally:
        app.get_broker().close()


@contextmanager
def looking(module: str | None, database_url: str | None, *, needs_tables: bool = True) -> Iterator[Horsies]:
    """The same for a command that only reads: it creates and migrates nothing, and fails if the tables do not exist."""
    with opened(module, database_url) as app:
        app.get_broker().only_look()
        if needs_tables:
            _refuse_without_tables(app)
        yield app


def _refuse_without_tables(app: Horsies) -> None:
    found = app.get_broker().ensure_schema_initialized_sync()
    if isinstance(found, Err):
        problem = found.err_value
        if isinstance(problem.exception, HorsiesError):
            raise problem.exception
        raise _no_answer(problem.message, app)


def value_of(result: BrokerResult[T] | HandleResult[T], app: Horsies) -> T:
    """The value of a result; a failure ends the command."""
    if isinstance(result, Err):
        problem = result.err_value
        notes = [app.config.broker.redact(problem.message)]
        hint = hint_for(problem.message)
        raise HorsiesError("the database refused the operation", notes=notes, help_text=hint) from problem.exception
    return result.ok_value


def answer_of(result: MonitoringResult[T], app: Horsies) -> T:
    """The answer to a query; an invalid query or a failure of the database ends the command."""
    if isinstance(result, Ok):
        return result.ok_value
    problem = result.err_value
    if problem.code is MonitoringErrorCode.INVALID_ARGUMENT:
        raise output.usage_error(problem.message)
    raise _no_answer(problem.message, app)


def _no_answer(message: str, app: Horsies) -> HorsiesError:
    notes = [app.config.broker.redact(message)]
    return HorsiesError("the database did not answer", notes=notes, help_text=hint_for(message))


def print_json(value: Any) -> None:
    """One document, ASCII only."""
    output.write(json.dumps(value, default=datetime.isoformat, indent=2))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table that may be wider than the screen: its cells are never cut or wrapped, so that they can be
    copied."""
    print_whole(table_of(titles, rows))


def table_of(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table whose numbers are aligned to the right."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    columns = [_column(title, [row[place] for row in rows]) for place, title in enumerate(titles)]
    for title, *_ in columns:
        table.add_column(title, no_wrap=True, overflow="ignore")
    for cells in zip(*(cells for _, *cells in columns), strict=True):
        table.add_row(*cells)
    return table


def _column(title: str, values: list[Any]) -> list[Text]:
    """A column with its title."""
    cells = [value if isinstance(value, Text) else Text(text_of(value)) for value in values]
    if any(isinstance(value, int) for value in values) and all(
        isinstance(value, int | None | Text) for value in values
    ):
        width = max(cell.cell_len for cell in (Text(title), *cells))
        for cell in (head := Text(title), *cells):
            cell.pad_left(width - cell.cell_len)
        return [head, *cells]
    return [Text(title), *cells]


def print_whole(shown: RenderableType) -> None:
    """Print it completely, however wide it is."""
    console = output.out()
    console.width = max(console.width, Measurement.get(console, console.options.update(width=WIDEST), shown).maximum)
    console.print(shown, crop=False)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """For people: `12 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`."""
    left = round(max(0.0, seconds))
    for unit, small, size, step in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if left >= size:
            rest = left % size // step
            return f"{left // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{left} s"


def seconds(value: float) -> str:
    """How long something took: `3 ms`, `1.2 s`, `5 min 3 s`."""
    if value < 1:
        return f"{max(0.0, value) * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else duration(value)


def some(names: Sequence[str]) -> str:
    """A few of many names."""
    shown = ", ".join(names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown} and {len(names) - _NAMES} more"


def text_of(value: Any) -> str:
    """The text of a table cell. Control characters are replaced, because a terminal would obey them."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return "" if value is None else printable(str(value))


def printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:[0-9]+)?")

OneId: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID",
        help="The app, unless --database-url or DATABASE_URL is used, and the id.",
        autocompletion=modules,
    ),
]

Ids: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID...",
        help="The app, unless --database-url or DATABASE_URL is used, and the ids.",
        autocompletion=modules,
    ),
]


def module_and_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """A single word is an id. Of several words the first is the app, unless it looks like one of our ids or
    --database-url is given (M-13)."""
    if len(what) == 1 or has_database or _OURS.fullmatch(what[0]):
        return None, list(dict.fromkeys(what))
    return what[0], list(dict.fromkeys(what[1:]))


@contextmanager
def opened_for(
    what: list[str], database_url: str | None, usage: str, *, acts: bool = False
) -> Iterator[tuple[Horsies, list[str]]]:
    """Open the app, to read the tasks or to act on them, and return it with their ids. If its module is not found, the
    first word may be an id and the module may be missing."""
    module, ids = module_and_ids(what, has_database=database_url is not None)
    try:
        with (opened if acts else looking)(module, database_url) as app:
            yield app, ids
    except ConfigurationError as problem:
        if problem.code is ErrorCode.WORKER_INVALID_LOCATOR:
            problem.with_note(f"the first word, {module!r}, was read as the app").with_help(usage)
        raise


def only_one(what: list[str], database_url: str | None, usage: str) -> list[str]:
    """The words of a command about one task: the app, if it is named, and the id."""
    has_database = database_url is not None
    if len(module_and_ids(what, has_database=has_database)[1]) != 1:
        raise output.usage_error(f"one task at a time: {' '.join(what)}", usage)
    return what


def no_such_task(what: list[str], task_id: str, usage: str) -> HorsiesError:
    """If only one word was typed, it may be the app."""
    is_ours = len(what) > 1 or _OURS.fullmatch(task_id)
    hint = "if it is a workflow: horsies workflow show" if is_ours else f"a single word is the id: {usage}"
    return HorsiesError(f"there is no task {task_id}", help_text=hint)


Watch: TypeAlias = Annotated[bool, typer.Option("--watch", "-w", help="Update the table until Ctrl-C.")]

Every: TypeAlias = Annotated[
    timedelta,
    typer.Option("--every", parser=parse_duration, metavar="D", help="With --watch: the time between updates."),
]

SHORTEST = timedelta(milliseconds=100)

PATIENCE = 10  # times as long as the answer took


def refuse_watching(watch: bool, *others: bool) -> None:
    """Output for other programs is a single answer, so it cannot be watched."""
    if watch and any(others):
        raise output.usage_error("--watch can only show a table", "run the command again for new JSON or ids")


def watch_until_interrupted(frame: Callable[[], RenderableType], every: timedelta) -> int:
    """Show updates until Ctrl-C, which is the normal end. If the database is away for a moment, say so and try
    again."""
    watch = _Watch(frame, max(every, SHORTEST).total_seconds())
    try:
        first = watch.ask()  # what is wrong from the beginning will not mend itself
        if (screen := output.screen()) is None:
            return _below_each_other(first, watch)
        with Live(_Window(_dated(first)), console=screen, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_Window(_dated(watch.next())), refresh=True)
    except KeyboardInterrupt:
        return 0


def _below_each_other(first: RenderableType, watch: _Watch) -> NoReturn:
    shown = first
    while True:
        print_whole(_dated(shown))
        sys.stdout.flush()
        shown = watch.next()


class _Watch:
    """Spends only a part of the time on queries, so that watching a large queue never becomes a load on it."""

    def __init__(self, frame: Callable[[], RenderableType], pause_s: float) -> None:
        self._frame = frame
        self._pause_s = pause_s
        self._took_s = 0.0

    def ask(self) -> RenderableType:
        begun = time.monotonic()
        try:
            return self._frame()
        finally:
            self._took_s = time.monotonic() - begun

    def next(self) -> RenderableType:
        """Wait, then query again."""
        time.sleep(max(self._pause_s, PATIENCE * self._took_s))
        try:
            return self.ask()
        except HorsiesError as problem:
            return Text("\n".join([problem.message, *problem.notes]), style="red")


def _dated(shown: RenderableType) -> Group:
    return Group(Text(time.strftime("%H:%M:%S"), style="dim"), shown)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of something larger that fits on the screen. A squeezed table would show wrong numbers."""

    shown: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        whole = options.update(width=WIDEST, height=None)
        for line in console.render_lines(self.shown, whole, pad=False)[: options.height]:
            yield from Segment.adjust_line_length(line, options.max_width)
            yield Segment.line()
