"""May a failed attempt be tried again, and when."""

from __future__ import annotations

import pytest

from horsies.core.models.tasks import OperationalErrorCode, OutcomeCode, RetryPolicy
from horsies.core.tasks.moves import Claim, Fail, Retry, delay_s, may_retry, retry_or_fail
from tests.each import each

CLAIM = Claim("t", 1)
POLICY = RetryPolicy.fixed([10, 20, 30], auto_retry_for=["FLAKY", "TASK_TIMEOUT", "BROKER_ERROR"], jitter=False)


def fail(code: str | None) -> Fail:
    return Fail(CLAIM, "{}", code)


@each(
    ("code", "count", "verdict"),
    [
        ("FLAKY", 0, True),
        ("FLAKY", 2, True),
        ("FLAKY", 3, False),  # none left
        ("OTHER", 0, False),  # not listed
        ("TASK_TIMEOUT", 0, True),
        ("BROKER_ERROR", 0, False),  # listed, but can never be retried (T-70)
        (None, 0, False),
    ],
)
def test_t78_when_a_retry_happens(code: str | None, count: int, verdict: bool) -> None:
    assert may_retry(POLICY, code, count, 3) is verdict
    move = retry_or_fail(fail(code), POLICY, count, 3)
    assert isinstance(move, Retry) is verdict


def test_t78_without_a_policy_a_failure_is_final() -> None:
    assert retry_or_fail(fail("FLAKY"), None, 0, 3) == fail("FLAKY")


def test_t77_fixed_delays_follow_the_list() -> None:
    assert [delay_s(POLICY, n) for n in (1, 2, 3)] == [10, 20, 30]


def test_t77_exponential_delays_double() -> None:
    policy = RetryPolicy.exponential(5, max_retries=4, auto_retry_for=["X"], jitter=False)
    assert [delay_s(policy, n) for n in (1, 2, 3, 4)] == [5, 10, 20, 40]


@each(("rand", "factor"), [(0.0, 0.75), (0.5, 1.0), (1.0, 1.25)])
def test_t77_jitter_is_a_quarter_either_way(rand: float, factor: float) -> None:
    policy = RetryPolicy.fixed([100], auto_retry_for=["X"])
    assert delay_s(policy, 1, lambda: rand) == pytest.approx(100 * factor)


def test_t81_enum_members_and_strings_are_equivalent() -> None:
    by_enum = RetryPolicy.fixed([1], auto_retry_for=[OutcomeCode.TASK_TIMEOUT, OperationalErrorCode.WORKER_CRASHED])
    assert may_retry(by_enum, "TASK_TIMEOUT", 0, 1)
    assert may_retry(by_enum, "WORKER_CRASHED", 0, 1)
