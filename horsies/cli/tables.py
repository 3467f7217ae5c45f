"""The columns of the tables that the commands print, and which of them a terminal has room for (M-14).

A table says for each column what its cells are, whether it may leave, and whether its cells may be folded. `fit` is a
plain function of widths: it first lets go of columns in their order, then folds the cells that may be folded. What a
person chooses with `--columns` stays, and `--wide` shows everything on lines as long as they are. Output that goes to a
file or to another program is always whole. `rendering.py` measures and prints.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from horsies.cli.options import parse_names
from horsies.cli.output import usage_error

GAP = 2  # blanks between two columns
COMFORT = 24  # a cell that may be folded keeps this width as long as another column can leave
NARROWEST = 12


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `leaves` says in which order columns leave a narrow terminal, the highest first; 0 stays. An `extra`
    one is only shown if it is chosen. The first column of a table is not folded: its second line would look like
    another row."""

    name: str
    value: Callable[[Any], Any]
    leaves: int = 0
    folds: bool = False
    extra: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """The columns to print. A whole table is printed on lines as long as they are."""

    columns: tuple[Column, ...]
    is_whole: bool = False

    @property
    def titles(self) -> list[str]:
        return [column.name for column in self.columns]

    def rows(self, items: Sequence[Any]) -> list[list[Any]]:
        return [[column.value(item) for column in self.columns] for item in items]


def chosen(columns: Sequence[Column], names: list[str] | None, *, wide: bool, is_table: bool = True) -> Table:
    """The table that a person wants to see. Names are those of the titles, in the order in which they are typed; a
    blank may be typed as `-` or `_`."""
    wanted = parse_names(names, "--columns")
    if not is_table and (wide or wanted):
        raise usage_error("--wide and --columns are for the table", "leave them out, or leave out --json and --ids")
    if wanted is None:
        return Table(tuple(column for column in columns if not column.extra), wide)
    known = {column.name: column for column in columns}
    named = dict.fromkeys(_named(known, name) for name in wanted)
    return Table(tuple(replace(column, leaves=0) for column in named), wide)


def _named(known: dict[str, Column], typed: str) -> Column:
    name = typed.lower().replace("_", " ").replace("-", " ")
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise usage_error(f"there is no column {typed!r}", f"{hint}The columns: {', '.join(known)}")


def fit(columns: Sequence[Column], widths: Sequence[int], empty: Sequence[bool], room: int) -> dict[int, int]:
    """The places of the columns that are shown, each with its width. Columns without any text leave first. If even
    those that stay do not fit, the terminal breaks the lines."""
    kept = dict(enumerate(widths))
    leaving = sorted(
        (place for place, column in enumerate(columns) if column.leaves),
        key=lambda place: (empty[place], columns[place].leaves),
    )
    while leaving and _total(_folded(columns, kept, COMFORT)) > room:
        del kept[leaving.pop()]
    return _spread(columns, kept, room)


def _spread(columns: Sequence[Column], kept: dict[int, int], room: int) -> dict[int, int]:
    """Narrow the widest of the columns that may be folded, until the line fits."""
    found = dict(kept)
    while (excess := _total(found) - room) > 0:
        folding = sorted((place for place in found if place and columns[place].folds), key=found.__getitem__)
        if not folding or (width := found[folding[-1]]) <= NARROWEST:
            return found
        next_width = found[folding[-2]] if len(folding) > 1 else 0
        found[folding[-1]] = max(width - excess, min(next_width, width - 1), NARROWEST)
    return found


def _folded(columns: Sequence[Column], kept: dict[int, int], most: int) -> dict[int, int]:
    return {place: min(width, most) if columns[place].folds else width for place, width in kept.items()}


def _total(kept: dict[int, int]) -> int:
    return sum(kept.values()) + GAP * (len(kept) - 1)


def folds_of(text: str, width: int) -> list[int]:
    """Where a text that is too long for its column is broken: after a blank or a mark, unless that would
    leave most of the line empty."""
    places, start = [], 0
    while len(text) - start > width:
        line = text[start : start + width]
        mark = max(line.rfind(sign) for sign in " ._-:/,")
        start += mark + 1 if mark >= width // 3 else width
        places.append(start)
    return places
