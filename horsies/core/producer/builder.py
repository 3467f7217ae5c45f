"""`task.with_options(...)`: a task with a deadline, an idempotency key, flags or a connection for its sends. It is
immutable and reusable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from horsies.core.models.tasks import TaskSendResult
from horsies.core.producer.handle import TaskHandle
from horsies.core.producer.many import Call, PreparedTask, prepared
from horsies.core.producer.options import Flags, SendOptions, given
from horsies.core.types.twins import run_sync

if TYPE_CHECKING:
    from horsies.core.producer.options import CallerConnection
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
        connection: CallerConnection | _Unset | None = _UNSET,
    ) -> TaskSendOptions[P, T]:
        """A copy with some options changed; None removes an earlier one."""
        given = {
            "good_until": good_until,
            "idempotency_key": idempotency_key,
            "flags": flags,
            "connection": connection,
        }
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not _UNSET}
        return TaskSendOptions(self._task, replace(self.options, **changed))

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task."""
        return await self._task.dispatch(self.options, None, args, kwargs)

    send = run_sync(send_async)

    async def schedule_async(self, delay: int, *args: P.args, **kwargs: P.kwargs) -> TaskSendResult[TaskHandle[T]]:
        """Enqueue the task to run after `delay` seconds."""
        return await self._task.dispatch(self.options, given(delay), args, kwargs)

    schedule = run_sync(schedule_async)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedTask[P, T]:
        """A call with these options, for `send_many`."""
        return prepared(self._task, args, kwargs, self.options)

    async def send_many_async(self, calls: Iterable[Call[P, T]]) -> TaskSendResult[list[TaskHandle[T]]]:
        """Enqueue a task for each call, all or none. Options of a prepared call override these options."""
        return await self._task.dispatch_many(self.options, calls)

    send_many = run_sync(send_many_async)
