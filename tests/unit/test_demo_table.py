"""The table at the end of `horsies demo`: each of its lines can fail."""

from __future__ import annotations

from horsies.demo import run
from horsies.demo.run import Row, checks
from tests.each import each

RECOVERED = "WORKER_FAILURE+ COMPLETED"
ROWS = [
    Row("shop.set_price", "COMPLETED", None, "COMPLETED", 1, run.PRICES),
    Row("shop.send_mail", "COMPLETED", None, "COMPLETED", 1, run.MAILS - run.REFUSED_MAILS),
    Row("shop.send_mail", "COMPLETED", None, "FAILED+ COMPLETED", 1, run.REFUSED_MAILS),
    Row("shop.resize_image", "COMPLETED", None, "COMPLETED", 1, run.IMAGES - run.BROKEN_IMAGES),
    Row("shop.resize_image", "FAILED", "UNHANDLED_EXCEPTION", "FAILED", 1, run.BROKEN_IMAGES),
    Row("workflow", "COMPLETED", None, "", 0, run.ORDERS - 1),
    Row("workflow", "FAILED", "OUT_OF_STOCK", "", 0, 1),
    Row("shop.check_stock", "COMPLETED", None, "COMPLETED", 1, run.STOCK_CHECKS),
    Row("shop.report", "COMPLETED", None, RECOVERED, 2, run.LOST_REPORTS),
    Row("shop.report", "COMPLETED", None, RECOVERED, 1, 1),
    Row("shop.report", "CANCELLED", "TASK_CANCELLED", "", None, 1),
    Row("shop.archive", "CANCELLED", "TASK_CANCELLED", "", None, 1),
]


def broken(rows: list[Row]) -> set[str]:
    return {check.what for check in checks(rows) if not check.holds}


def test_all_lines_hold_for_the_rows_that_must_be_there() -> None:
    assert broken(ROWS) == set()
    assert broken([*ROWS, Row("shop.check_stock", "COMPLETED", None, "COMPLETED", 1, 1)]) == set()


@each("index", range(len(ROWS)))
def test_each_missing_row_breaks_a_line(index: int) -> None:
    rows = list(ROWS)
    one = rows.pop(index)
    assert broken(rows)
    assert broken([*rows, one._replace(total=one.total - 1)])


def test_every_line_can_fail() -> None:
    nothing = broken([])
    assert nothing | broken([Row("shop.pack", "RUNNING", None, "", 1, 1)]) == {check.what for check in checks(ROWS)}


@each(
    ("row", "line"),
    [
        (Row("shop.pack", "PENDING", None, "", None, 1), "Tasks and workflows left"),
        (Row("workflow", "PAUSED", None, "", 0, 1), "Tasks and workflows left"),
        (Row("shop.set_price", "COMPLETED", None, "COMPLETED", 1, 1), "Prices"),
        (Row("shop.report", "COMPLETED", None, RECOVERED, 2, 1), "Reports in a killed worker"),
    ],
)
def test_what_should_not_be_there_breaks_its_line(row: Row, line: str) -> None:
    assert broken([*ROWS, row]) == {line}
