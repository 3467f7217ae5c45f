"""The part of `output.py` that needs rich: lines with styles, and tables as `tables.py` lays them out. With `--watch` a
table is shown repeatedly until Ctrl-C, in place on a terminal, otherwise one below the other. Commands use it through
`output`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NoReturn, TextIO, TypeAlias

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from horsies.cli.output import say, text_of
from horsies.cli.tables import GAP, Table, fit, folds_of
from horsies.core.errors import HorsiesError
from horsies.core.logs import wants_color
from horsies.core.text import visible, visible_lines

Shown: TypeAlias = RenderableType
Line: TypeAlias = Text
WIDEST = 10_000  # characters; the width of a table is measured within this
SHORTEST = timedelta(milliseconds=100)
PATIENCE = 10  # the pause is at least this many times as long as the query took


def out() -> Console:
    return _console(sys.stdout)


def err() -> Console:
    return _console(sys.stderr)


def screen() -> Console | None:
    """A terminal that can be overwritten; None if there is none."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    return _Console(
        file=sys.stdout, force_terminal=True, no_color=not wants_color(sys.stdout), highlight=False, emoji=False
    )


def room() -> int | None:
    """How wide the terminal is; None if the output goes elsewhere."""
    return out().width if sys.stdout.isatty() else None


def write_styled(*lines: Line) -> None:
    """Write lines of the answer with their styles."""
    console = out()
    for line in lines:
        console.print(line)


def styled(*parts: tuple[str, str]) -> Line:
    """One line, or one cell of a table, of parts with their styles."""
    line = Text()
    for text, style in parts:
        line.append(visible(text), style=style)
    return line


def stacked(lines: Iterable[str]) -> Line:
    """A cell of several lines."""
    return Text("\n".join(map(visible, lines)))


def below_each_other(*parts: Shown) -> Shown:
    """Several parts of one answer."""
    return Group(*parts)


def print_rows(table: Table, items: Sequence[Any]) -> None:
    """Print a table that fits the terminal, and say what it leaves out; elsewhere it is printed whole."""
    shown, left_out = table_of(table, items)
    print_whole(shown)
    if left_out:
        say(about_left_out(left_out))


def about_left_out(names: Sequence[str]) -> str:
    return f"not shown: {', '.join(names)} (--wide shows all columns)"


def table_of(table: Table, items: Sequence[Any]) -> tuple[RichTable, list[str]]:
    """A table whose numbers are aligned to the right, and the names of the columns for which there is no room."""
    rows, width = table.rows(items), None if table.is_whole else room()
    columns = _columns(table, rows)
    if width is not None and _width(columns) > width:
        columns = _columns(table, rows, today=datetime.now(UTC).date())
    widths = [max(line.cell_len for cell in column for line in cell.split(allow_blank=True)) for column in columns]
    kept = dict(enumerate(widths))
    if width is not None:
        empty = [not any(cell.plain for cell in column[1:]) for column in columns]
        kept = fit(table.columns, widths, empty, width)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, GAP - 1, 0, 0))
    for place in kept:
        drawn.add_column(columns[place][0], no_wrap=True, overflow="ignore")
    for row in range(1, len(rows) + 1):
        drawn.add_row(*(_fold(columns[place][row], most) for place, most in kept.items()))
    return drawn, [title for place, title in enumerate(table.titles) if place not in kept]


def print_whole(shown: Shown) -> None:
    """Print it completely, however wide it is."""
    console = out()
    console.width = max(console.width, Measurement.get(console, console.options.update(width=WIDEST), shown).maximum)
    console.print(shown, crop=False)


def watch_until_interrupted(frame: Callable[[], Shown], every: timedelta) -> int:
    """Show updates until Ctrl-C, which is the normal end. If the database is away for a moment, say so and try
    again."""
    watch = _Watch(frame, max(every, SHORTEST).total_seconds())
    try:
        first = watch.ask()  # an error at the first try ends the command
        if (terminal := screen()) is None:
            return _below_each_other(first, watch)
        with Live(_Window(_dated(first)), console=terminal, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_Window(_dated(watch.next())), refresh=True)
    except KeyboardInterrupt:
        return 0


class _Console(Console):
    """Cleans whatever is printed on it, so that nobody can forget to."""

    def render(self, renderable: Shown, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible_lines(segment.text), segment.style)


def _console(stream: TextIO) -> Console:
    color = wants_color(stream)
    # Width only matters for tables; a line of text is never broken, so that it can be searched and copied.
    return _Console(
        file=stream,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,  # ":b:" in the name of a worker stays text
        soft_wrap=True,
        width=None if stream.isatty() else 120,
    )


def _width(columns: Sequence[Sequence[Text]]) -> int:
    lines = [[line for cell in column for line in cell.split(allow_blank=True)] for column in columns]
    return sum(max(line.cell_len for line in column) for column in lines) + GAP * (len(columns) - 1)


def _columns(table: Table, rows: Sequence[Sequence[Any]], today: date | None = None) -> list[list[Text]]:
    return [_column(title, [row[place] for row in rows], today) for place, title in enumerate(table.titles)]


def _column(title: str, values: list[Any], today: date | None) -> list[Text]:
    """A column with its title. If all its times are of `today`, they are shown without the date."""
    moments = [value for value in values if isinstance(value, datetime)]
    if today is not None and all(moment.astimezone(UTC).date() == today for moment in moments):
        values = [f"{value.astimezone(UTC):%H:%M:%S}Z" if isinstance(value, datetime) else value for value in values]
    cells = [value if isinstance(value, Text) else Text(text_of(value)) for value in values]
    if any(isinstance(value, int) for value in values) and all(
        isinstance(value, int | None | Text) for value in values
    ):
        width = max(cell.cell_len for cell in (Text(title), *cells))
        for cell in (head := Text(title), *cells):
            cell.pad_left(width - cell.cell_len)
        return [head, *cells]
    return [Text(title), *cells]


def _fold(cell: Text, width: int) -> Text:
    """The cell on as many lines as it needs."""
    if cell.cell_len <= width or "\n" in cell.plain:
        return cell
    return Text("\n").join(cell.divide(folds_of(cell.plain, width)))


def _below_each_other(first: Shown, watch: _Watch) -> NoReturn:
    shown = first
    while True:
        print_whole(_dated(shown))
        sys.stdout.flush()
        shown = watch.next()


class _Watch:
    """Spends only a part of the time on queries, so that watching a large queue never becomes a load on it."""

    def __init__(self, frame: Callable[[], Shown], pause_s: float) -> None:
        self._frame = frame
        self._pause_s = pause_s
        self._took_s = 0.0

    def ask(self) -> Shown:
        begun = time.monotonic()
        try:
            return self._frame()
        finally:
            self._took_s = time.monotonic() - begun

    def next(self) -> Shown:
        """Wait, then query again."""
        time.sleep(max(self._pause_s, PATIENCE * self._took_s))
        try:
            return self.ask()
        except HorsiesError as problem:
            return Text("\n".join(map(visible, [problem.message, *problem.notes])), style="red")


def _dated(shown: Shown) -> Group:
    return Group(Text(time.strftime("%H:%M:%S"), style="dim"), shown)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of something larger that fits on the screen. A squeezed table would show wrong numbers."""

    shown: Shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        whole = options.update(width=WIDEST, height=None)
        for line in console.render_lines(self.shown, whole, pad=False)[: options.height]:
            yield from Segment.adjust_line_length(line, options.max_width)
            yield Segment.line()
