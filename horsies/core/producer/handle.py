"""What a send returns: the id of the task, and methods to wait for it, inspect it and cancel it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from horsies.core import tracing
from horsies.core.models.tasks import TaskError, TaskInfo, TaskResult
from horsies.core.types.twins import run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.actions import TaskActionResult
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.codec.shapes import ResultCodec
    from horsies.core.models.broker import BrokerResult
    from horsies.core.producer.waiter import Ending

T = TypeVar("T")


class TaskHandle(Generic[T]):
    """A task that was sent, with the type of its result."""

    __slots__ = ("_broker", "_codec", "_final", "task_id")

    def __init__(self, task_id: str, broker: PostgresBroker, codec: ResultCodec | None = None) -> None:
        self.task_id = task_id
        self._broker = broker
        self._codec = codec
        self._final: TaskResult[T, TaskError] | None = None

    async def get_async(self, timeout_ms: int | None = None) -> TaskResult[T, TaskError]:
        """Wait for the result, at most `timeout_ms` milliseconds. It never raises: a failure is an error result."""
        if self._final is not None:
            return self._final
        with tracing.getting("task", self.task_id):
            return self._keep(await self._broker.wait_async(self.task_id, timeout_ms))

    get = run_sync(get_async)

    async def info_async(
        self, *, include_result: bool = False, include_failed_reason: bool = False, include_attempts: bool = False
    ) -> BrokerResult[TaskInfo | None]:
        """The state of the task; `Ok(None)` if its row is gone."""
        return await self._broker.get_task_info_async(
            self.task_id,
            include_result=include_result,
            include_failed_reason=include_failed_reason,
            include_attempts=include_attempts,
        )

    info = run_sync(info_async)

    async def cancel_async(self, *, include_running: bool = False) -> TaskActionResult:
        """Cancel the task unless it has ended. A running task is cancelled only with `include_running`; its code is
        then stopped."""
        return await self._broker.cancel_task_async(self.task_id, include_running=include_running)

    cancel = run_sync(cancel_async)

    def _keep(self, ending: Ending) -> TaskResult[T, TaskError]:
        """The result of an ending. Only the task's own result is final; a wait that failed may be repeated."""
        result, is_final = self._broker.read_ending(self.task_id, ending, self._codec)
        if is_final:
            self._final = result
        return result

    def __repr__(self) -> str:
        return f"TaskHandle(task_id={self.task_id!r})"
