"""Turns a call into a payload: bind, serialize, measure, fingerprint. The steps run in this order; the first failure is
the error. Two payloads with the same `enqueue_sha` are the same request. If only the name of a task is known here, its
arguments are plain JSON, and their types are not checked (`payload_for`). Pure, except for a warning about size;
`send.py` writes the payload.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic_core import to_json

from horsies.core.codec.serde import SerializationError, args_to_json, kwargs_to_json
from horsies.core.codec.shapes import CodecError
from horsies.core.errors import TaskDefinitionError
from horsies.core.models.failures import Refused
from horsies.core.models.queues import DEFAULT_PRIORITY, DEFAULT_QUEUE
from horsies.core.models.sending import Draft, TaskSendPayload, payload_of
from horsies.core.models.tasks import (
    MAX_TIMEOUT_MS,
    MIN_TIMEOUT_MS,
    RetryPolicy,
    TaskOptions,
    TaskSendError,
    TaskSendErrorCode,
    is_timeout,
)
from horsies.core.tasks.definition import NO_OPTIONS, SendOptions, TaskDefinition, flags_of
from horsies.core.types import Err, Ok, Result

MAX_KEY_LENGTH = 255
_MAX_DELAY = 10 * 365 * 86_400  # seconds; a longer delay is probably a mistake, and PostgreSQL has limits too
_REUSE = "reuse_after_failure"  # part of the fingerprint only if it is true: it came later than stored fingerprints
_NAMES = tuple(sorted(field.name for field in fields(TaskSendPayload) if field.name not in ("enqueue_sha", _REUSE)))
_TIMES = ("good_until", "sent_at")
_BETWEEN = tuple(name for name in _NAMES if "args_json" < name < "kwargs_json")
_BEHIND = tuple(name for name in _NAMES if name > "kwargs_json")


class Frame(NamedTuple):
    """What the sends of one task share if they are made at the same moment with the same options."""

    task: TaskDefinition[Any, Any]
    fields: dict[str, Any]  # the payload without the arguments and the fingerprint
    sha: Callable[[str | None, str | None], str]


def build(
    task: TaskDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: SendOptions,
    sent_at: datetime,
    delay: Any = None,
) -> Result[TaskSendPayload, TaskSendError]:
    """The payload of a send, or why there is none."""
    try:
        return Ok(payload_of(*draft(task, args, kwargs, options, sent_at, delay)))
    except Refused as refusal:
        return Err(refusal.error)


def draft(
    task: TaskDefinition[Any, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: SendOptions,
    sent_at: datetime,
    delay: Any = None,
) -> Draft:
    """What the payload of a send will consist of; `Refused` if there is none."""
    if has_deadline(task, kwargs):
        kwargs = dict(kwargs)
        options = replace(options, good_until=kwargs.pop("good_until"))
    return fill(frame(task, options, sent_at, delay), args, kwargs)


def has_deadline(task: TaskDefinition[Any, Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments contain a deadline; not if the function has a parameter of that name."""
    return "good_until" in kwargs and "good_until" not in task.codec.signature.keyword


def frame(task: TaskDefinition[Any, Any], options: SendOptions, sent_at: datetime, delay: Any = None) -> Frame:
    """Everything except the arguments."""
    queue_name = task.queue_name if options.queue is None else options.queue
    if not isinstance(queue_name, str) or queue_name not in task.known_queues:
        raise refused(task, f"there is no queue {queue_name!r}; known: {', '.join(sorted(task.known_queues))}")
    try:
        check_time(options.good_until, "good_until")
        _check_key(options.idempotency_key)
        _check_reuse(options)
        flags_json = _flags_json(task, options)
        priority = _priority(task, options, queue_name)
        options_json = _options_json(task, options)
        delay = _delay(options, sent_at, delay)
    except ValueError as problem:
        raise refused(task, str(problem), problem) from None
    fields = {
        "task_name": task.task_name,
        "queue_name": queue_name,
        "priority": priority,
        "sent_at": sent_at,
        "good_until": options.good_until,
        "enqueue_delay_seconds": delay,
        "task_options": options_json,
        "flags_json": flags_json,
        "idempotency_key": options.idempotency_key,
        _REUSE: options.reuse_after_failure,
    }
    return Frame(task, fields, sha_with(fields))


