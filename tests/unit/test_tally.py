"""What the worker's log says about a task that failed: which, why, and how much of it."""

from __future__ import annotations

import json
import logging

import pytest

from horsies.core.models.tasks import OperationalErrorCode
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Fail, Retry
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker.finalize import LINES, OutcomeLog
from horsies.core.worker.in_hand import HeldTask

CLAIM = Claim("id-7", 1)
SECRET = "the-argument"


def held() -> HeldTask:
    arguments = json.dumps([SECRET])
    row = Claimed(0, 1, None, "id-7", 1, "resize", "default", arguments, None, None, 0, 0, False, None)
    return HeldTask(row, is_async=False, token=1, claim=CLAIM)


def fail(message: str | None, traceback: str | None = None) -> Fail:
    error = {"error_code": "BAD", "message": message, "data": None}
    result = json.dumps({"err": {**error, "exception": {"traceback": traceback} if traceback else None}})
    return Fail(CLAIM, result, "UNHANDLED_EXCEPTION", message)


def test_a_failure_says_which_task_and_why_in_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """In the message itself, because only our own handler shows the facts beside it."""
    OutcomeLog("w1").note(held(), fail("task 'resize' raised ValueError: no such file\nand more of it"))
    [record] = caplog.records
    assert record.getMessage() == "task failed: resize id-7: UNHANDLED_EXCEPTION: raised ValueError: no such file"
    facts = record.__dict__["horsies"]
    assert facts["reason"] == "raised ValueError: no such file" and facts["error_code"] == "UNHANDLED_EXCEPTION"
    assert (facts["task_id"], facts["task"], facts["worker"], facts["attempt"]) == ("id-7", "resize", "w1", 1)
    assert SECRET not in caplog.text


def test_a_retry_and_a_crash_say_why_as_well(caplog: pytest.LogCaptureFixture) -> None:
    code = OperationalErrorCode.WORKER_CRASHED.value
    crash = Fail(CLAIM, "{}", code, "x", outcome=TaskAttemptOutcome.WORKER_FAILURE, failed_reason="it was killed")
    tally = OutcomeLog("w1")
    tally.note(held(), Retry(CLAIM, 5, otherwise=fail("busy")))
    for _ in range(LINES + 1):  # crashes are always said
        tally.note(held(), crash)
    first, *others = [(record.levelname, record.getMessage()) for record in caplog.records]
    said = "task failed and will be retried in 5 s: resize id-7: UNHANDLED_EXCEPTION: busy"
    assert first == ("WARNING", said)
    assert others == [("ERROR", "task failed: resize id-7: WORKER_CRASHED: it was killed")] * (LINES + 1)


@pytest.mark.parametrize("message", ["x" * 5000, "\x1b[31mred\x1b[0m\rgone", "\n \n", None])
def test_what_a_task_says_of_itself_cannot_spoil_the_log(message: str | None, caplog: pytest.LogCaptureFixture) -> None:
    OutcomeLog("w1").note(held(), fail(message))
    [record] = caplog.records
    assert record.getMessage().isprintable() and len(record.getMessage()) < 400


def test_the_traceback_is_for_those_who_debug(caplog: pytest.LogCaptureFixture) -> None:
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 3, in resize\nValueError: no\n'
    OutcomeLog("w1").note(held(), fail("no", trace))
    assert "shop.py" not in caplog.text
    with caplog.at_level(logging.DEBUG, "horsies.worker"):
        OutcomeLog("w1").note(held(), fail("no", trace))
    assert 'File "shop.py", line 3' in caplog.text
    OutcomeLog("w1").note(held(), Fail(CLAIM, "not json", "BAD"))
