"""The part of `output.py` that needs rich: lines with styles, and tables. With `--watch` a table is shown repeatedly
until Ctrl-C, in place on a terminal, otherwise one below the other. Commands use it through `output`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TextIO, TypeAlias

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from horsies.cli.output import text_of
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


def write(*lines: str) -> None:
    """Write lines of the answer, for people or for other programs: ids, a sentence, a JSON text."""
    if lines:
        out().print("\n".join(map(visible, lines)), markup=False)


def write_styled(*lines: Line) -> None:
    """Write lines of the answer with their styles."""
    console = out()
    for line in lines:
        console.print(line)


def say(text: str) -> None:
    """Print one line for the person on standard error."""
    err().print(visible(text), markup=False)


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
