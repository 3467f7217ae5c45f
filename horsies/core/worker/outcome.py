"""What the end of an attempt means for its task: reports, deaths and timeouts become moves. Pure."""

from __future__ import annotations

import signal

from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.lifecycle.moves import Complete, Fail, Move, Requeue, Retry
from horsies.core.lifecycle.recovery import crashed, expired, not_charged
from horsies.core.lifecycle.retry import retry_or_fail
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.models.tasks import BuiltInTaskCode, OperationalErrorCode, OutcomeCode, TaskError, TaskResult
from horsies.core.worker.hand import Held
from horsies.core.worker.wire import Done

MOST_FAILED_STARTS = 10


def of_report(held: Held, done: Done) -> Move:
    """The child has run the function (L-10, L-11, L-12)."""
    if done.ok:
        return Complete(held.claim, done.result)
    return _retry_or_fail(held, Fail(held.claim, done.result, done.error_code, _clean(done.error_message)))


def of_timeout(held: Held) -> Move:
    """The attempt took longer than its `timeout_ms`, and its code has ended (T-30)."""
    message = f"task {held.row.task_name!r} was stopped after its limit of {held.options.timeout_ms} ms"
    return _retry_or_fail(held, _fail(held, OutcomeCode.TASK_TIMEOUT, message))


def of_unreadable_report(held: Held, problem: str) -> Move:
    """The child's reply cannot be used (W-33)."""
    message = f"the reply of the child process cannot be read: {problem}"
    return _retry_or_fail(held, _fail(held, OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message))


def of_refused_row(held: Held, problem: str) -> Move:
    """The database refuses the row for its content, alone in its batch (L-34)."""
    message = f"the database refused the result: {problem}"
    return _fail(held, OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message)


def of_crash(held: Held, worker_id: str, hostname: str, pid: int, end: str) -> Move:
    """The child died while it ran the function: retried if the policy lists WORKER_CRASHED, otherwise failed (R-20,
    W-35)."""
    return _retry_or_fail(held, _crash(held, worker_id, hostname, pid, end))


def of_failed_start(held: Held, worker_id: str, hostname: str, pid: int, end: str) -> Move:
    """The child died when this task was next, before it reported the start: the task returns to the queue, and this is
    counted. A payload that kills every child that reads it must not loop for ever (R-102)."""
    count = held.row.start_failures + 1
    history = f"{count}. child process {pid} of worker {worker_id}: {end}"
    if held.row.exits:
        history = f"{held.row.exits}; {history}"
    if count < MOST_FAILED_STARTS:
        return Requeue(held.claim, reason=sanitize_text(history), failed_start=True)
    reason = f"its child process died before the task started, {count} times in a row: {history}"
    return crashed(held.claim, reason, worker_id, hostname, pid)


def of_forced_shutdown(held: Held, worker_id: str, hostname: str, pid: int, recovery: WorkerRecoveryConfig) -> Move:
    """The worker was told to stop at once (W-52): as a crash, or not counted if the worker has worker recovery."""
    crash = _crash(held, worker_id, hostname, pid, "SHUTDOWN: the worker was stopped before the task had ended")
    if not recovery.enabled:
        return _retry_or_fail(held, crash)
    return not_charged(crash, recovery.recovery_delay.total_seconds())


def of_deadline(held: Held, worker_id: str) -> Move:
    """The deadline passed between claim and start (L-08)."""
    return expired(held.claim, worker_id)


def may_be_the_end(move: Move, moved: bool) -> bool:
    """Whether this may be the end of the task. Also if nothing has moved, because an earlier try may have succeeded
    unnoticed (L-34)."""
    return not isinstance(move, Requeue) and not (moved and isinstance(move, Retry))


def describe_exit(returncode: int) -> str:
    """How a process ended, for people."""
    if returncode >= 0:
        return f"exited with code {returncode}"
    try:
        return f"was killed by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was killed by signal {-returncode}"


def _crash(held: Held, worker_id: str, hostname: str, pid: int, end: str) -> Fail:
    return crashed(held.claim, f"child process {pid} of worker {worker_id}: {end}", worker_id, hostname, pid)


def _fail(held: Held, code: BuiltInTaskCode, message: str) -> Fail:
    message = sanitize_text(message)
    error = TaskError(error_code=code, message=message)
    return Fail(held.claim, serialize_error_payload(TaskResult(err=error)), code.value, message)


def _retry_or_fail(held: Held, fail: Fail) -> Move:
    return retry_or_fail(fail, held.options.retry_policy, held.row.retry_count, held.row.max_retries)


def _clean(text: str | None) -> str | None:
    return None if text is None else sanitize_text(text)
