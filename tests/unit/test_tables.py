"""Which columns of a table a terminal has room for, as a rule over widths (M-14)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from horsies.cli.tables import GAP, Column, chosen, fit, folds_of
from horsies.core.errors import HorsiesError
from tests.each import each

COLUMNS = (
    Column("task", str),
    Column("status", str),
    Column("name", str, folds=True),
    Column("queue", str, leaves=1),
    Column("took", str, leaves=2),
    Column("error", str, folds=True),
    Column("workflow", str, extra=True),
)
SHOWN = COLUMNS[:-1]
WIDTHS = (36, 9, 30, 10, 6, 20)
FILLED = (False,) * len(SHOWN)


def names(kept: dict[int, int]) -> list[str]:
    return [SHOWN[place].name for place in kept]


def total(kept: dict[int, int]) -> int:
    return sum(kept.values()) + GAP * (len(kept) - 1)


def test_m14_a_table_that_fits_stays_as_it_is() -> None:
    assert fit(SHOWN, WIDTHS, FILLED, 200) == dict(enumerate(WIDTHS))


@each("room", range(60, 130))
def test_m14_columns_leave_in_their_order_and_the_error_never(room: int) -> None:
    kept = fit(SHOWN, WIDTHS, FILLED, room)
    assert names(kept) in (
        ["task", "status", "name", "queue", "took", "error"],
        ["task", "status", "name", "queue", "error"],
        ["task", "status", "name", "error"],
    )
    assert total(kept) <= room or total(kept) == 36 + 9 + 12 + 12 + 3 * GAP, "those that stay have a least width"


def test_m14_a_long_name_is_folded_before_a_column_leaves() -> None:
    kept = fit(SHOWN, (36, 9, 60, 10, 6, 20), FILLED, 120)
    assert names(kept) == [column.name for column in SHOWN] and kept[2] == 120 - 36 - 9 - 10 - 6 - 20 - 5 * GAP


def test_m14_columns_without_text_leave_first() -> None:
    empty = (False, False, False, True, False, False)
    assert names(fit(SHOWN, WIDTHS, empty, 105)) == ["task", "status", "name", "took", "error"]


def test_m14_the_widest_is_narrowed_first() -> None:
    kept = fit((SHOWN[0], *SHOWN[2:3], SHOWN[5]), (10, 40, 20), (False,) * 3, 50)
    assert kept == {0: 10, 1: 18, 2: 18} or (total(kept) <= 50 and abs(kept[1] - kept[2]) <= 2)


def test_m14_a_text_is_folded_behind_marks_if_there_are_any() -> None:
    def lines(text: str, width: int) -> list[str]:
        places = [0, *folds_of(text, width), len(text)]
        return [text[start:end] for start, end in pairwise(places)]

    assert lines("CARD_DECLINED_BY_BANK", 14) == ["CARD_DECLINED_", "BY_BANK"]
    assert lines("x" * 25, 12) == ["x" * 12, "x" * 12, "x"]
    assert lines("short", 12) == ["short"]


def test_m14_chosen_columns_are_shown_in_their_order_and_stay() -> None:
    table = chosen(COLUMNS, ["workflow,took", "Task"], wide=False)
    assert table.titles == ["workflow", "took", "task"]
    assert not any(column.leaves for column in table.columns)
    assert chosen(COLUMNS, None, wide=False).titles == [column.name for column in SHOWN]


def test_m14_a_blank_in_a_title_may_be_typed_as_a_dash() -> None:
    columns = (Column("last heartbeat", str), Column("pid", str))
    assert chosen(columns, ["last-heartbeat,last_heartbeat"], wide=True).titles == ["last heartbeat"]


def test_m31_an_unknown_column_is_answered_with_the_nearest() -> None:
    with pytest.raises(HorsiesError) as refused:
        chosen(COLUMNS, ["eror"], wide=False)
    assert "'eror'" in refused.value.message and "did you mean error?" in (refused.value.help_text or "")


def test_m14_the_options_are_for_tables() -> None:
    for options in ({"names": ["task"], "wide": False}, {"names": None, "wide": True}):
        with pytest.raises(HorsiesError):
            chosen(COLUMNS, is_table=False, **options)  # type: ignore[arg-type]
