"""Codes in `auto_retry_for` that nothing can produce (HRS-217), and that nothing is said about those that may come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from horsies import (
    AppConfig,
    Horsies,
    OperationalErrorCode,
    OutcomeCode,
    RetryPolicy,
    TaskError,
    TaskResult,
)
from horsies.core import errors as some_module
from horsies.core.checks.retry_codes import problems
from horsies.core.checks.returned import codes as returned
from tests.unit.workflows.sample import URL

BUSY = "BUSY"
LATER: Any = []


def only_ok() -> TaskResult[int, TaskError]:
    if BUSY:
        return TaskResult(ok=1)
    raise KeyError


def both(x: int = 1) -> TaskResult[int, TaskError]:
    if x:
        return TaskResult[int, TaskError](err=TaskError(error_code="BUSY", message="later"))
    return TaskResult(ok=1) if x else TaskResult(err=TaskError(error_code=BUSY))


def built_in() -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(error_code=OperationalErrorCode.BROKER_ERROR))


def without_code() -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(message="no code"))


def nothing() -> TaskResult[int, TaskError]:  # type: ignore[return]
    def inner() -> str:
        return LATER  # type: ignore[no-any-return]

    if inner():
        return  # type: ignore[return-value]


def elsewhere() -> TaskResult[int, TaskError]:
    result: TaskResult[int, TaskError] = TaskResult(err=TaskError(error_code="BUSY"))
    LATER.append(result)
    return result


def by_helper() -> TaskResult[int, TaskError]:
    return elsewhere()


def by_variable(code: str = "BUSY") -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(error_code=code))


def by_shadow(BUSY: str = "IDLE") -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(error_code=BUSY))


def by_spreading() -> TaskResult[int, TaskError]:
    return TaskResult(**LATER[0])


def by_instance() -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(error_code=LATER.code))


def by_unknown_name() -> TaskResult[int, TaskError]:
    return TaskResult(err=TaskError(error_code=some_module.NO_SUCH_NAME))  # type: ignore[attr-defined]


async def awaited() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@pytest.mark.parametrize(
    ("fn", "codes"),
    [
        (only_ok, set()),
        (both, {"BUSY"}),
        (built_in, {"BROKER_ERROR"}),
        (without_code, set()),
        (nothing, set()),
        (awaited, set()),
        (elsewhere, None),
        (by_helper, None),
        (by_variable, None),
        (by_shadow, None),
        (by_spreading, None),
        (by_instance, None),
        (by_unknown_name, None),
        (eval("lambda: 1"), None),
    ],
)
def test_what_a_function_returns_is_known_only_if_it_is_written_out(fn: Any, codes: set[str] | None) -> None:
    assert returned(fn) == codes


def said_of(
    fn: Callable[..., Any], *codes: Any, app: Horsies | None = None, name: str = "t", **options: Any
) -> list[str]:
    app = app or Horsies(AppConfig.for_database_url(URL))
    policy = RetryPolicy.fixed([1], auto_retry_for=list(codes))
    app.task(name, retry_policy=policy, **options)(fn)
    return [f"{warning.message} / {warning.help_text}" for warning in problems(app.tasks.values())]


@pytest.mark.parametrize(
    ("fn", "codes", "options"),
    [
        (only_ok, ["UNHANDLED_EXCEPTION", "TASK_EXCEPTION", "WORKER_CRASHED"], {}),
        (only_ok, [OutcomeCode.TASK_TIMEOUT], {"timeout_ms": 1000}),
        (only_ok, ["BUSY"], {"exception_mapper": {KeyError: "BUSY"}}),
        (only_ok, ["BUSY"], {"default_unhandled_error_code": "BUSY"}),
        (both, ["BUSY"], {}),
        # Nobody knows what these return.
        (elsewhere, ["ANYTHING_AT_ALL"], {}),
        (by_helper, ["http503"], {"exception_mapper": {KeyError: "HTTP502"}}),
        (by_helper, ["http_503"], {"exception_mapper": {KeyError: "HTTP_502"}}),
        (by_helper, ["io_timeout"], {"exception_mapper": {KeyError: "DB_TIMEOUT"}}),
        (by_helper, ["BUSY"], {"exception_mapper": {KeyError: "BUSYY"}}),  # it stands in this module
    ],
)
def test_m20_t78_nothing_is_said_about_codes_that_may_come(fn: Any, codes: list[Any], options: Any) -> None:
    assert said_of(fn, *(code.upper() if isinstance(code, str) else code for code in codes), **options) == []


@pytest.mark.parametrize(
    ("fn", "code", "options", "why"),
    [
        (only_ok, "BROKER_ERROR", {}, "never retried"),
        (by_helper, "TASK_EXPIRED", {}, "never retried"),
        (built_in, "BROKER_ERROR", {}, "never retried"),
        (only_ok, "TASK_TIMEOUT", {}, "no time limit / @app.task(..., timeout_ms=...)"),
        (only_ok, "UNHANDLED_EXCEPTION", {"default_unhandled_error_code": "OOPS"}, "get the code OOPS / list OOPS"),
        (only_ok, "BUSY", {}, "never returns this code, and no mapper produces it / map an exception"),
        (both, "IDLE", {}, "never returns this code"),
        (awaited, "BUSY", {}, "never returns this code"),
        (only_ok, "rate_limitted", {"exception_mapper": {KeyError: "RATE_LIMITED"}}, "did you mean RATE_LIMITED?"),
        (
            by_helper,
            "rate_limitted",
            {"exception_mapper": {KeyError: "RATE_LIMITED"}},
            "a similar one exists / did you mean",
        ),
        (by_helper, "ratelimited", {"exception_mapper": {KeyError: "RATE_LIMITED"}}, "did you mean RATE_LIMITED?"),
        (by_helper, "worker_crash", {}, "did you mean WORKER_CRASHED?"),
    ],
)
def test_m20_t70_t86_codes_that_never_cause_a_retry(fn: Any, code: str, options: Any, why: str) -> None:
    code = code.upper()  # written small where it must not stand in this module
    [said] = said_of(fn, code, **options)
    assert why in said and code in said


def test_t86_the_mapper_of_the_app_counts_where_the_task_has_none_of_its_own() -> None:
    app = Horsies(AppConfig.for_database_url(URL, exception_mapper={KeyError: "GONE", OSError: "BROKEN"}))
    assert said_of(only_ok, "GONE", "BROKEN", app=app) == []
    assert len(said_of(both, "GONE", "OOPS", app=app, name="u", exception_mapper={KeyError: "OOPS"})) == 1


def test_a_policy_that_tasks_share_is_judged_by_all_of_them() -> None:
    app = Horsies(AppConfig.for_database_url(URL))
    assert len(said_of(only_ok, "BUSY", app=app)) == 1
    assert said_of(both, "BUSY", app=app, name="u") == []


def test_m30_the_line_of_the_code_is_pointed_at() -> None:
    app = Horsies(AppConfig.for_database_url(URL))

    @app.task(
        "t",
        retry_policy=RetryPolicy.fixed(
            [1],
            auto_retry_for=["NEVER_SEEN"],
        ),
    )
    def t() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    [warning] = problems(app.tasks.values())
    assert 'auto_retry_for=["NEVER_SEEN"],' in str(warning)
    assert str(warning).startswith("warning[HRS-217]: ")


def test_tasks_without_a_policy_have_no_such_codes() -> None:
    app = Horsies(AppConfig.for_database_url(URL))
    app.task("t")(only_ok)
    assert list(problems(app.tasks.values())) == []
