"""Lines of text with tones, and how values become such lines: numbers, ages, tables that fit, long texts that are
broken. Plain functions; a terminal (`widgets.py`) and `--once` decide what a tone looks like.

Every text that comes from elsewhere passes through `visible` here, so a line holds nothing that a terminal would obey.
No text is ever read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size

from horsies.cli.tables import GAP, Column, fit
from horsies.core.models.monitoring.tasks import to_jsonable
from horsies.core.text import json_text, visible, visible_lines
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus

Tone: TypeAlias = Literal["", "dim", "bold", "good", "warn", "bad", "busy", "head"]
LONGEST_TEXT = 100_000  # characters of one text that are shown; `y` copies all
MOST_LINES = 2_000
LONGEST_CELL = 200
TAB = 4
_NUMBER = re.compile(r"~?[\d,.]+\+?(%| [MG]B|/\d+|×\d+)?")
_WORD = re.compile(r"\S+\s*|\s+")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Span(NamedTuple):
    """A piece of a line. Its text has been made visible."""

    text: str
    tone: Tone = ""


Line: TypeAlias = tuple[Span, ...]


class ListRow(NamedTuple):
    """A line of a list. One with a key can be selected; its value is what is opened and copied. `turns`: PgDn (1) or
    PgUp (-1) opens it, because it leads to another page."""

    line: Line
    key: str | None = None
    value: Any = None
    turns: int = 0


def line(*parts: str | tuple[str, Tone] | Span) -> Line:
    """A line of texts, each with its tone or without one."""
    return tuple(Span(visible(part)) if isinstance(part, str) else Span(visible(part[0]), part[1]) for part in parts)


def plain(shown: Line) -> str:
    return "".join(span.text for span in shown)


def width_of(shown: Line) -> int:
    return sum(cell_len(span.text) for span in shown)


def cut(shown: Line, width: int) -> Line:
    """The line, or as much of it as fits, with a mark that there is more."""
    if width_of(shown) <= width:
        return shown
    found: list[Span] = []
    room = max(0, width - 1)
    for span in shown:
        length = cell_len(span.text)
        if length > room:
            found.append(Span(set_cell_size(span.text, room), span.tone))
            break
        found.append(span)
        room -= length
    return (*found, Span("…", "dim")) if width > 0 else ()


def padded(shown: Line, width: int, *, right: bool = False) -> Line:
    """The line with blanks up to this width, cut if it is longer."""
    shown = cut(shown, width)
    blanks = Span(" " * (width - width_of(shown)))
    if not blanks.text:
        return shown
    return (blanks, *shown) if right else (*shown, blanks)


def beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    """Two blocks next to each other, the left one as wide as it needs to be."""
    own = max(map(width_of, left), default=0)
    height = max(len(left), len(right))
    pairs = zip(_filled(left, height), _filled(right, height), strict=True)
    return [cut((*padded(one, own), Span("   "), *other), width) for one, other in pairs]


def _filled(block: Sequence[Line], height: int) -> list[Line]:
    return [*block, *[()] * (height - len(block))]


def number(value: float | None, is_exact: bool = True) -> str:
    """`1,204`; `~12,000` for an estimate."""
    if value is None:
        return ""
    if is_exact:
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return f"~{round(int(value), 2 - len(str(int(value)))):,}"


def at_least(value: int, is_exact: bool) -> str:
    """`10,000+` if there may be more."""
    return f"{value:,}" if is_exact else f"{value:,}+"


def short(seconds: float | None) -> str:
    """An age in one unit, for a column: `12 s`, `5 min`, `2 h`, `3 d`."""
    if seconds is None:
        return ""
    left = round(max(0.0, seconds))
    size, unit = next(((size, unit) for size, unit in _UNITS if left >= size), (1, "s"))
    return f"{left // size} {unit}"


def age(then: datetime | None, now: datetime) -> str:
    return "" if then is None else short((now - then).total_seconds())


def clock(moment: datetime | None, today: datetime | None = None) -> str:
    """In UTC; without the date if it is that of `today`."""
    if moment is None:
        return ""
    moment = moment.astimezone(UTC)
    if today is not None and moment.date() == today.astimezone(UTC).date():
        return f"{moment:%H:%M:%S}Z"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


_TONES: dict[str, Tone] = {
    TaskStatus.COMPLETED: "good",
    TaskStatus.FAILED: "bad",
    TaskStatus.EXPIRED: "bad",
    TaskStatus.CANCELLED: "dim",
    TaskStatus.RUNNING: "busy",
    TaskStatus.CLAIMED: "busy",
    WorkflowStatus.PAUSED: "warn",
    WorkflowTaskStatus.SKIPPED: "dim",
}


def status(state: str) -> Line:
    """The word of a state, in its tone."""
    return line((str(state), _TONES.get(str(state), "")))


def columns(wanted: Sequence[Column], items: Sequence[Any], width: int) -> tuple[Line, list[Line]]:
    """The titles and the lines of a table that fits. Columns leave as in the tables of the other commands, and those
    that may leave and have nothing to say are not shown; a cell that is too long is cut."""
    cells = [[_cell(column.value(item)) for item in items] for column in wanted]
    said = [place for place, column in enumerate(wanted) if not column.leaves or any(map(width_of, cells[place]))]
    wanted, cells = [wanted[place] for place in said], [cells[place] for place in said]
    widths = [max((cell_len(column.name), *map(width_of, below))) for column, below in zip(wanted, cells, strict=True)]
    empty = [not any(map(width_of, below)) for below in cells]
    kept = _squeezed(fit(wanted, widths, empty, width), width)
    numeric = {place: _is_numeric(cells[place]) for place in kept}
    head = _joined(padded(line((wanted[at].name, "head")), size, right=numeric[at]) for at, size in kept.items())
    rows = [
        _joined(padded(cells[at][row], size, right=numeric[at]) for at, size in kept.items())
        for row in range(len(items))
    ]
    return head, rows


def _cell(value: Any) -> Line:
    if isinstance(value, tuple):
        return value
    if isinstance(value, int):
        return line(f"{value:,}")
    return () if value is None else line(str(value)[:LONGEST_CELL])


def _is_numeric(cells: Sequence[Line]) -> bool:
    texts = [text for cell in cells if (text := plain(cell))]
    return bool(texts) and all(map(_NUMBER.fullmatch, texts))


def _squeezed(kept: dict[int, int], width: int) -> dict[int, int]:
    """If even the columns that stay do not fit, the widest ones give way."""
    found = dict(kept)
    while (excess := sum(found.values()) + GAP * (len(found) - 1) - width) > 0:
        widest = max(found, key=found.__getitem__)
        if found[widest] <= 4:
            return found
        others = [size for place, size in found.items() if place != widest]
        found[widest] = max(4, found[widest] - excess, min(max(others, default=0), found[widest] - 1))
    return found


def _joined(cells: Iterable[Line]) -> Line:
    found: list[Span] = []
    for cell in cells:
        found += [Span(" " * GAP), *cell] if found else cell
    return tuple(found)


def named(pairs: Iterable[tuple[str, Any]], width: int) -> list[Line]:
    """Lines of a name and a value; a long value goes on below itself. Pairs without a value are left out."""
    known = [(name, value) for name, value in pairs if value not in (None, "", ())]
    own = max((cell_len(name) for name, _ in known), default=0)
    found: list[Line] = []
    for name, value in known:
        head = padded(line((name, "dim")), own + GAP)
        for part in _parts(value, max(8, width - own - GAP)):
            found.append((*head, *part))
            head = (Span(" " * (own + GAP)),)
    return found


def _parts(value: Any, width: int) -> Iterable[Line]:
    if isinstance(value, tuple):
        return folded(value, width)
    text = clock(value) if isinstance(value, datetime) else str(value)
    return [(Span(part),) for part in broken(visible(text[:LONGEST_TEXT]), width)]


def folded(shown: Line, width: int) -> list[Line]:
    """A line with tones on as many lines as it needs. A word that is longer than a line is cut."""
    found: list[list[Span]] = [[]]
    for span in shown:
        for word in _WORD.findall(span.text):
            if found[-1] and width_of(tuple(found[-1])) + cell_len(word.rstrip()) > width:
                found.append([])
            found[-1].append(Span(word, span.tone))
    return [cut(_trimmed(part), width) for part in found]


def _trimmed(part: Sequence[Span]) -> Line:
    return (*part[:-1], Span(part[-1].text.rstrip(), part[-1].tone)) if part else ()


def block(title: str, text: str, width: int) -> list[Line]:
    """A text of many lines below its title, as much of it as a person reads."""
    found = [line((title, "head"))]
    for part in visible_lines(text[:LONGEST_TEXT].rstrip("\n")).expandtabs(TAB).split("\n"):
        found += [line("  ", piece) for piece in broken(part, max(8, width - 2))]
        if len(found) > MOST_LINES:
            break
    shown = sum(len(plain(one)) for one in found)
    if len(text) > LONGEST_TEXT or len(found) > MOST_LINES:
        found = [*found[: MOST_LINES + 1], line(("  … there is more of it: y copies all", "dim"))]
    return found if shown else found[:1]


def broken(text: str, width: int) -> Iterator[str]:
    """The text in pieces that fit, at blanks where there are some. The text is visible already."""
    width, at = max(2, width), 0
    while cell_len(ahead := _ahead(text, at, width)) > width:
        piece = set_cell_size(ahead, width)
        if not ahead.startswith(piece):  # half of a wide character was left out
            piece = piece[:-1]
        piece = piece or ahead[:1]
        blank = piece.rfind(" ")
        if blank > width // 2:
            piece = piece[: blank + 1]
        yield piece.rstrip(" ")
        at += len(piece)
    yield ahead


def _ahead(text: str, at: int, width: int) -> str:
    """Enough of the rest of the text to be wider than this, so that a long text is not measured for each piece; or all
    of the rest. Some characters have no width."""
    count = 2 * width
    while cell_len(ahead := text[at : at + count]) <= width and at + count < len(text):
        count *= 2
    return ahead


def matching(rows: Sequence[ListRow], search: str) -> list[ListRow]:
    """The rows that contain the text, in any case; those that cannot be selected stay."""
    if not search:
        return list(rows)
    wanted = visible(search).casefold()
    return [row for row in rows if row.key is None or wanted in _searched(row).casefold()]


def _searched(row: ListRow) -> str:
    """Its line, and all that its value has, because cells may be cut."""
    known = [getattr(row.value, one.name) for one in fields(row.value)] if is_dataclass(row.value) else []
    return visible(f"{plain(row.line)} {' '.join(map(str, known))}")


def as_json(value: Any) -> str:
    """What `y` copies: ASCII only, as `--json` prints it."""
    return json_text(to_jsonable(value), indent=2)
