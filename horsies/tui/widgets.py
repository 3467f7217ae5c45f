"""The widgets: a list of rows with a cursor, and lines that stay where they are. They draw the spans of lines as they
are, cell by cell: no text is ever read as markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from horsies.tui.lines import Line, ListRow, Span, cut

MARK, NO_MARK = "> ", "  "  # in front of the selected row, and of the others
TONES = ("dim", "bold", "good", "warn", "bad", "busy", "head")
_CLASSES = {f"lines--{tone}" for tone in (*TONES, "cursor")}
_STYLES = """
    {name} > .lines--dim {{ text-style: dim; }}
    {name} > .lines--bold {{ text-style: bold; }}
    {name} > .lines--head {{ text-style: bold underline; }}
    {name} > .lines--good {{ color: $text-success; }}
    {name} > .lines--warn {{ color: $text-warning; text-style: bold; }}
    {name} > .lines--bad {{ color: $text-error; text-style: bold; }}
    {name} > .lines--busy {{ color: $text-primary; }}
    {name} > .lines--cursor {{ text-style: reverse; }}
"""


class LinesWidget(Widget):
    """A few lines; as high as they are many."""

    COMPONENT_CLASSES = _CLASSES
    DEFAULT_CSS = "LinesWidget { height: auto; width: 1fr; }" + _STYLES.format(name="LinesWidget")

    def __init__(self, *, id: str, indent: int = 0) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self._indent = Span(" " * indent)

    def show(self, lines: Sequence[Line]) -> None:
        changed = tuple(lines)
        if changed == self._lines:
            return
        is_other_height = len(changed) != len(self._lines)
        self._lines = changed
        self.display = bool(changed)
        self.refresh(layout=is_other_height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines)

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        return _strip(self, (self._indent, *self._lines[y]), self.size.width)


class RowList(ScrollView, can_focus=True):
    """Rows with a cursor on one of those that can be selected. Where there is none, the keys scroll. `is_ahead`: a key
    has moved the cursor, and nobody has taken note of it yet."""

    COMPONENT_CLASSES = _CLASSES
    DEFAULT_CSS = """
    RowList {
        height: 1fr;
        width: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 0;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        background: $background;
    }
    """ + _STYLES.format(name="RowList")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter,right", "open", show=False),
        Binding("left", "close", show=False),
    ]

    class Opened(Message):
        """Enter was pressed."""

    class Closed(Message):
        """The left arrow was pressed."""

    class Moved(Message):
        """Another row is selected."""

    class Resized(Message):
        """There is more or less room."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.rows: Sequence[ListRow] = ()
        self.cursor: int | None = None
        self.is_ahead = False

    @property
    def row(self) -> ListRow | None:
        """The selected one."""
        return None if self.cursor is None else self.rows[self.cursor]

    @property
    def top(self) -> int:
        return round(self.scroll_y)

    def show(self, rows: Sequence[ListRow], selected: str | None, top: int | None = None) -> None:
        """Show these rows. The cursor stays on its key or, if that is gone, where it was."""
        before = 0 if selected is None else self.cursor or 0
        was_seen = selected is not None and self.top <= before < self.top + self.size.height
        self.rows = rows
        places = [place for place, row in enumerate(rows) if row.key is not None]
        same = [place for place in places if rows[place].key == selected] if selected is not None else []
        self.cursor = same[0] if same else min(places, key=lambda place: abs(place - before), default=None)
        self.virtual_size = Size(self.size.width, len(rows))
        if top is not None:
            self.scroll_to(y=top, animate=False, force=True, immediate=True)
        elif was_seen:
            self._reveal()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        place = y + self.top
        width = self.size.width
        if place >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        mark = Span(MARK if place == self.cursor else NO_MARK)
        return _strip(self, (mark, *self.rows[place].line), width, is_cursor=place == self.cursor)

    def action_move(self, step: int) -> None:
        following = self._following(step)
        if following is None:
            self.scroll_to(y=self.top + step, animate=False, immediate=True)
        else:
            self._select(following)

    def _following(self, step: int) -> int | None:
        """The next row that can be selected, if it is on the screen or just beyond it. If the cursor is not on the
        screen, this is where it enters."""
        if self.cursor is None:
            return None
        seen = range(max(0, self.top), min(len(self.rows), self.top + self.size.height))
        if self.cursor in seen:
            near = range(self.cursor + step, seen.stop + 1 if step > 0 else seen.start - 2, step)
        else:
            near = seen if step > 0 else seen[::-1]
        return next((at for at in near if 0 <= at < len(self.rows) and self.rows[at].key is not None), None)

    def action_page(self, step: int) -> None:
        height = max(1, self.size.height - 1)
        if self.cursor is None:
            self.scroll_to(y=self.top + step * height, animate=False, immediate=True)
        elif self.rows[self.cursor].turns == step:
            self.action_open()
        else:
            self._select(self._nearest(self.cursor + step * height))

    def action_end(self, step: int) -> None:
        self.scroll_to(y=len(self.rows) if step > 0 else 0, animate=False, immediate=True)
        if self.cursor is not None:
            self._select(self._nearest(len(self.rows) if step > 0 else 0))

    def action_open(self) -> None:
        self.post_message(self.Opened())

    def action_close(self) -> None:
        self.post_message(self.Closed())

    def on_resize(self, event: Resize) -> None:
        self.post_message(self.Resized())

    def _nearest(self, wanted: int) -> int:
        places = [place for place, row in enumerate(self.rows) if row.key is not None]
        return min(places, key=lambda place: abs(place - wanted))

    def _select(self, place: int) -> None:
        if place == self.cursor:
            return
        self.cursor = place
        self.is_ahead = True
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        """Scroll so that the cursor is seen, and with the first row that can be selected all that is above it."""
        if self.cursor is None:
            return
        is_first = all(row.key is None for row in self.rows[: self.cursor])
        first = 0 if is_first and self.cursor < self.size.height else self.cursor
        region = Region(0, first, 1, self.cursor - first + 1)
        self.scroll_to_region(region, animate=False, force=True, immediate=True)


def _strip(widget: Widget, shown: Line, width: int, *, is_cursor: bool = False) -> Strip:
    base = widget.rich_style
    segments = [Segment(span.text, base + _style(widget, span, is_cursor)) for span in cut(shown, width) if span.text]
    if is_cursor:
        base += widget.get_component_rich_style("lines--cursor", partial=True)
    return Strip(segments).adjust_cell_length(width, base)


def _style(widget: Widget, span: Span, is_cursor: bool) -> Style:
    if is_cursor:
        return widget.get_component_rich_style("lines--cursor", partial=True)
    return widget.get_component_rich_style(f"lines--{span.tone}", partial=True) if span.tone else Style.null()
