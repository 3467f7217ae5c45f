"""Events and answers of recovery hooks as JSON messages between a worker and its helper child. No I/O."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import Any

from horsies.core.hooks import (
    EVENTS,
    Decision,
    Event,
    FailureReason,
    Job,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    WorkerRecovered,
)
from horsies.core.types.status import TaskStatus

_PLAIN = {
    answer.name: answer
    for answer in (JobRecoveryResult.Default, JobRecoveryResult.FailWithBackoff, JobRecoveryResult.Skip)
}
_NAMES = {event: event.__name__ for event in EVENTS}
_INSTANTS = ("enqueued_at", "claimed_at", "started_at", "good_until")


def pack_event(event: Event) -> tuple[bytes, bytes]:
    """The name of the event and its content."""
    return _NAMES[type(event)].encode(), json.dumps(_flat(event), default=_plain).encode()


def event_of(name: bytes, content: bytes) -> Event:
    """The inverse of `pack_event`."""
    given = json.loads(content)
    if "job" in given:
        given["job"] = _job(given["job"])
        given["reason"] = FailureReason(given["reason"])
    match name:
        case b"JobRecovery":
            return JobRecovery(**given)
        case b"JobInterrupted":
            return JobInterrupted(**given)
        case b"WorkerRecovered":
            return WorkerRecovered(**given)
    raise ValueError(f"there is no event {name!r}")


def pack_decision(decision: Decision) -> bytes:
    content: dict[str, Any] = {"name": decision.name}
    if isinstance(decision, JobRecoveryResult.Reschedule):
        content |= {"run_at": decision.run_at.isoformat(), "attempts": decision.attempts}
    return json.dumps(content).encode()


def decision_of(content: bytes) -> Decision:
    """The inverse of `pack_decision`. ValueError, KeyError or TypeError if the message is invalid."""
    given = json.loads(content)
    if given["name"] == "Reschedule":
        return JobRecoveryResult.Reschedule(datetime.fromisoformat(given["run_at"]), given["attempts"])
    return _PLAIN[given["name"]]


def _flat(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else _flat(value)


def _job(given: dict[str, Any]) -> Job:
    for name in _INSTANTS:
        if given[name] is not None:
            given[name] = datetime.fromisoformat(given[name])
    return Job(**{**given, "status": TaskStatus(given["status"])})
