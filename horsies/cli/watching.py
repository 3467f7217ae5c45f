"""`--watch`: show something repeatedly until Ctrl-C, in place on a terminal, otherwise one below the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, NoReturn, TypeAlias

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from horsies.cli import output
from horsies.cli.manual import WIDEST, print_whole
from horsies.cli.options import parse_duration
from horsies.core.errors import HorsiesError

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
