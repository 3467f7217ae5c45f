"""Inline mode: no database, and yet everything goes the way of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horsies import (
    AppConfig,
    AsyncTaskContext,
    Horsies,
    RetryPolicy,
    TaskContext,
    TaskError,
    TaskResult,
    TaskSendErrorCode,
    TaskStatus,
    current_task,
)

NOWHERE = "postgresql://nobody@localhost:1/none"


@dataclass
class Order:
    number: int
    items: list[str]


@pytest.fixture
def app() -> Horsies:
    """An app whose database does not exist: whoever asks it fails."""
    return Horsies(AppConfig.for_database_url(NOWHERE))


@pytest.fixture
def inline(app: Horsies) -> Iterator[None]:
    with app.testing.inline():
        yield


@pytest.mark.usefixtures("inline")
def test_x11_a_send_runs_at_once_and_its_handle_has_the_result(app: Horsies) -> None:
    @app.task("pack")
    def pack(order: Order) -> list[str]:
        assert isinstance(order, Order), "it was decoded by its type"
        return sorted(order.items)

    handle = pack.send(Order(1, ["b", "a"])).unwrap()
    assert handle.result() == ["a", "b"]
    assert handle.get(timeout_ms=0).unwrap() == ["a", "b"]
    info = handle.info(include_result=True).unwrap()
    assert info is not None and (info.status, info.retry_count) == (TaskStatus.COMPLETED, 0)
    assert app.get_result(handle.task_id).unwrap().unwrap() == ["a", "b"]
    assert handle.cancel().unwrap_err().code == "TASK_NOT_CANCELLABLE"


@pytest.mark.usefixtures("inline")
def test_x11_what_a_worker_would_refuse_is_refused_inline(app: Horsies) -> None:
    @app.task("number")
    def number(value: int) -> int:
        return "no number"  # type: ignore[return-value]

    refused = number.send("1")  # type: ignore[arg-type]
    assert refused.unwrap_err().code is TaskSendErrorCode.VALIDATION_FAILED
    assert number.send(1).unwrap().get().err_value.code == "RETURN_TYPE_MISMATCH"
    assert [sent.arguments for sent in app.testing.sent.tasks] == [{"value": 1}]


@pytest.mark.usefixtures("inline")
def test_x11_retries_follow_the_policy_without_waiting(app: Horsies) -> None:
    attempts: list[int] = []
    policy = RetryPolicy.fixed([3600, 3600], auto_retry_for=["UNHANDLED_EXCEPTION"])

    @app.task("flaky", retry_policy=policy)
    def flaky(ctx: TaskContext, good_at: int) -> int:
        attempts.append(ctx.attempt)
        if ctx.attempt < good_at:
            raise OSError("not yet")
        return ctx.attempt

    assert flaky.send(3).unwrap().result() == 3
    assert attempts == [1, 2, 3]
    failed = flaky.send(4).unwrap()
    assert failed.get().err_value.code == "UNHANDLED_EXCEPTION"
    assert failed.info().unwrap().retry_count == 2  # type: ignore[union-attr]
    assert attempts == [1, 2, 3, 1, 2, 3]


@pytest.mark.usefixtures("inline")
def test_x11_async_tasks_run_for_blocking_callers_too(app: Horsies) -> None:
    @app.task("later")
    async def later(ctx: AsyncTaskContext, value: int) -> int:
        await asyncio.sleep(0)
        assert current_task() is ctx
        return value + 1

    assert later.send(1).unwrap().result() == 2
    assert current_task() is None


@pytest.mark.usefixtures("inline")
async def test_x11_both_kinds_of_tasks_run_for_both_kinds_of_callers(app: Horsies) -> None:
    @app.task("one")
    def one(value: int) -> int:
        return value + 1

    @app.task("two")
    async def two(value: int) -> int:
        nested = (await one.send_async(value)).unwrap()
        return 2 * await nested.result_async()

    assert await (await two.send_async(3)).unwrap().result_async() == 8
    assert two.send(4).unwrap().result() == 10  # inside a running loop
    assert one.send(1).unwrap().result() == 2
    assert [sent.task_name for sent in app.testing.sent.tasks] == ["two", "one", "two", "one", "one"]


@pytest.mark.usefixtures("inline")
def test_x11_many_scheduled_and_keyed_sends(app: Horsies) -> None:
    ran: list[int] = []

    @app.task("note")
    def note(value: int) -> int:
        ran.append(value)
        return value

    assert [handle.result() for handle in note.send_many([(1,), {"value": 2}]).unwrap()] == [1, 2]
    assert note.schedule(timedelta(days=1), 3).unwrap().result() == 3
    due = app.testing.sent.tasks[-1].due_at - datetime.now(UTC)
    assert timedelta(hours=23) < due <= timedelta(days=1)
    keyed = note.with_options(idempotency_key="k")
    first, again = keyed.send(4).unwrap(), keyed.send(4).unwrap()
    assert first.task_id == again.task_id and ran == [1, 2, 3, 4]
    assert keyed.send(5).unwrap_err().code is TaskSendErrorCode.PAYLOAD_MISMATCH
    assert len(note.send_many([(n,) for n in range(5_000)]).unwrap()) == 5_000


@pytest.mark.usefixtures("inline")
def test_x11_hooks_run_and_errors_are_values(app: Horsies) -> None:
    seen: list[Any] = []
    app.before_task(lambda ctx: seen.append(ctx.task_name))
    app.on_failure(lambda ctx, error: seen.append(error.code))

    @app.task("fails")
    def fails() -> TaskResult[int, TaskError]:
        return TaskResult(err=TaskError(error_code="NO_STOCK", message="none left"))

    assert fails.send().unwrap().get().err_value.code == "NO_STOCK"
    assert seen == ["fails", "NO_STOCK"]


@pytest.mark.usefixtures("inline")
def test_x11_what_stops_a_test_is_not_taken_for_a_failure_of_the_task(app: Horsies) -> None:
    @app.task("interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    @app.task("leaves")
    def leaves() -> None:
        raise SystemExit(3)

    with pytest.raises(KeyboardInterrupt):
        interrupted.send()
    assert leaves.send().unwrap().get().is_err()


def test_x11_what_needs_a_database_is_refused_inline_and_says_why(app: Horsies) -> None:
    @app.task("step")
    def step() -> int:
        return 1

    spec = app.workflow("w", [step.node()()], definition_key="w")
    with app.testing.inline():
        started = spec.start()
        assert "no database" in started.unwrap_err().message
        assert "no database" in app.ping_database().unwrap_err().message
        assert "no database" in app.get_broker().enqueue("step").unwrap_err().message
        for method, given in ((app.testing.drain, ()), (app.testing.travel, (timedelta(1),))):
            with pytest.raises(RuntimeError, match="needs a database"):
                method(*given)
    assert "no database" not in app.ping_database().unwrap_err().message


@pytest.mark.usefixtures("inline")
def test_x11_t57a_a_key_is_free_again_after_a_failure(app: Horsies) -> None:
    ran: list[int] = []

    @app.task("sometimes")
    def sometimes(value: int) -> int:
        ran.append(value)
        return 10 // (len(ran) - 1)

    keyed = sometimes.with_options(idempotency_key="k", reuse_after_failure=True)
    first, second, third = (keyed.send(1).unwrap() for _ in range(3))
    assert first.get().is_err() and second.get().is_ok()
    assert first.task_id != second.task_id == third.task_id and ran == [1, 1]
