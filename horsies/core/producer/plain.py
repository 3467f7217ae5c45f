"""A payload for a task of which only the name is known here: arguments are plain JSON, and their types are not
checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from horsies.core.codec.fingerprint import with_sha
from horsies.core.codec.serde import SerializationError, args_to_json, kwargs_to_json
from horsies.core.models.queues import DEFAULT_PRIORITY, DEFAULT_QUEUE
from horsies.core.models.tasks import TaskOptions, TaskSendPayload
from horsies.core.types.result import Ok, Result


def payload_for(
    task_name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    queue_name: str = DEFAULT_QUEUE,
    priority: int = DEFAULT_PRIORITY,
    good_until: datetime | None = None,
    delay: int | None = None,
    options: TaskOptions | None = None,
    flags: Mapping[str, bool] | None = None,
    idempotency_key: str | None = None,
) -> Result[TaskSendPayload, SerializationError]:
    """The payload of a send by name."""
    args_json, kwargs_json = args_to_json(tuple(args)), kwargs_to_json(kwargs or {})
    if not isinstance(args_json, Ok):
        return args_json
    if not isinstance(kwargs_json, Ok):
        return kwargs_json
    payload = TaskSendPayload(
        task_name=task_name,
        queue_name=queue_name,
        priority=priority,
        args_json=args_json.value if args else None,
        kwargs_json=kwargs_json.value if kwargs else None,
        sent_at=datetime.now(UTC),
        good_until=good_until,
        enqueue_delay_seconds=delay,
        task_options=options.to_json() if options else None,
        enqueue_sha="",
        flags_json=json.dumps(dict(flags), separators=(",", ":"), sort_keys=True) if flags else None,
        idempotency_key=idempotency_key,
    )
    return Ok(with_sha(payload))
