"""What a filter means, before any statement is run (M-46)."""

from __future__ import annotations

from typing import Any

import pytest

from horsies.core.models.codes import BUILTIN_CODE_REGISTRY
from horsies.core.models.monitoring.tasks import ErrorCategory, category_of
from horsies.core.monitoring.filters import BadQuestion, TaskFilter, checked_seconds, checked_text, order, page
from horsies.core.types.status import TaskStatus
from tests.each import each


def test_m46_empty_lists_filter_nothing() -> None:
    params = TaskFilter().params()
    assert {name for name, value in params.items() if value} == set()
    assert all(params[name] is None for name in ("task_names", "queues", "workers", "statuses", "codes"))


def test_m46_each_built_in_code_belongs_to_one_category_and_every_other_one_to_domain() -> None:
    assert {category_of(code) for code in BUILTIN_CODE_REGISTRY} == set(ErrorCategory) - {ErrorCategory.DOMAIN}
    assert category_of("TASK_TIMEOUT") is ErrorCategory.OUTCOME
    assert category_of("WORKER_CRASHED") is ErrorCategory.OPERATIONAL
    assert category_of("RETURN_TYPE_MISMATCH") is ErrorCategory.CONTRACT
    assert category_of("WAIT_TIMEOUT") is ErrorCategory.RETRIEVAL
    assert category_of("CARD_DECLINED") is ErrorCategory.DOMAIN
    assert category_of(None) is None


def matches(wanted: TaskFilter, code: str | None) -> bool:
    """What the statements do with the two lists of codes."""
    params = wanted.params()
    codes, others = params["codes"], params["codes_other_than"]
    return (codes is None or code in codes) and (others is None or (code is not None and code not in others))


@each("code", ["CARD_DECLINED", "WORKER_CRASHED", "TASK_EXPIRED", "PYDANTIC_HYDRATION_ERROR", None])
@each(
    "categories",
    [[], ["DOMAIN"], ["OPERATIONAL"], ["OPERATIONAL", "OUTCOME"], ["DOMAIN", "OUTCOME"], list(ErrorCategory)],
    ids=str,
)
@each("codes", [[], ["CARD_DECLINED"], ["CARD_DECLINED", "WORKER_CRASHED"]], ids=str)
def test_m46_or_within_a_list_and_between_lists(code: str | None, categories: list[Any], codes: list[str]) -> None:
    by_code = not codes or code in codes
    by_category = not categories or (code is not None and str(category_of(code)) in {str(each) for each in categories})
    wanted = TaskFilter(error_codes=codes, error_categories=categories)
    assert matches(wanted, code) is (by_code and by_category)


def test_m46_names_of_states_and_members_are_the_same() -> None:
    by_name = TaskFilter(statuses=["PENDING"]).params()
    assert by_name == TaskFilter(statuses=[TaskStatus.PENDING]).params()
    assert TaskFilter(statuses=["RUNNING", "FAILED"]).params()["statuses"] == ["FAILED", "RUNNING"]


@pytest.mark.parametrize(
    ("statuses", "facts", "said_by_it"),
    [
        (["PENDING"], {"only_waiting"}, True),
        (["CLAIMED", "RUNNING"], {"only_in_flight"}, True),
        (["RUNNING"], {"only_in_flight"}, False),
        (["FAILED", "EXPIRED"], {"only_ended"}, False),
        (["FAILED", "EXPIRED", "COMPLETED", "CANCELLED"], {"only_ended"}, True),
        (["PENDING", "RUNNING"], set(), False),
        (["PENDING", "FAILED"], set(), False),
    ],
    ids=str,
)
def test_m46_states_that_share_an_index_are_recognised(statuses: list[str], facts: set[str], said_by_it: bool) -> None:
    params = TaskFilter(statuses=statuses).params()
    assert {name for name in ("only_waiting", "only_in_flight", "only_ended") if params[name]} == facts
    assert params["statuses"] == (None if said_by_it else sorted(statuses))


@each(
    "wrong",
    [
        {"statuses": ["DONE"]},
        {"statuses": "PENDING"},
        {"error_categories": ["SOMETHING"]},
        {"queues": "default"},
        {"queues": [7]},
        {"task_names": ["a\0b"]},
        {"workers": None},
    ],
    ids=str,
)
def test_m46_a_wrong_filter_is_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadQuestion, match=next(iter(wrong))):
        TaskFilter(**wrong).params()


@each(("offset", "limit"), [(0, 0), (0, 501), (-1, 1), (0, True), (2**31, 1), (0.5, 1), (0, "5")])
def test_m46_a_page_has_1_to_500_tasks(offset: Any, limit: Any) -> None:
    with pytest.raises(BadQuestion):
        page(offset, limit)
    assert page(0, 1) == {"offset": 0, "limit": 1} and page(7, 500) == {"offset": 7, "limit": 500}


@each(
    ("sort_by", "statuses"),
    [
        ("claim_order", []),
        ("claim_order", ["RUNNING"]),
        ("started_at", ["PENDING"]),
        ("ended_at", []),
        ("priority", []),
    ],
)
def test_m45_no_order_that_no_index_has(sort_by: str, statuses: list[str]) -> None:
    with pytest.raises(BadQuestion, match="sort_by"):
        order(sort_by, "asc", statuses)


def test_m45_the_orders_that_there_are() -> None:
    assert order("id", "desc", []) == {"sort_by": "id", "descending": True}
    assert order("claim_order", "asc", ["PENDING"])["descending"] is False
    assert order("started_at", "asc", ["CLAIMED"]) and order("ended_at", "asc", ["FAILED", "COMPLETED"])
    with pytest.raises(BadQuestion, match="sort_dir"):
        order("id", "up", [])


@each("value", ["a\0b", "\ud800", 5, None])
def test_m46_what_no_column_can_hold_is_a_wrong_question(value: Any) -> None:
    with pytest.raises(BadQuestion):
        TaskFilter(task_names=[value]).params()
    with pytest.raises(BadQuestion):
        checked_text("name", value)


@each("value", [-1, float("nan"), float("inf"), "2", True, None])
def test_m45_a_time_is_a_number_of_seconds(value: Any) -> None:
    with pytest.raises(BadQuestion):
        checked_seconds("timeout_seconds", value)


def test_m46_an_order_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadQuestion):
        order([], "asc", ())  # type: ignore[arg-type]
