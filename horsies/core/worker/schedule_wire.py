"""Requests for the payloads of schedules from a worker to its helper child, and the answers, as messages. No I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.scheduler.payloads import UNDATED, Wanted
from horsies.core.types.result import Err, Ok, Result

PREPARE = b"PrepareRequest"
_TIMES = ("sent_at", "good_until")  # a payload of a schedule has neither


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Make the payloads of these schedules."""

    wanted: tuple[Wanted, ...]


def pack_request(request: PrepareRequest) -> tuple[bytes, bytes]:
    """The kind of the request and its content."""
    return PREPARE, json.dumps(request.wanted).encode()


def request_of(content: bytes) -> PrepareRequest:
    """The inverse of `pack_request`."""
    return PrepareRequest(tuple(Wanted(*one) for one in json.loads(content)))


def handler_of(wanted: Wanted) -> str:
    """What the helper reports that it is about to do."""
    return f"the arguments of {wanted.name}"


def pack_payloads(answers: Sequence[Result[TaskSendPayload, str]]) -> bytes:
    return json.dumps([_packed(answer) for answer in answers]).encode()


def payloads_of(answer: bytes, count: int) -> list[Result[TaskSendPayload, str]]:
    """This many payloads. ValueError, KeyError or TypeError if the answer is invalid."""
    found = [_unpacked(one) for one in json.loads(answer)]
    if len(found) != count:
        raise ValueError(f"{len(found)} payloads instead of {count}")
    return found


def _packed(answer: Result[TaskSendPayload, str]) -> dict[str, Any]:
    if isinstance(answer, Err):
        return {"problem": answer.error}
    return {name: value for name, value in asdict(answer.value).items() if name not in _TIMES}


def _unpacked(fields: dict[str, Any]) -> Result[TaskSendPayload, str]:
    if "problem" in fields:
        return Err(str(fields["problem"]))
    return Ok(TaskSendPayload(sent_at=UNDATED, good_until=None, **fields))
