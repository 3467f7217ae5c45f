"""An app with tasks of every shape that nodes are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Horsies,
    MultipleValidationErrors,
    QueueMode,
    RetryPolicy,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowMeta,
    WorkflowValidationError,
)

URL = "postgresql://u:p@h/d"
APP = Horsies(
    AppConfig.for_database_url(
        URL,
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[CustomQueueConfig(name="fast", priority=5), CustomQueueConfig(name="slow", priority=50)],
    )
)


@APP.task("give number", queue_name="fast")
def number(x: int = 1) -> TaskResult[int, TaskError]:
    return TaskResult(ok=x)


@APP.task("words", queue_name="fast")
def words() -> TaskResult[list[str], TaskError]:
    return TaskResult(ok=[])


@APP.task("numbers", queue_name="fast")
async def numbers() -> TaskResult[list[int], TaskError]:
    return TaskResult(ok=[])


@APP.task(
    "take",
    queue_name="slow",
    retry_policy=RetryPolicy.fixed([1], auto_retry_for=["BUSY"]),
    flags=["big", "slow"],
)
def take(a: TaskResult[int, TaskError], y: float = 0) -> TaskResult[str, TaskError]:
    return TaskResult(ok="")


@APP.task("maybe", queue_name="fast")
def maybe(a: TaskResult[int, TaskError] | None = None) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@APP.task("plain", queue_name="fast")
def plain(value: int) -> int:
    return value


@APP.task("summed", queue_name="fast")
def summed(values: list[int]) -> int:
    return sum(values)


@APP.task("see", queue_name="fast")
def see(workflow_ctx: WorkflowContext | None = None, k: int = 1) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@APP.task("where", queue_name="fast")
def where(workflow_meta: WorkflowMeta | None = None) -> TaskResult[str, TaskError]:
    return TaskResult(ok="")


@APP.task("only by position", queue_name="fast")
def placed(a: int, /) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a)


@APP.task("anything", queue_name="fast")
def anything(**values: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


@APP.task("loose", queue_name="fast")
def loose(a=None) -> TaskResult[Any, TaskError]:  # type: ignore[no-untyped-def]
    return TaskResult(ok=1)


def codes_of(build: Callable[[], Any]) -> list[str]:
    """The codes of what is wrong, none if nothing is. Also several findings are one `WorkflowValidationError`."""
    try:
        build()
    except WorkflowValidationError as problem:
        errors = problem.report.errors if isinstance(problem, MultipleValidationErrors) else [problem]
    else:
        errors = []
    return [str(error.code) for error in errors]


def workflow(*tasks: Any, **options: Any) -> Any:
    return APP.workflow("w", list(tasks), **{"definition_key": "w", **options})
