"""The application on Textual: it draws what the desk shows, and tells it which keys were pressed. What is shown and
asked is decided elsewhere (`tabs.py`, `details.py`); here is only the wiring.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from time import monotonic
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label

from horsies.core.brokers.postgres import PostgresBroker
from horsies.tui import view_edges, view_tasks
from horsies.tui.lines import Line, as_json
from horsies.tui.polls import Feed, ServerClock
from horsies.tui.source import BrokerSource, DataSource
from horsies.tui.tabs import Desk
from horsies.tui.views import Room, View
from horsies.tui.widgets import MARK, LinesWidget, RowList

THEMES = ("ansi-dark", "textual-dark", "textual-light")
MESSAGE_S = 4.0
LARGE = 75_000  # characters; many terminals take no more
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def for_broker(broker: PostgresBroker, **how: Any) -> TuiApp:
    """The application that shows the database of a broker."""
    return TuiApp(BrokerSource(broker), **how)


class TuiApp(App[None]):
    """`tick_rate`: how often in a second it looks for questions that are due. `frame_rate`: how often in a second new
    answers are drawn at most."""

    TITLE = "horsies"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; layout: vertical; }
    #asking { display: none; height: 1; }
    #asking Label { width: 3; padding: 0 1; }
    #asking Input { height: 1; border: none; padding: 0; background: $background; }
    #asking Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(f"{place}", f"tab({place - 1})", show=False) for place in range(1, 6)),
        *(Binding(key, f"press('{key}')", show=False) for key in (*view_tasks.KEYS, "a", "n")),
        Binding("left_square_bracket", "press('[')", show=False),
        Binding("right_square_bracket", "press(']')", show=False),
        Binding("slash", "search", show=False),
        Binding("question_mark", "help", show=False),
        Binding("r", "again", show=False),
        Binding("t", "theme", show=False),
        Binding("y", "copy", show=False),
        Binding("escape", "leave", show=False),
        Binding("q", "quit", show=False),
        Binding("ctrl+c,ctrl+q", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        source: DataSource,
        *,
        tick_rate: float = 4.0,
        frame_rate: float = 10.0,
        has_colour: bool = True,
        clock: ServerClock | None = None,
    ) -> None:
        super().__init__(ansi_color=None if has_colour else True)
        self.desk = Desk(source, clock or ServerClock())
        self.feed = Feed(self.desk.polls, self._changed, 1 / tick_rate)
        self._frame_s = 1 / frame_rate
        self._is_stale = False
        self._message: tuple[str, float] | None = None
        self._shown: View | None = None
        self._asking: asyncio.Task[None] | None = None

    def compose(self) -> ComposeResult:
        yield LinesWidget(id="tabs")
        yield LinesWidget(id="notice")
        yield LinesWidget(id="heads", indent=len(MARK))
        yield RowList(id="rows")
        yield LinesWidget(id="below", indent=len(MARK))
        with Horizontal(id="asking"):
            yield Label("/", markup=False)
            yield Input(placeholder="search, then Enter; Esc leaves", select_on_focus=False)
        yield LinesWidget(id="hints")

    def on_mount(self) -> None:
        self.theme = THEMES[0]
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self.exit)
        self.query_one(RowList).focus()
        self._asking = asyncio.create_task(self.feed.run(), name="horsies tui")
        self.set_interval(self._frame_s, self._draw_if_stale)
        self.set_interval(1.0, self._changed)  # ages grow
        self.draw()

    async def on_unmount(self) -> None:
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self.feed.close()

    def draw(self) -> None:
        """Draw what is in front. While the application ends there may be nothing left to draw it on."""
        self._is_stale = False
        if not self.is_running:
            return
        desk, view, rows = self.desk, self.desk.view, self.query_one(RowList)
        if rows.is_ahead:
            self._remember()
        width, now = self.size.width, desk.clock.now()
        titles = [tab.title for tab in desk.tabs]
        self._show("tabs", [view_edges.tab_bar(titles, desk.tab, desk.overview.alerts(), now, width)])
        self._show("notice", self._notice(width))
        room = self._room()
        frame = view.frame(room, now)
        crumbs = [view_edges.crumbs(titles[desk.tab], desk.trail, room.width)] if desk.trail else []
        self._show("heads", [*crumbs, *frame.heads])
        self._show("below", frame.below)
        self._show("hints", [view_edges.hints(self._said(), desk.trail, view.search, width)])
        if self._shown is not None and self._shown is not view:
            self._shown.top = rows.top
        rows.show(frame.rows, view.selected, None if self._shown is view else view.top)
        self._shown = view
        self._remember()

    def _room(self) -> Room:
        """All but the edges. The list is as high as the lines around it leave it."""
        edges = 2 + len(self._notice(self.size.width)) + len(self.desk.trail[:1])
        return Room(max(10, self.size.width - len(MARK) - 1), max(1, self.size.height - edges))

    def _notice(self, width: int) -> list[Line]:
        now = monotonic()
        for poll in self.desk.polls():
            if (trouble := poll.trouble(now)) is not None:
                return view_edges.notice(trouble, poll.age_s(now), width)
        return []

    def _show(self, name: str, lines: Sequence[Line]) -> None:
        self.query_one(f"#{name}", LinesWidget).show(lines)

    def _remember(self) -> None:
        """The view that is shown keeps its cursor, also while another one is in front."""
        rows = self.query_one(RowList)
        rows.is_ahead = False
        if self._shown is not None:
            self._shown.selected = None if rows.row is None else rows.row.key

    def _changed(self) -> None:
        self._is_stale = True

    def _draw_if_stale(self) -> None:
        if self._is_stale:
            self.draw()

    def _said(self) -> str | None:
        if self._message is None or monotonic() > self._message[1]:
            return None
        return self._message[0]

    def say(self, message: str) -> None:
        """Show a message for a moment."""
        self._message = (message, monotonic() + MESSAGE_S)
        self.draw()

    def _asked(self) -> None:
        """Something else is in front now: draw it, and ask what it needs."""
        self.feed.ring()
        self.draw()

    def on_row_list_moved(self) -> None:
        self._remember()
        if self.desk.view.follows_cursor:
            self._asked()

    def on_row_list_resized(self) -> None:
        self.draw()

    def on_row_list_opened(self) -> None:
        row = self.query_one(RowList).row
        if row is not None:
            self.desk.open(self.desk.view.enter(row))
            self._asked()

    def on_row_list_closed(self) -> None:
        if self.desk.trail:
            self.desk.back()
            self._asked()

    def action_tab(self, place: int) -> None:
        self.desk.go(place)
        self._asked()

    def action_press(self, key: str) -> None:
        if self.desk.view.press(key):
            self._asked()

    def action_help(self) -> None:
        self.desk.help()
        self._asked()

    def action_again(self) -> None:
        self.feed.refresh()
        self.say("refreshed")

    def action_theme(self) -> None:
        names = list(THEMES)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.say(f"theme: {self.theme}")

    def action_copy(self) -> None:
        value = self.desk.view.value(self.query_one(RowList).row)
        if value is None:
            self.say("there is nothing to copy here")
            return
        text = as_json(value)
        self.copy_to_clipboard(text)
        doubt = "; many terminals take less" if len(text) > LARGE else ", if the terminal allows it (OSC 52)"
        self.say(f"copied {len(text):,} characters of JSON{doubt}")

    def action_search(self) -> None:
        field = self.query_one(Input)
        field.value = self.desk.view.search
        field.cursor_position = len(field.value)
        self.query_one("#asking").display = True
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._end_search()
        self.desk.open(self.desk.view.find(event.value.strip()))
        self._asked()

    def _end_search(self) -> None:
        self.query_one("#asking").display = False
        self.query_one(RowList).focus()

    def action_leave(self) -> None:
        if self.query_one("#asking").display:
            self._end_search()
        elif self.desk.back():
            self._asked()
        else:
            self.exit()
