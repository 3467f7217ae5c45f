"""What the end of an attempt means for its task (L-08, L-37, W-32, W-33, W-35, W-52, T-30)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from horsies import RetryPolicy, WorkerRecoveryConfig
from horsies.core.child.wire import Done, WireError, done_of
from horsies.core.models.tasks import TaskOptions
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Move, Retry
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker import finalize
from horsies.core.worker.in_hand import HeldTask
from tests.each import each

CODES = ["BUSY", "WORKER_CRASHED", "TASK_TIMEOUT", "WORKER_SERIALIZATION_ERROR"]
POLICY = TaskOptions(
    retry_policy=RetryPolicy.fixed([7, 9], auto_retry_for=CODES, jitter=False), timeout_ms=1500
).to_json()
CLAIM = Claim("id", 4)


def held(options: str | None = None, retry_count: int = 0, max_retries: int = 2) -> HeldTask:
    row = Claimed(0, 1, None, "id", 4, "resize", "default", None, None, options, retry_count, max_retries, False, None)
    return HeldTask(row, is_async=False, token=1, claim=CLAIM)


def done(ok: bool, code: str | None = None, message: str | None = None) -> Done:
    return Done(ok, '{"ok":1}' if ok else '{"err":{}}', code, message, False, 0, 0)


def error_in(move: Move) -> dict[str, Any]:
    end = move.otherwise if isinstance(move, Retry) else move
    assert isinstance(end, Fail | Expire)
    error: dict[str, Any] = json.loads(end.result)["err"]
    return error


def test_w32_the_report_decides_between_success_failure_and_retry() -> None:
    assert finalize.of_report(held(POLICY), done(True)) == Complete(CLAIM, '{"ok":1}')
    failed = Fail(CLAIM, '{"err":{}}', "BUSY", "why", TaskAttemptOutcome.FAILED, None)
    assert finalize.of_report(held(), done(False, "BUSY", "why")) == failed
    assert finalize.of_report(held(POLICY), done(False, "BUSY", "why")) == Retry(CLAIM, 7.0, failed)
    assert finalize.of_report(held(POLICY, retry_count=1), done(False, "BUSY", "why")) == Retry(CLAIM, 9.0, failed)
    assert finalize.of_report(held(POLICY, retry_count=2), done(False, "BUSY", "why")) == failed
    assert isinstance(finalize.of_report(held(POLICY), done(False, "OTHER")), Fail)
    assert isinstance(finalize.of_report(held(POLICY), done(False, None)), Fail)


def test_w32_the_retries_of_the_row_count_whatever_its_policy_says() -> None:
    assert isinstance(finalize.of_report(held(POLICY, max_retries=0), done(False, "BUSY")), Fail)


def test_w32_options_that_nobody_can_read_cost_the_retries_not_the_task() -> None:
    assert finalize.of_report(held("{edited by hand"), done(True)) == Complete(CLAIM, '{"ok":1}')
    assert isinstance(finalize.of_report(held("{edited by hand"), done(False, "BUSY")), Fail)


def test_w32_texts_that_a_column_cannot_hold_are_replaced() -> None:
    move = finalize.of_report(held(), done(False, "X", "a\0b"))
    assert isinstance(move, Fail) and move.error_message == "a\N{REPLACEMENT CHARACTER}b"


@each("parts", [[], [b"1"] * 6, [b"1", b"\xff", b"", b"", b"0", b"0" * 8, b"0" * 8], [b"1"] * 7])
def test_w33_a_reply_that_cannot_be_read_fails_the_attempt(parts: list[bytes]) -> None:
    with pytest.raises(WireError) as caught:
        done_of(parts)
    move = finalize.of_unreadable_report(held(POLICY), str(caught.value))
    assert isinstance(move, Fail), "WORKER_SERIALIZATION_ERROR is never retried, even if a policy lists it"
    assert (move.error_code, move.outcome) == ("WORKER_SERIALIZATION_ERROR", TaskAttemptOutcome.FAILED)
    assert "cannot be read" in str(move.error_message) and str(caught.value) in str(move.error_message)


def test_l37_a_crash_is_a_worker_failure_that_says_who_and_how() -> None:
    move = finalize.of_crash(held(), "host:1:ab", "host", 77, "it was killed by SIGKILL")
    assert isinstance(move, Fail)
    assert (move.outcome, move.error_code) == (TaskAttemptOutcome.WORKER_FAILURE, "WORKER_CRASHED")
    assert move.failed_reason == "child process 77 of worker host:1:ab: it was killed by SIGKILL"
    assert error_in(move)["data"]["worker_pid"] == 77
    again = finalize.of_crash(held(POLICY), "w", "h", 77, "died")
    assert isinstance(again, Retry) and again.charged
    assert again.otherwise.outcome is TaskAttemptOutcome.WORKER_FAILURE


def test_l37_a_timeout_is_an_ordinary_failure_t30() -> None:
    move = finalize.of_timeout(held(POLICY, retry_count=2))
    assert isinstance(move, Fail)
    assert (move.outcome, move.error_code, move.failed_reason) == (TaskAttemptOutcome.FAILED, "TASK_TIMEOUT", None)
    assert "1500 ms" in str(move.error_message) and "'resize'" in str(move.error_message)
    assert isinstance(finalize.of_timeout(held(POLICY)), Retry)


def test_l08_an_expired_claim_says_which_task_and_whose() -> None:
    error = error_in(finalize.of_deadline(held(), "host:1:ab"))
    assert error["error_code"] == {"__builtin_task_code__": "TASK_EXPIRED"}
    assert error["data"] == {"task_id": "id", "worker_id": "host:1:ab"}


def test_w52_a_task_that_was_cut_off_is_a_crash_or_comes_back_uncharged() -> None:
    plain = finalize.of_forced_shutdown(held(), "w", "h", 7, WorkerRecoveryConfig())
    assert isinstance(plain, Fail) and "SHUTDOWN" in str(plain.failed_reason)
    enrolled = WorkerRecoveryConfig(enabled=True, recovery_delay=timedelta(seconds=11))
    again = finalize.of_forced_shutdown(held(), "w", "h", 7, enrolled)
    assert isinstance(again, Retry) and (again.delay_s, again.charged) == (11.0, False)
    assert again.otherwise.outcome is TaskAttemptOutcome.WORKER_FAILURE


@each(
    ("returncode", "words"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-9, "was killed by SIGKILL"), (-99, "signal 99")],
)
def test_w35_the_end_of_a_child_in_words(returncode: int, words: str) -> None:
    assert words in finalize.describe_exit(returncode)
