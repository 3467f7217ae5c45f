"""The fingerprint of a send: two payloads with the same `enqueue_sha` are the same request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from horsies.core.models.sending import TaskSendPayload

_NAMES = tuple(field.name for field in fields(TaskSendPayload) if field.name != "enqueue_sha")
# Escaped or not makes no difference to what is compared; not escaping is shorter and faster.
_to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode


def enqueue_sha(payload: TaskSendPayload) -> str:
    """SHA-256 over compact, key-sorted JSON of every field but the fingerprint itself; times in UTC."""
    return sha_of({name: getattr(payload, name) for name in _NAMES})


def sha_of(payload_fields: Mapping[str, Any]) -> str:
    """The fingerprint of a payload that has yet to be made of these fields."""
    text = _to_json({name: _plain(value) for name, value in payload_fields.items()})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def with_sha(payload: TaskSendPayload) -> TaskSendPayload:
    """The payload with its fingerprint."""
    return replace(payload, enqueue_sha=enqueue_sha(payload))


def is_intact(payload: TaskSendPayload) -> bool:
    """True if nothing of the payload was changed since it was made."""
    return payload.enqueue_sha == enqueue_sha(payload)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return value
