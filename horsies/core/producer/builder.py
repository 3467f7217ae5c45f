"""`task.with_options(...)`: a task with a deadline, an idempotency key or flags for its sends; immutable, reusable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from horsies.core.models.tasks import TaskSendResult
from horsies.core.producer.handle import TaskHandle
from horsies.core.producer.options import Flags, SendOptions, given

if TYPE_CHECKING:
    from horsies.core.task_decorator import TaskFunction

P = ParamSpec("P")
T = TypeVar("T")


class _Unset:
    """Not given, which is not the same as None."""


_UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class TaskSendOptions(Generic[P, T]):
    """A task with options for its sends."""

    _task: TaskFunction[P, T]
    options: SendOptions

    def with_options(
        self,
        *,
        good_until: datetime | _Unset | None = _UNSET,
        idempotency_key: str | _Unset | None = _UNSET,
        flags: Flags | _Unset | None = _UNSET,
    ) -> TaskSendOptions[P, T]:
        """A copy with some options changed; None takes an earlier one back."""
        given = {"good_until": good_until, "idempotency_key": idempotency_key, "flags": flags}
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not _UNSET}
        return TaskSendOptions(self._task, replace(self.options, **changed))

    def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task."""
        return self._task.dispatch(self.options, None, args, kwargs)

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task."""
        return await self._task.dispatch_async(self.options, None, args, kwargs)

    def schedule(self, delay: int, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay` seconds."""
        return self._task.dispatch(self.options, given(delay), args, kwargs)

    async def schedule_async(self, delay: int, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay` seconds."""
        return await self._task.dispatch_async(self.options, given(delay), args, kwargs)
