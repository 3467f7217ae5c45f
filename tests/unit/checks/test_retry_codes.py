"""Built-in codes in `auto_retry_for` that never cause a retry (HRS-217)."""

from __future__ import annotations

from typing import Any

from horsies import AppConfig, Horsies, OutcomeCode, RetryPolicy, TaskError, TaskResult
from horsies.core.checks.code import useless_retry_codes
from horsies.core.errors import CheckWarning
from tests.each import each
from tests.unit.workflows.sample import URL


def an_app() -> Horsies:
    return Horsies(AppConfig.for_database_url(URL))


def said_of(app: Horsies, *codes: Any, name: str = "t", **options: Any) -> list[CheckWarning]:
    @app.task(name, retry_policy=RetryPolicy.fixed([1], auto_retry_for=list(codes)), **options)
    def task() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    return list(useless_retry_codes(app.tasks.values()))


@each(
    ("codes", "options"),
    [
        (["UNHANDLED_EXCEPTION", "TASK_EXCEPTION", "WORKER_CRASHED"], {}),
        ([OutcomeCode.TASK_TIMEOUT], {"timeout_ms": 1000}),
        (["A_CODE_OF_THE_USERS_OWN"], {}),
    ],
)
def test_m20_t78_nothing_is_said_about_codes_that_may_come(codes: list[Any], options: Any) -> None:
    assert said_of(an_app(), *codes, **options) == []


@each(
    ("code", "why", "hint"),
    [
        ("BROKER_ERROR", "never retried", "of the built-in codes: TASK_EXCEPTION, TASK_TIMEOUT, "),
        (OutcomeCode.TASK_EXPIRED, "never retried", "of the built-in codes: "),
        ("TASK_TIMEOUT", "no time limit", "timeout_ms=..."),
    ],
)
def test_m20_t70_codes_that_never_cause_a_retry(code: Any, why: str, hint: str) -> None:
    [warning] = said_of(an_app(), code, "BUSY")
    assert str(warning).startswith("warning[HRS-217]: task 't': auto_retry_for lists ")
    assert why in warning.message and hint in (warning.help_text or "")
    assert warning.location is not None and warning.location.file == __file__


def test_a_policy_that_tasks_share_may_list_what_only_one_of_them_can_end_with() -> None:
    app = an_app()
    assert len(said_of(app, "TASK_TIMEOUT")) == 1
    assert said_of(app, "TASK_TIMEOUT", name="limited", timeout_ms=1000) == []
