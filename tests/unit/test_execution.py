"""Running a task's function (T-23, T-26, T-27, T-61, T-85 to T-88, T-106)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from horsies import AppConfig, Horsies, PayloadPolicy, TaskError, TaskResult
from horsies.core.codec.serde import task_result_from_json
from horsies.core.tasks import execute
from horsies.core.tasks.execute import Report, StopTask
from tests.each import each


class AppFault(Exception):
    pass


class TaskFault(Exception):
    pass


class SubFault(TaskFault):
    pass


APP = Horsies(
    AppConfig.for_database_url(
        "postgresql://u:p@h/d",
        exception_mapper={AppFault: "APP_FAULT", TaskFault: "NOT_THIS_ONE"},
        default_unhandled_error_code="APP_DEFAULT",
    )
)


@pytest.fixture(autouse=True)
def _unlogged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these exceptions say cannot be part of a test report."""
    monkeypatch.setattr(execute.log, "disabled", True)


def task_of(body: Callable[[], Any], ok_type: Any = int, **options: Any) -> Any:
    def fn() -> TaskResult[int, TaskError]:
        return body()  # type: ignore[no-any-return]

    fn.__annotations__["return"] = TaskResult[ok_type, TaskError]
    APP._tasks.pop("t", None)
    return APP.task("t", **options)(fn)


def raising(exc: BaseException) -> Callable[[], Any]:
    def body() -> Any:
        raise exc

    return body


def run(body: Callable[[], Any], ok_type: Any = int, **options: Any) -> Report:
    return execute.run(task_of(body, ok_type, **options), None, None)


def error_of(report: Report) -> TaskError:
    error = task_result_from_json(report.result).unwrap().err_value
    assert not report.ok and report.error_code == error.code and report.error_message == error.message
    return error


def test_t27_an_ok_result_completes() -> None:
    assert run(lambda: TaskResult(ok=3)) == Report(True, '{"ok":3}', None, None)


def test_t27_a_returned_error_fails_with_its_own_code() -> None:
    error = error_of(run(lambda: TaskResult(err=TaskError(error_code="NO_STOCK", message="none", data={"left": 0}))))
    assert (error.error_code, error.message, error.data) == ("NO_STOCK", "none", {"left": 0})


def test_t27_an_error_may_have_no_code() -> None:
    assert run(lambda: TaskResult(err=TaskError())).error_code is None


@each("value", ["5", None, 1.5, True, [1]])
def test_t26_a_value_of_another_type(value: Any) -> None:
    error = error_of(run(lambda: TaskResult(ok=value)))
    assert error.code == "RETURN_TYPE_MISMATCH" and "'t'" in (error.message or "")


class NotATaskError(BaseModel):
    pass


@each("returned", [None, 5, {"ok": 1}, TaskError(), TaskResult(err="text")])
def test_t26_no_task_result(returned: Any) -> None:
    assert error_of(run(lambda: returned)).code == "TASK_EXCEPTION"


def test_t26_a_forgotten_await() -> None:
    async def later() -> None: ...

    assert error_of(run(later)).code == "TASK_EXCEPTION"


def test_t86_the_nearest_class_wins_in_the_tasks_mapper_before_the_apps() -> None:
    own: dict[str, Any] = {"exception_mapper": {TaskFault: "TASK_FAULT"}}
    assert error_of(run(raising(TaskFault()), **own)).code == "TASK_FAULT"
    assert error_of(run(raising(AppFault()), **own)).code == "APP_FAULT"
    assert error_of(run(raising(SubFault()), **own)).code == "TASK_FAULT"
    assert error_of(run(raising(KeyError()), **own)).code == "APP_DEFAULT"
    own["default_unhandled_error_code"] = "TASK_DEFAULT"
    assert error_of(run(raising(KeyError()), **own)).code == "TASK_DEFAULT"
    assert error_of(run(raising(AppFault()), **own)).code == "APP_FAULT"
    own["exception_mapper"] = {Exception: "ANY", SubFault: "SUB_FAULT"}
    assert error_of(run(raising(SubFault()), **own)).code == "SUB_FAULT"
    assert error_of(run(raising(AppFault()), **own)).code == "ANY", "a base class of the task's own mapper goes first"
    assert error_of(run(raising(SystemExit()), **own)).code == "TASK_DEFAULT"


def test_t86_the_mapper_is_not_asked_about_returned_errors() -> None:
    error = error_of(run(lambda: TaskResult(err=TaskError(error_code="X", exception=AppFault("a")))))  # type: ignore[arg-type]
    assert error.code == "X"


def test_t87_the_error_of_an_exception() -> None:
    error = error_of(run(raising(AppFault("it broke"))))
    assert error.message == "task 't' raised AppFault: it broke"
    assert error.exception is not None and set(error.exception) == {"type", "module", "message", "traceback"}
    assert (error.exception["type"], error.exception["message"]) == ("AppFault", "it broke")
    assert "raise exc" in error.exception["traceback"] and "core/tasks/execute.py" not in error.exception["traceback"]


