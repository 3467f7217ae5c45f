"""Events and answers of recovery hooks survive the way to the helper child and back (W-01)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from horsies import FailureReason, Job, JobInterrupted, JobRecovery, JobRecoveryResult, TaskStatus, WorkerRecovered
from horsies.core.child.helper import decision_of, event_of, pack_decision, pack_event
from horsies.core.hooks import Event
from tests.each import each

NOW = datetime(2026, 3, 1, 12, 30, 1, 250_000, tzinfo=UTC)
FULL = Job(
    "id", "name", "queue", TaskStatus.CLAIMED, "owner", 1, 2, 3, NOW, NOW, NOW, NOW,
    '["\\ud800", "ünï"]', '{"a": null}', "{}",
)  # fmt: skip
EMPTY = Job("id", "name")


@each(
    "event",
    [
        JobRecovery(FULL, "me", "gone", FailureReason.WORKER_CRASHED),
        JobRecovery(EMPTY, "me", ""),
        JobInterrupted(replace(FULL, status=TaskStatus.RUNNING), "gone", FailureReason.SHUTDOWN),
        WorkerRecovered("me", ["a", "b"], 7),
    ],
)
def test_w01_an_event_arrives_as_it_was_sent(event: Event) -> None:
    name, content = pack_event(event)
    arrived = event_of(name, content)
    assert (type(arrived), arrived) == (type(event), event)
    json.loads(content)  # nothing else: what comes from a process is never unpickled


def test_w01_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no event"):
        event_of(b"JobStart", b"{}")


@each(
    "decision",
    [
        JobRecoveryResult.Reschedule(NOW),
        JobRecoveryResult.Reschedule(NOW, attempts=0),
        JobRecoveryResult.Default,
        JobRecoveryResult.FailWithBackoff,
        JobRecoveryResult.Skip,
    ],
)
def test_w01_an_answer_arrives_as_it_was_given(decision: JobRecoveryResult) -> None:
    arrived = decision_of(pack_decision(decision))
    assert arrived == decision
    assert isinstance(decision, JobRecoveryResult.Reschedule) or arrived is decision