def fill(framed: Frame, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Draft:
    """What a send with these arguments will consist of."""
    task, fields, sha = framed
    try:
        args_json, kwargs_json = task.codec.arguments.encode(args, kwargs)
    except TaskDefinitionError as problem:
        raise refused(task, problem.message, problem) from None
    except (CodecError, ValueError) as problem:
        raise refused(task, str(problem), problem) from None
    if too_large := task.sizes.refusal(task.task_name, args_json, kwargs_json):
        raise refused(task, too_large, code=TaskSendErrorCode.PAYLOAD_TOO_LARGE)
    return fields, args_json, kwargs_json, sha(args_json, kwargs_json)


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


def replay(
    task: TaskDefinition[Any, Any], error: TaskSendError, *, scheduled: bool
) -> list[tuple[str, TaskSendPayload]]:
    """The ids and payloads of a failed `send`, `schedule` or `send_many`; `Refused` if it cannot be retried."""
    if not isinstance(error, TaskSendError) or error.code is not TaskSendErrorCode.ENQUEUE_FAILED:
        raise refused(task, "only a TaskSendError with ENQUEUE_FAILED can be retried")
    again = list(error.batch)
    if not again and error.task_id is not None and error.payload is not None:
        again = [(error.task_id, error.payload)]
    if not again:
        raise refused(task, "the error has no id and no payload to send again")
    is_schedule = not error.batch and again[0][1].enqueue_delay_seconds is not None
    if is_schedule is not scheduled:
        raise refused(task, "retry_send is for errors of send and send_many, retry_schedule for those of schedule")
    for task_id, payload in again:
        if payload.task_name != task.task_name:
            raise refused(task, f"the error belongs to task {payload.task_name!r}")
        if not is_intact(payload):
            why = f"task {task.task_name!r}: the payload was changed since it was first sent"
            raise Refused(TaskSendError(TaskSendErrorCode.PAYLOAD_MISMATCH, why, task_id=task_id, payload=payload))
    return again


def suppressed(task: TaskDefinition[Any, Any]) -> Err[TaskSendError]:
    """The error for a send while sends are suppressed."""
    message = (
        f"task {task.task_name!r}: nothing is sent while modules are imported; a script must send under "
        '`if __name__ == "__main__":`, because workers import the same file'
    )
    return Err(TaskSendError(TaskSendErrorCode.SEND_SUPPRESSED, message))


def refused(
    task: TaskDefinition[Any, Any],
    why: str,
    cause: BaseException | None = None,
    code: TaskSendErrorCode = TaskSendErrorCode.VALIDATION_FAILED,
) -> Refused:
    """For a send that is not valid."""
    return Refused(TaskSendError(code, f"task {task.task_name!r}: {why}", exception=cause))


def check_time(time: Any, name: str) -> None:
    """`ValueError` if this is no moment that the database can store; None is not given."""
    if time is None:
        return
    if not isinstance(time, datetime):
        raise ValueError(f"{name} must be a datetime, not {type(time).__name__}")
    if time.utcoffset() is None:
        raise ValueError(f"{name} must have a time zone: datetime.now(UTC) + timedelta(...), not datetime.now()")
    try:
        time.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{name} is outside the years 1 to 9999 in UTC") from None


def number_problem(priority: Any, delay: Any) -> str | None:
    """Why these numbers of a send by name cannot be used; None if they can."""
    try:
        _check_priority(priority)
        seconds_of(delay, datetime.now(UTC))
    except ValueError as problem:
        return str(problem)
    return None


def _check_priority(priority: Any) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 1 <= priority <= DEFAULT_PRIORITY:
        raise ValueError(f"the priority must be a whole number from 1 (served first) to {DEFAULT_PRIORITY}")


def seconds_of(delay: Any, sent_at: datetime) -> float | None:
    """A delay in seconds. A time that has passed is no delay."""
    if delay is None:
        return None
    if isinstance(delay, datetime):
        check_time(delay, "the time when it is due")
        seconds = max(0.0, (delay - sent_at).total_seconds())
    elif isinstance(delay, timedelta):
        seconds = delay.total_seconds()
    elif isinstance(delay, int | float) and not isinstance(delay, bool):
        seconds = delay
    else:
        raise ValueError(f"a delay is a number of seconds, a timedelta or a datetime, not {type(delay).__name__}")
    if not 0 <= seconds <= _MAX_DELAY:  # NaN is not
        raise ValueError(f"the delay must be from 0 to {_MAX_DELAY} seconds (ten years)")
    return int(seconds) if seconds == int(seconds) else seconds


def _delay(options: SendOptions, sent_at: datetime, delay: Any) -> float | None:
    """The delay of `schedule` or of the options. Only one may be given."""
    given = [one for one in (delay, options.delay, options.eta) if one is not None]
    if len(given) > 1:
        raise ValueError("when it is due is given twice: use one of schedule(delay), delay= and eta=")
    if options.eta is not None and not isinstance(options.eta, datetime):
        raise ValueError(f"eta must be a datetime, not {type(options.eta).__name__}; delay= takes seconds")
    return seconds_of(given[0], sent_at) if given else None


def _priority(task: TaskDefinition[Any, Any], options: SendOptions, queue_name: str) -> int:
    if options.priority is not None:
        _check_priority(options.priority)
        return options.priority
    return task.priority if options.queue is None else task.known_queues[queue_name]


def _options_json(task: TaskDefinition[Any, Any], options: SendOptions) -> str | None:
    if options.timeout_ms is None and options.retry_policy is None:
        return task.options_json
    if options.timeout_ms is not None and not is_timeout(options.timeout_ms):
        raise ValueError(f"timeout_ms must be an integer from {MIN_TIMEOUT_MS} to {MAX_TIMEOUT_MS} (a year)")
    if options.retry_policy is not None and not isinstance(options.retry_policy, RetryPolicy):
        raise ValueError("retry_policy must be a RetryPolicy")
    policy = options.retry_policy or task.options.retry_policy
    limit = task.options.timeout_ms if options.timeout_ms is None else options.timeout_ms
    return TaskOptions(policy, limit).to_json()


def _flags_json(task: TaskDefinition[Any, Any], options: SendOptions) -> str | None:
    if options is NO_OPTIONS or options.flags is None:
        return task.flags_json
    flags = {**task.flags, **flags_of(options.flags)}
    return json.dumps(flags, separators=(",", ":"), sort_keys=True) if flags else None


def _check_key(key: Any) -> None:
    if key is None:
        return
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_LENGTH:
        raise ValueError(f"an idempotency key must be a string of 1 to {MAX_KEY_LENGTH} characters")
    if "\0" in key or key.encode("utf-8", "replace").decode() != key:
        raise ValueError("an idempotency key must not contain NUL or lone surrogates")


def _check_reuse(options: SendOptions) -> None:
    if not isinstance(options.reuse_after_failure, bool):
        raise ValueError(f"{_REUSE} must be True or False")
    if options.reuse_after_failure and options.idempotency_key is None:
        raise ValueError(f"{_REUSE} is about an idempotency key: give idempotency_key= as well")


def enqueue_sha(payload: TaskSendPayload) -> str:
    """SHA-256 over compact JSON with sorted keys, of every field except the fingerprint itself; times are in UTC."""
    shared = {name: getattr(payload, name) for name in (*_NAMES, _REUSE)}
    return sha_with(shared)(payload.args_json, payload.kwargs_json)


def sha_with(shared: Mapping[str, Any]) -> Callable[[str | None, str | None], str]:
    """The fingerprints of payloads that differ only in the two texts of their arguments, which are the first and the
    sixth field in alphabetical order; the rest is encoded once."""
    times = {name: _in_utc(shared[name]) for name in _TIMES}
    between = _json({name: times[name] if name in times else shared[name] for name in _BETWEEN})
    names = sorted((*_BEHIND, _REUSE)) if shared[_REUSE] else _BEHIND
    behind = _json({name: times[name] if name in times else shared[name] for name in names})

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
    except ValueError:  # the text has lone surrogates, which the database will refuse
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
