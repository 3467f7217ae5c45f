"""Decides whether a failed attempt is retried, and when (T-75 to T-81). Pure: the random factor is passed in."""

from collections.abc import Callable
from random import random

from horsies.core.lifecycle.moves import Fail, Move, Retry
from horsies.core.models.tasks import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE, RetryPolicy

JITTER = 0.25


def retry_or_fail(
    fail: Fail, policy: RetryPolicy | None, retry_count: int, max_retries: int, rand: Callable[[], float] = random
) -> Move:
    """The move for an attempt that ended with an error: a retry if the policy allows it, otherwise the failure
    (T-78)."""
    if policy is None or not may_retry(policy, fail.error_code, retry_count, max_retries):
        return fail
    return Retry(fail.claim, delay_s(policy, retry_count + 1, rand), otherwise=fail)


def may_retry(policy: RetryPolicy, error_code: str | None, retry_count: int, max_retries: int) -> bool:
    """Whether the code can be retried, is listed, and a retry is left."""
    if error_code is None or retry_count >= max_retries:
        return False
    if error_code in BUILTIN_CODE_REGISTRY and error_code not in RETRY_ELIGIBLE:
        return False
    return error_code in {str(getattr(code, "value", code)) for code in policy.auto_retry_for}


def delay_s(policy: RetryPolicy, retry: int, rand: Callable[[], float] = random) -> float:
    """Seconds to wait before retry number `retry` (1-based), with the policy's jitter (T-77)."""
    if policy.backoff_strategy == "exponential":
        seconds = float(policy.intervals[0] * 2 ** (retry - 1))
    else:
        seconds = float(policy.intervals[min(retry, len(policy.intervals)) - 1])
    return seconds * (1 - JITTER + 2 * JITTER * rand()) if policy.jitter else seconds
