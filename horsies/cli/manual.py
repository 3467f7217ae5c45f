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
from rich.table import Table
from rich.text import Text

from horsies.cli import database, output
from horsies.core.app import Horsies
from horsies.core.errors import HorsiesError
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerResult
from horsies.core.types.result import Err
from horsies.core.worker.locate import load_app

T = TypeVar("T")

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


@contextmanager
def opened(module: str | None, database_url: str | None, *, with_hooks: bool = False) -> Iterator[Horsies]:
    """The app of the module on the chosen database, or one with default settings; closed at the end."""
    app = None if module is None else load_app(module)
    chosen = database.choose(database_url, None if app is None else app.config.broker)
    output.say(chosen.sentence())
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


def value_of(result: BrokerResult[T], app: Horsies) -> T:
    """What came of it; a failure ends the command."""
    if isinstance(result, Err):
        problem = result.err_value
        notes = [app.config.broker.redact(problem.message)]
        raise HorsiesError("the database did not do what was asked", notes=notes) from problem.exception
    return result.ok_value


def print_json(value: Any) -> None:
    output.out().print(json.dumps(value, default=datetime.isoformat, indent=2), markup=False)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table that may be wider than the screen: what is in it shall be copied, and is never cut."""
    table = Table(*titles, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_text(cell)) for cell in row))
    console = output.out()
    console.print(table, width=max(console.width, console.measure(table).maximum), crop=False)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return "" if value is None else str(value)
