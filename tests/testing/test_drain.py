"""Draining a database in the process of the test: real rows, the statements of a worker, and no worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from horsies import (
    CustomQueueConfig,
    Horsies,
    QueueMode,
    RecoveryConfig,
    RetryPolicy,
    SubWorkflowNode,
    TaskContext,
    TaskError,
    TaskFailed,
    TaskResult,
    TaskStatus,
    WorkflowDefinition,
    WorkflowSpec,
    WorkflowStatus,
    from_node,
)
from horsies.testing import DrainIncomplete
from tests.app_support import an_app

TWO_QUEUES = [
    CustomQueueConfig(name="first", priority=1, max_concurrency=1),
    CustomQueueConfig(name="second", priority=2, max_concurrency=5),
]


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with an_app(database_url) as made:
        yield made


def test_x11_drain_runs_what_is_due_in_this_process_and_returns_it_in_order(app: Horsies) -> None:
    ran: list[str] = []

    @app.task("greet")
    def greet(name: str) -> str:
        ran.append(name)
        return f"hello {name}"

    @app.task("crowd")
    async def crowd(names: list[str]) -> int:
        await greet.send_many_async([(name,) for name in names])
        return len(names)

    handle = crowd.send(["ann", "bob"]).unwrap()
    later = greet.schedule(3600, "late").unwrap()
    ended = app.testing.drain()
    assert [(task.task_name, task.status) for task in ended] == [
        ("crowd", TaskStatus.COMPLETED),
        ("greet", TaskStatus.COMPLETED),
        ("greet", TaskStatus.COMPLETED),
    ]
    assert [task.result.unwrap() for task in ended] == [2, "hello ann", "hello bob"]
    assert ran == ["ann", "bob"] and handle.result() == 2
    assert later.info().unwrap().status is TaskStatus.PENDING  # type: ignore[union-attr]
    assert app.testing.drain() == []


async def test_x11_drain_async_runs_on_the_loop_of_the_test(app: Horsies) -> None:
    loops: list[object] = []

    @app.task("where")
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    await where.send_async()
    await app.testing.drain_async()
    assert loops == [asyncio.get_running_loop()]
    where.send()
    assert len(app.testing.drain()) == 1, "the blocking twin works inside a running loop"


def test_x11_l10_l12_the_rows_are_those_of_a_worker(app: Horsies, database_url: str) -> None:
    policy = RetryPolicy.fixed([60], auto_retry_for=["UNHANDLED_EXCEPTION"], jitter=False)

    @app.task("flaky", retry_policy=policy)
    def flaky(ctx: TaskContext) -> int:
        assert ctx.fence.claim_seq == ctx.attempt
        if ctx.attempt == 1:
            raise OSError("not yet")
        return ctx.attempt

    handle = flaky.send().unwrap()
    assert app.testing.drain() == [], "the retry is not due"
    info = handle.info().unwrap()
    assert info is not None and (info.status, info.retry_count) == (TaskStatus.PENDING, 1)
    app.testing.travel(timedelta(seconds=61))
    assert [task.status for task in app.testing.drain()] == [TaskStatus.COMPLETED]
    info = handle.info(include_attempts=True).unwrap()
    assert info is not None and info.attempts is not None
    assert sorted((a.attempt, a.outcome.value, a.will_retry) for a in info.attempts) == [
        (1, "FAILED", True),
        (2, "COMPLETED", False),
    ]
    with psycopg.connect(database_url) as conn:
        left = conn.execute("SELECT count(*) FROM horsies_tasks WHERE claimed OR status <> 'COMPLETED'").fetchone()
    assert left == (0,)


def test_x11_a_failure_can_be_raised_with_what_the_function_raised_as_its_cause(app: Horsies) -> None:
    @app.task("breaks")
    def breaks() -> None:
        raise ZeroDivisionError("by zero")

    @app.task("refuses")
    def refuses() -> TaskResult[int, TaskError]:
        return TaskResult(err=TaskError(error_code="NO", message="no"))

    breaks.send()
    with pytest.raises(TaskFailed, match="by zero") as failed:
        app.testing.drain(raise_on_failure=True)
    cause = failed.value.__cause__
    assert isinstance(cause, ZeroDivisionError) and cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == "breaks"
    breaks.send()
    [ended] = app.testing.drain()
    assert ended.status is TaskStatus.FAILED and ended.result.err_value.code == "UNHANDLED_EXCEPTION"
    refuses.send()
    with pytest.raises(TaskFailed) as failed:
        app.testing.drain(raise_on_failure=True)
    assert failed.value.error.code == "NO" and failed.value.__cause__ is None


def test_x11_until_and_max_tasks_end_it_earlier(app: Horsies) -> None:
    @app.task("count")
    def count(left: int) -> int:
        if left:
            count.send(left - 1)
        return left

    @app.task("other")
    def other() -> None:
        pass

    handle = count.send(5).unwrap()
    assert len(app.testing.drain(max_tasks=2)) == 2
    assert len(app.testing.drain(until=count)) == 1
    assert app.testing.drain(until=handle) == [], "it has ended already"
    assert [task.result.unwrap() for task in app.testing.drain(until=lambda ended: len(ended) == 2)] == [2, 1]
    other.schedule(120)
    with pytest.raises(DrainIncomplete, match=r"the end of a 'other'\n  ended: count COMPLETED\n.* due in 1\d\d s"):
        app.testing.drain(until=other)


def test_x11_drain_runs_workflows_to_their_end(app: Horsies) -> None:
    @app.task("double")
    def double(value: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=2 * value)

    @app.task("add")
    def add(left: TaskResult[int, TaskError], right: TaskResult[int, TaskError]) -> TaskResult[int, TaskError]:
        return TaskResult(ok=left.unwrap() + right.unwrap())

    class Inner(WorkflowDefinition[int]):
        name = "inner"
        definition_key = "testing.inner"

        @classmethod
        def build_with(cls, app: Horsies, value: int) -> WorkflowSpec[int]:
            node = double.node()(value=value)
            return app.workflow("inner", [node], output=node)

    left = double.node()(value=3)
    right = SubWorkflowNode(Inner, kwargs={"value": 4})
    both = add.node(waits_for=[left, right])(left=from_node(left), right=from_node(right))
    spec = app.workflow("sum", [left, right, both], output=both, definition_key="testing.sum")
    handle = spec.start().unwrap()
    ended = app.testing.drain(until=handle)
    assert sorted(task.task_name for task in ended) == ["add", "double", "double"]
    assert all(task.workflow_id is not None for task in ended)
    assert handle.get().unwrap() == 14 and handle.status().unwrap() is WorkflowStatus.COMPLETED


def test_x11_a_paused_or_cancelled_workflow_runs_nothing(app: Horsies) -> None:
    ran: list[int] = []

    @app.task("step")
    def step(number: int) -> int:
        ran.append(number)
        if number == 1:
            handle.pause().unwrap()
        return number

    first = step.node()(number=1)
    second = step.node(waits_for=[first])(number=2)
    spec = app.workflow("line", [first, second], definition_key="testing.line")
    handle = spec.start().unwrap()
    app.testing.drain()
    assert ran == [1] and handle.status().unwrap() is WorkflowStatus.PAUSED
    handle.resume().unwrap()
    app.testing.drain()
    assert ran == [1, 2]
    cancelled = spec.start().unwrap()
    cancelled.cancel().unwrap()
    assert app.testing.drain() == [] and ran == [1, 2]


def test_x11_tasks_past_their_deadline_expire_and_are_returned(app: Horsies) -> None:
    @app.task("soon")
    def soon() -> None:
        raise AssertionError("it must not run")

    handle = soon.with_options(good_until=datetime.now(UTC) + timedelta(hours=1)).send().unwrap()
    app.testing.travel(timedelta(hours=2))
    [ended] = app.testing.drain()
    assert (ended.task_id, ended.status) == (handle.task_id, TaskStatus.EXPIRED)
    assert handle.get().err_value.code == "TASK_EXPIRED"


def test_x11_queues_with_caps_are_drained_in_the_order_of_claims(database_url: str) -> None:
    with an_app(database_url, queue_mode=QueueMode.CUSTOM, custom_queues=TWO_QUEUES, cluster_wide_cap=3) as app:
        order: list[str] = []

        @app.task("a", queue_name="first")
        def a() -> None:
            order.append("a")

        @app.task("b", queue_name="second")
        def b() -> None:
            order.append("b")

        for task in (b, a, b, a):
            task.send()
        app.testing.drain()
        assert order == ["a", "a", "b", "b"]


def test_x11_o31_tasks_of_another_app_are_left_to_it(
    app: Horsies, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task("ours")
    def ours() -> int:
        return 1

    with an_app(database_url) as other:

        @other.task("theirs")
        def theirs() -> int:
            return 2

        node = theirs.node()()
        flow = other.workflow("flow", [node], output=node, definition_key="testing.theirs").start().unwrap()
        first = [handle.task_id for handle in theirs.send_many([()] * 3).unwrap()]
        urgent = theirs.with_options(priority=1).send_or_raise()
        ours.send_or_raise()
        ours.with_options(priority=1).send_or_raise()
        assert [str(task) for task in app.testing.drain()] == ["ours COMPLETED", "ours COMPLETED"]
        assert "left to others, because this app has no such task: 5 'theirs'" in caplog.text
        for task_id in (*first, urgent.task_id):
            info = other.get_broker().get_task_info(task_id, include_attempts=True).unwrap()
            assert info is not None and (info.status, info.attempts) == (TaskStatus.PENDING, [])
        assert app.testing.drain() == [], "it ends, whatever others have left"
        assert [str(task) for task in other.testing.drain()] == ["theirs COMPLETED"] * 5
        assert flow.get().unwrap() == 2


def test_x11_o31_what_a_drain_waits_for_in_vain_is_told_with_what_it_left(app: Horsies) -> None:
    app.get_broker().enqueue("stranger").unwrap()
    with pytest.raises(DrainIncomplete, match=r"\n  left to others, because this app has no such task: 1 'stranger'\n"):
        app.testing.drain(until=lambda ended: len(ended) == 1)


def test_x11_o31_more_tasks_of_others_than_a_look_of_a_worker_reads(app: Horsies, database_url: str) -> None:
    @app.task("ours")
    def ours() -> int:
        return 1

    with an_app(database_url) as other:

        @other.task("theirs")
        def theirs() -> None:
            pass

        theirs.send_many([()] * 1_200).unwrap()
        ours.send_or_raise()
        assert [str(task) for task in app.testing.drain()] == ["ours COMPLETED"]


def test_x11_o31_without_a_grace_a_task_that_nobody_knows_fails_as_in_a_worker(database_url: str) -> None:
    with an_app(database_url, recovery=RecoveryConfig(unknown_task_grace_ms=0)) as app:
        task_id = app.get_broker().enqueue("stranger").unwrap()
        [ended] = app.testing.drain()
        assert (ended.task_id, ended.result.err_value.code) == (task_id, "WORKER_RESOLUTION_ERROR")
