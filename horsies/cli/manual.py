"""What the commands by which an operator looks after a queue have in common: the app they work through, made for the
occasion if only a database is given (M-13), how a failure ends, and JSON or tables on standard output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from rich import box
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from horsies.cli import database, output
from horsies.core.app import Horsies
from horsies.core.brokers.results import hint_for
from horsies.core.errors import HorsiesError
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerResult
from horsies.core.models.workflow.results import HandleResult
from horsies.core.types.result import Err
from horsies.core.worker.locate import load_app

T = TypeVar("T")

_NAMES = 10
_WIDEST = 10_000  # characters; the width of a table is measured within this

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


@contextmanager
def opened(module: str | None, database_url: str | None, *, with_hooks: bool = False) -> Iterator[Horsies]:
    """The app of the module on the chosen database, which must be there, or one with default settings; closed at the
    end."""
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


def value_of(result: BrokerResult[T] | HandleResult[T], app: Horsies) -> T:
    """What came of it; a failure ends the command."""
    if isinstance(result, Err):
        problem = result.err_value
        notes = [app.config.broker.redact(problem.message)]
        hint = hint_for(problem.message)
        raise HorsiesError("the database did not do what was asked", notes=notes, help_text=hint) from problem.exception
    return result.ok_value


def print_json(value: Any) -> None:
    output.out().print(json.dumps(value, default=datetime.isoformat, indent=2), markup=False)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table that may be wider than the screen: what is in it shall be copied, and is never cut or broken."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ignore")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_text(cell)) for cell in row))
    console = output.out()
    console.width = max(console.width, Measurement.get(console, console.options.update(width=_WIDEST), table).maximum)
    console.print(table, crop=False)


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


def some(names: Sequence[str]) -> str:
    """A few of many names."""
    shown = ", ".join(names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown} and {len(names) - _NAMES} more"


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return "" if value is None else str(value)
