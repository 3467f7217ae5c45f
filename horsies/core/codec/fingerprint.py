"""The fingerprint of a send: two payloads with the same `enqueue_sha` are the same request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_json

from horsies.core.models.sending import TaskSendPayload

_NAMES = tuple(sorted(field.name for field in fields(TaskSendPayload) if field.name != "enqueue_sha"))
_TIMES = ("good_until", "sent_at")
_BETWEEN = tuple(name for name in _NAMES if "args_json" < name < "kwargs_json")
_BEHIND = tuple(name for name in _NAMES if name > "kwargs_json")


def enqueue_sha(payload: TaskSendPayload) -> str:
    """SHA-256 over compact JSON with sorted keys, of every field except the fingerprint itself; times are in UTC."""
    return sha_with({name: getattr(payload, name) for name in _NAMES})(payload.args_json, payload.kwargs_json)


def sha_with(shared: Mapping[str, Any]) -> Callable[[str | None, str | None], str]:
    """The fingerprints of payloads that differ only in the two texts of their arguments, which are the first and the
    sixth field in alphabetical order; the rest is encoded once."""
    times = {name: _in_utc(shared[name]) for name in _TIMES}
    between = _json({name: times[name] if name in times else shared[name] for name in _BETWEEN})
    behind = _json({name: times[name] if name in times else shared[name] for name in _BEHIND})

    def sha(args_json: str | None, kwargs_json: str | None) -> str:
        args, kwargs = _json(args_json), _json(kwargs_json)
        text = b'{"args_json":%b,%b,"kwargs_json":%b,%b' % (args, between[1:-1], kwargs, behind[1:])
        return hashlib.sha256(text).hexdigest()

    return sha


def with_sha(payload: TaskSendPayload) -> TaskSendPayload:
    """The payload with its fingerprint."""
    return replace(payload, enqueue_sha=enqueue_sha(payload))


def is_intact(payload: TaskSendPayload) -> bool:
    """Whether the payload is unchanged since it was made."""
    return payload.enqueue_sha == enqueue_sha(payload)


def _in_utc(time: datetime | None) -> str | None:
    if time is None:
        return None
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).isoformat(timespec="microseconds")


def _json(value: Any) -> bytes:
    try:
        return to_json(value)  # the same text as below, in half the time
    except ValueError:  # lone surrogates: the database will refuse them
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