def test_t87_the_documented_default_is_the_built_in_code() -> None:
    app = Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))

    @app.task("t")
    def fn() -> TaskResult[int, TaskError]:
        raise ValueError

    assert '"__builtin_task_code__":"UNHANDLED_EXCEPTION"' in execute.run(fn, None, None).result


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@each(
    "exc",
    [
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException("base"),
        RecursionError(),
        MemoryError(),
        asyncio.CancelledError(),
        Silent(),
        ValueError("\ud800\0"),
        ValueError("x" * 1_000_000),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_t88_any_exception_is_an_error_of_the_task(exc: BaseException) -> None:
    report = run(raising(exc))
    assert error_of(report).code == "APP_DEFAULT"
    assert len(report.result) < 60_000 and "\0" not in (report.error_message or "")
    (report.result + (report.error_message or "")).encode()


def test_t88_a_deep_recursion_is_an_error_of_the_task() -> None:
    def deeper() -> Any:
        return deeper()

    assert error_of(run(deeper)).exception["type"] == "RecursionError"  # type: ignore[index]


def test_stop_task_passes_through() -> None:
    with pytest.raises(StopTask):
        run(raising(StopTask()))


@each(
    ("ok_type", "value"),
    [(float, math.nan), (str, "\ud800"), (dict[str, Any], {"a": math.inf}), (Callable[[], int], print)],
)
def test_t106_a_result_that_cannot_be_written(ok_type: Any, value: Any) -> None:
    assert error_of(run(lambda: TaskResult(ok=value), ok_type)).code == "WORKER_SERIALIZATION_ERROR"


class Opaque:
    pass


@each(
    ("ok_type", "value"),
    [
        (Any, Opaque()),
        (object, Opaque()),
        (Any, {"a": [1, {2, 3}]}),
        (dict[str, Any], {"a": Opaque()}),
        (list, [1, Opaque()]),
        (int | dict[str, Any], {"a": Opaque()}),
    ],
)
def test_t70_t106_any_value_is_allowed_but_not_every_value_can_be_written(ok_type: Any, value: Any) -> None:
    task = task_of(lambda: TaskResult(ok=value), ok_type)
    for error in (error_of(execute.run(task, None, None)), task().err_value):
        assert error.code == "WORKER_SERIALIZATION_ERROR", error
        assert "'t'" in (error.message or "") and "Opaque()" not in (error.message or "")


@each(("ok_type", "value"), [(dict[str, Any], [1]), (list, {}), (int | dict[str, Any], "x")])
def test_t26_a_value_of_another_shape_is_still_a_mismatch(ok_type: Any, value: Any) -> None:
    assert error_of(run(lambda: TaskResult(ok=value), ok_type)).code == "RETURN_TYPE_MISMATCH"


def test_t106_an_error_that_cannot_be_written_tells_its_code() -> None:
    error = error_of(run(lambda: TaskResult(err=TaskError(error_code="NO_STOCK", data=object()))))
    assert error.code == "WORKER_SERIALIZATION_ERROR" and "NO_STOCK" in (error.message or "")


@each(("args_json", "kwargs_json"), [("[1", None), ('["x"]', None), (None, None), ("[1]", '{"b":1}'), ("[1,2]", None)])
def test_t106_arguments_that_cannot_be_read(args_json: str | None, kwargs_json: str | None) -> None:
    calls = []

    def fn(a: int) -> TaskResult[int, TaskError]:
        calls.append(a)
        return TaskResult(ok=a)

    APP._tasks.pop("t", None)
    error = error_of(execute.run(APP.task("t")(fn), args_json, kwargs_json))
    assert error.code == "WORKER_SERIALIZATION_ERROR" and "'t'" in (error.message or "") and calls == []


def test_t23_calling_runs_here_with_the_same_wrapper() -> None:
    assert task_of(lambda: TaskResult(ok=3))() == TaskResult(ok=3)
    assert task_of(lambda: TaskResult(ok="x"))().err_value.code == "RETURN_TYPE_MISMATCH"
    assert task_of(lambda: None)().err_value.code == "TASK_EXCEPTION"
    assert task_of(raising(AppFault()))().err_value.code == "APP_FAULT"
    assert task_of(lambda: None)(1, 2, 3).err_value.code == "APP_DEFAULT"


def test_t23_values_that_could_not_be_stored_are_still_returned() -> None:
    assert task_of(lambda: TaskResult(ok=math.inf), float)().ok == math.inf


@pytest.fixture
def doubled() -> Any:
    APP._tasks.pop("t", None)

    @APP.task("t")
    async def fn(a: int) -> TaskResult[int, TaskError]:
        await asyncio.sleep(0)
        if a < 0:
            raise AppFault("negative")
        return TaskResult(ok=2 * a)

    return fn


async def test_t23_async_tasks_are_awaited(doubled: Any) -> None:
    assert await doubled(4) == TaskResult(ok=8)
    assert (await doubled(-1)).err_value.code == "APP_FAULT"


async def test_t22_async_tasks_run_from_stored_arguments(doubled: Any) -> None:
    assert await execute.run_async(doubled, "[4]", None) == Report(True, '{"ok":8}', None, None)
    assert error_of(await execute.run_async(doubled, "[-1]", None)).code == "APP_FAULT"
    assert error_of(await execute.run_async(doubled, "[", None)).code == "WORKER_SERIALIZATION_ERROR"


async def test_t22_cancellation_passes_through() -> None:
    APP._tasks.pop("t", None)
    entered = asyncio.Event()

    @APP.task("t")
    async def fn() -> TaskResult[int, TaskError]:
        entered.set()
        await asyncio.Event().wait()
        return TaskResult(ok=1)

    running = asyncio.create_task(execute.run_async(fn, None, None))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_t17_large_results_only_warn(caplog) -> None:
    app = Horsies(
        AppConfig.for_database_url("postgresql://u:p@h/d", payload=PayloadPolicy(warn_bytes=5, reject_bytes=6))
    )

    @app.task("t")
    def fn() -> TaskResult[str, TaskError]:
        return TaskResult(ok="x" * 100)

    with caplog.at_level(logging.WARNING):
        assert execute.run(fn, None, None).ok and execute.run(fn, None, None).ok
    assert len(caplog.records) == 1 and "result" in caplog.text
