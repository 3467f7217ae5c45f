"""A send that failed is never silent: an `Err` that nobody has looked at is logged when it is thrown away.

Most sends are fire-and-forget, so most failures would be seen by nobody. Whoever asks the result for anything
(`is_err`, `match`, `unwrap`, `error`) knows of the failure, and nothing is logged. Where it cannot be told, as with
`isinstance` alone, the failure is logged. One line for each code in ten seconds, with the number of those that were
left out.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, NoReturn, TypeVar

from horsies.core.models.sending import TaskSendError, TaskSendErrorCode, TaskSendFailed, TaskSendResult
from horsies.core.types import Err

log = logging.getLogger("horsies.send")

PERIOD_S = 10.0  # between two lines about the same code
T = TypeVar("T")
U = TypeVar("U")

_ERROR: Any = Err.__dict__["error"]  # the slot that the property below hides


class FailedSend(Err[TaskSendError]):
    """The `Err` of a send, which knows whether anybody has looked at it."""

    __slots__ = ("_is_seen", "_task_name")

    _is_seen: bool
    _task_name: str

    def __init__(self, error: TaskSendError, task_name: str) -> None:
        _ERROR.__set__(self, error)
        object.__setattr__(self, "_task_name", task_name)
        object.__setattr__(self, "_is_seen", False)

    @property
    def error(self) -> TaskSendError:
        self._see()
        found: TaskSendError = _ERROR.__get__(self)
        return found

    def is_ok(self) -> Literal[False]:
        self._see()
        return False

    def is_err(self) -> Literal[True]:
        self._see()
        return True

    def ok(self) -> None:
        self._see()

    def unwrap(self) -> NoReturn:
        raise TaskSendFailed(self.error) from self.error.exception

    def expect(self, msg: str) -> NoReturn:
        raise TaskSendFailed(self.error, msg) from self.error.exception

    def unwrap_or(self, default: U) -> U:
        self._see()
        return default

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Err) and bool(self.error == other.error)

    def __hash__(self) -> int:
        return hash((self.error,))

    def __repr__(self) -> str:
        return f"Err(error={self.error!r})"

    def __reduce__(self) -> tuple[type[Err[TaskSendError]], tuple[TaskSendError]]:
        return Err, (self.error,)

    def _see(self) -> None:
        object.__setattr__(self, "_is_seen", True)

    def __del__(self) -> None:
        with suppress(Exception):  # the program may be ending
            if not self._is_seen:
                _LINES.tell(self._task_name, _ERROR.__get__(self))


class _Lines:
    """What was logged about each code. Reentrant: whatever runs here may make the collector throw away another one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._told_at: dict[TaskSendErrorCode, float] = {}
        self._untold: dict[TaskSendErrorCode, int] = {}

    def tell(self, task_name: str, error: TaskSendError) -> None:
        now = monotonic()
        with self._lock:
            told_at = self._told_at.get(error.code)
            if told_at is not None and now - told_at < PERIOD_S:
                self._untold[error.code] = self._untold.get(error.code, 0) + 1
                return
            self._told_at[error.code] = now
            others = self._untold.pop(error.code, 0)
        reason = error.message.removeprefix(f"task {task_name!r}: ")
        more = f" ({others} more with this code since the last line)" if others else ""
        log.warning("a send of task %s failed, and nobody looked: %s: %s%s", task_name, error.code.value, reason, more)


_LINES = _Lines()


def watched(task_name: str, result: TaskSendResult[T]) -> TaskSendResult[T]:
    """The result of a send, which is logged if it is a failure that nobody looks at. What is suppressed while modules
    are imported is meant to have no effect (T-47)."""
    if not isinstance(result, Err) or result.error.code is TaskSendErrorCode.SEND_SUPPRESSED:
        return result
    return FailedSend(result.error, task_name)
