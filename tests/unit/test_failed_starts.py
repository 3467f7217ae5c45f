"""A payload that kills every child that is handed it does not loop (R-102)."""

from __future__ import annotations

import json

from horsies.core.models.tasks import TaskOptions
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Fail, Requeue
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker import finalize
from horsies.core.worker.in_hand import HeldTask
from tests.unit.test_outcome import POLICY


def held(failures: int, exits: str | None, options: str | None = None) -> HeldTask:
    row = Claimed(0, 1, None, "id", 4, "t", "default", None, None, options, 0, 5, False, None, failures, exits)
    return HeldTask(row, is_async=False, token=1, claim=Claim("id", 4))


def of(failures: int, exits: str | None, options: str | None = None) -> Requeue | Fail:
    move = finalize.of_failed_start(held(failures, exits, options), "w", "host", 7, "it was killed by SIGKILL")
    assert isinstance(move, Requeue | Fail)
    return move


def test_r102_a_failed_start_is_counted_and_remembered() -> None:
    first = of(0, None)
    assert first == Requeue(
        Claim("id", 4), reason="1. child process 7 of worker w: it was killed by SIGKILL", failed_start=True
    )
    assert isinstance(first, Requeue)
    second = of(1, first.reason)
    assert isinstance(second, Requeue) and second.failed_start and second.delay_s is None
    assert second.reason == f"{first.reason}; 2. child process 7 of worker w: it was killed by SIGKILL"


def test_r102_the_tenth_in_a_row_fails_the_task_with_the_history_of_the_exits() -> None:
    ninth = of(8, "so far")
    assert isinstance(ninth, Requeue)
    assert TaskOptions.from_json(POLICY).retry_policy is not None
    for options in (None, POLICY):  # a policy that retries crashes does not bring it back: nothing has begun
        tenth = of(9, ninth.reason, options)
        assert isinstance(tenth, Fail) and tenth.outcome is TaskAttemptOutcome.WORKER_FAILURE
        assert tenth.error_code == "WORKER_CRASHED" and ninth.reason is not None
        assert tenth.failed_reason is not None and ninth.reason in tenth.failed_reason
        assert "10 times in a row" in tenth.failed_reason and "10. child process 7" in tenth.failed_reason
        assert json.loads(tenth.result)["err"]["data"]["worker_pid"] == 7
