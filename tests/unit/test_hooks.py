"""The registry of recovery hooks, what handlers are told and may answer, and how they are asked in the caller's own
process (R-70 to R-77).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import horsies
from horsies import (
    AppConfig,
    FailureReason,
    HookRegistry,
    Horsies,
    Job,
    JobInterrupted,
    JobRecovery,
    JobRecoveryResult,
    TaskStatus,
    WorkerRecovered,
)
from horsies.core.errors import ConfigurationError
from horsies.core.recovery.hooks import InProcess, NoHooks
from tests.each import each
from tests.support import eventually

CRASHED = FailureReason.WORKER_CRASHED
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def job(number: int = 1, **fields: Any) -> Job:
    return Job(f"task-{number}", "charge_card", worker_id="gone", **fields)


async def decided(hooks: HookRegistry, *jobs: Job, handler_s: float = 5.0, within_s: float = 60.0) -> list[Any]:
    asker = InProcess(hooks, handler_s=handler_s)
    return await asker.decide(jobs or [job()], recovering="me", reason=CRASHED, within_s=within_s)


def registry(*handlers: Callable[[JobRecovery], Any]) -> HookRegistry:
    hooks = HookRegistry()
    for handler in handlers:
        hooks.on(JobRecovery, handler)
    return hooks


def always(answer: Any) -> Callable[[JobRecovery], Any]:
    return lambda ctx: answer


# Registration


async def test_r70_plain_and_async_functions_are_registered_by_call_and_as_decorators() -> None:
    hooks, seen = HookRegistry(), list[tuple[str, str]]()

    @hooks.on(JobInterrupted)
    def plain(ctx: JobInterrupted) -> None:
        seen.append(("plain", ctx.job.id))

    @hooks.on(JobInterrupted)
    async def awaited(ctx: JobInterrupted) -> None:
        await asyncio.sleep(0)
        seen.append(("awaited", ctx.job.id))

    async def given(ctx: JobInterrupted) -> None:
        seen.append(("given", ctx.job.id))

    assert hooks.on(JobInterrupted, given) is given
    hooks.on(JobInterrupted, lambda ctx: given(ctx))  # a plain function that returns something to be awaited
    assert (plain.__name__, awaited.__name__) == ("plain", "awaited")  # decorated functions stay what they are
    await InProcess(hooks).interrupted([job()], reason=CRASHED)
    assert [who for who, _ in seen] == ["plain", "awaited", "given", "given"]


async def test_r70_whatever_can_be_called_with_one_argument_is_a_handler() -> None:
    class Policy:
        async def __call__(self, ctx: JobRecovery) -> JobRecoveryResult:
            return JobRecoveryResult.Skip

        def method(self, ctx: JobRecovery, extra: int = 0) -> JobRecoveryResult:
            return JobRecoveryResult.Skip

    def bound(answer: JobRecoveryResult, ctx: JobRecovery) -> JobRecoveryResult:
        return answer

    for handler in (Policy(), Policy().method, functools.partial(bound, JobRecoveryResult.Skip)):
        assert await decided(registry(handler)) == [JobRecoveryResult.Skip]


def test_r70_an_app_has_a_registry_of_its_own_or_is_given_one() -> None:
    config = AppConfig.for_database_url("postgresql://h/d")
    first, second, given = Horsies(config), Horsies(config), HookRegistry()
    first.hooks.on(JobRecovery, always(None))
    assert (first.hooks.has(JobRecovery), second.hooks.has(JobRecovery)) == (True, False)
    assert Horsies(config, hooks=given).hooks is given
    with pytest.raises(ConfigurationError, match="hooks takes a HookRegistry, not list"):
        Horsies(config, hooks=[])  # type: ignore[arg-type]


@each(
    ("handler", "text"),
    [
        ("not a function", "a function of one argument, not 'not a function'"),
        (HookRegistry, "a function of one argument"),
        (lambda: None, "called with one argument"),
        (lambda ctx, other: None, "called with one argument"),
        (lambda ctx: (yield), "is a generator"),
    ],
)
def test_r70_a_handler_that_cannot_work_is_refused_when_it_is_registered(handler: Any, text: str) -> None:
    hooks = HookRegistry()
    for register in (lambda: hooks.on(JobRecovery, handler), lambda: hooks.on(JobRecovery)(handler)):
        with pytest.raises(ConfigurationError, match=text) as refused:
            register()
        assert refused.value.location is not None and refused.value.location.file == __file__
    assert not hooks.has(JobRecovery)


@each("event", ["JobRecovery", JobRecovery(job(), "me", "gone"), int, None])
def test_r70_something_that_is_no_event_is_refused(event: Any) -> None:
    with pytest.raises(ConfigurationError, match="the events are JobRecovery, JobInterrupted, WorkerRecovered"):
        HookRegistry().on(event, always(None))


@each("name", ["WorkerStart", "WorkerShutdown", "JobStart", "JobComplete", "JobFail"])
def test_r77_other_events_are_reserved(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"the event {name} is reserved"):
        HookRegistry().on(name, always(None))  # type: ignore[call-overload]
    assert not hasattr(horsies, name)


# What handlers are told


async def test_r71_the_context_of_a_question() -> None:
    contexts: list[JobRecovery] = []
    await decided(registry(contexts.append), job(7))
    [context] = contexts
    assert context == JobRecovery(job(7), worker_id="me", previous_worker_id="gone", reason=CRASHED)


def test_r71_a_job_is_a_read_only_view_of_plain_values() -> None:
    view = job(args_json='[1, {"a": [2]}]', kwargs_json='{"amount": 3.5}', flags_json='{"slow": true}')
    assert (view.args, view.kwargs, view.flags) == ([1, {"a": [2]}], {"amount": 3.5}, {"slow": True})
    view.args.append(9)
    view.kwargs["amount"] = 0
    assert (view.args, view.kwargs) == ([1, {"a": [2]}], {"amount": 3.5})
    with pytest.raises(FrozenInstanceError):
        view.queue_name = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        view.flags = {}  # type: ignore[misc]


@each("stored", [None, "", "no JSON", "[NaN]", '"text"', "7"])
def test_r71_what_is_not_stored_or_cannot_be_read_is_empty(stored: str | None) -> None:
    view = job(args_json=stored, kwargs_json=stored, flags_json=stored)
    assert (view.args, view.kwargs, view.flags) == ([], {}, {})


@each(("status", "attempts"), [(TaskStatus.RUNNING, 3), (TaskStatus.CLAIMED, 2)])
def test_l38_a_running_attempt_counts(status: TaskStatus, attempts: int) -> None:
    assert job(status=status, retry_count=2).attempts == attempts


# What handlers may answer


@each(
    "answer",
    [
        JobRecoveryResult.Default,
        JobRecoveryResult.FailWithBackoff,
        JobRecoveryResult.Skip,
        JobRecoveryResult.Reschedule(TOMORROW),
        JobRecoveryResult.Reschedule(run_at=TOMORROW, attempts=0),
    ],
)
async def test_r72_an_answer_is_taken_as_it_is(answer: JobRecoveryResult) -> None:
    assert await decided(registry(always(answer))) == [answer]
    assert isinstance(answer, JobRecoveryResult)


async def test_r72_none_counts_as_default() -> None:
    assert await decided(registry(always(None))) == [JobRecoveryResult.Default]
    assert await decided(HookRegistry()) == [JobRecoveryResult.Default]
    assert await NoHooks().decide([job()], recovering="me", reason=CRASHED) == [JobRecoveryResult.Default]


def test_r72_a_rescheduled_time_has_a_zone_and_attempts_are_counted() -> None:
    early = datetime(2026, 1, 1, 3, tzinfo=timezone(timedelta(hours=3)))
    assert JobRecoveryResult.Reschedule(early).run_at == datetime(2026, 1, 1, tzinfo=UTC)
    for wrong in (datetime(2026, 1, 1), "tomorrow", None, 5):
        with pytest.raises(ValueError, match="run_at must be a datetime with a time zone"):
            JobRecoveryResult.Reschedule(wrong)  # type: ignore[arg-type]
    for count in (-1, 10**10, True, 1.5, "2"):
        with pytest.raises(ValueError, match="attempts must be a whole number"):
            JobRecoveryResult.Reschedule(TOMORROW, count)  # type: ignore[arg-type]


def test_r73_reasons() -> None:
    assert {reason.name: reason.value for reason in FailureReason} == {
        "WORKER_CRASHED": "WORKER_CRASHED",
        "SHUTDOWN": "SHUTDOWN",
    }


# How they are asked


async def test_r74_the_first_answer_other_than_default_decides() -> None:
    order: list[str] = []

    def answering(name: str, answer: Any) -> Callable[[JobRecovery], Any]:
        def handler(ctx: JobRecovery) -> Any:
            order.append(name)
            return answer

        return handler

    hooks = registry(
        answering("first", None),
        answering("second", JobRecoveryResult.Default),
        answering("third", JobRecoveryResult.FailWithBackoff),
        answering("fourth", JobRecoveryResult.Skip),
    )
    assert await decided(hooks) == [JobRecoveryResult.FailWithBackoff]
    assert order == ["first", "second", "third"]


def raises(ctx: JobRecovery) -> None:
    raise RuntimeError("no connection to the shop")


def exits(ctx: JobRecovery) -> None:
    sys.exit(3)


def stops(ctx: JobRecovery) -> None:
    raise StopIteration


async def awaits_and_raises(ctx: JobRecovery) -> None:
    await asyncio.sleep(0)
    raise LookupError("unknown customer")


async def awaits_and_exits(ctx: JobRecovery) -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def cancels_itself(ctx: JobRecovery) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def cancels_itself_in_the_end(ctx: JobRecovery) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


def reschedules_wrongly(ctx: JobRecovery) -> JobRecoveryResult:
    return JobRecoveryResult.Reschedule(run_at=datetime(2026, 1, 1))


BROKEN = [raises, exits, stops, awaits_and_raises, awaits_and_exits, cancels_itself]
BROKEN += [cancels_itself_in_the_end, reschedules_wrongly]
NONSENSE = [True, "skip", 0, JobRecoveryResult, JobRecoveryResult.Reschedule, JobRecoveryResult("Default"), object()]


@pytest.mark.parametrize("handler", [*BROKEN, *map(always, NONSENSE)])
async def test_r74_a_broken_handler_means_skip_and_is_logged_with_the_task(
    handler: Callable[[JobRecovery], Any], caplog: pytest.LogCaptureFixture
) -> None:
    hooks = registry(handler, always(JobRecoveryResult.Default))
    with caplog.at_level(logging.ERROR, "horsies.recovery"):
        assert await decided(hooks, job(1), job(2)) == [JobRecoveryResult.Skip] * 2
    assert [record.horsies["task_id"] for record in caplog.records] == ["task-1", "task-2"]  # type: ignore[attr-defined]
    assert all(handler.__qualname__ in record.getMessage() for record in caplog.records)


async def waits(ctx: JobRecovery) -> None:
    await asyncio.sleep(60)


def blocks(ctx: JobRecovery) -> None:
    threading.Event().wait(60)


async def blocks_though_async(ctx: JobRecovery) -> None:
    threading.Event().wait(60)


async def will_not_end(ctx: JobRecovery) -> None:
    for _ in range(15):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("handler", [waits, blocks, blocks_though_async, will_not_end])
async def test_r74_a_handler_that_takes_too_long_means_skip(
    handler: Callable[[JobRecovery], Any], caplog: pytest.LogCaptureFixture
) -> None:
    def quick(ctx: JobRecovery) -> JobRecoveryResult | None:
        return JobRecoveryResult.FailWithBackoff if ctx.job.id == "task-2" else None

    with caplog.at_level(logging.ERROR, "horsies.recovery"):
        answers = await decided(registry(quick, handler), job(1), job(2), handler_s=0.1)
    assert answers == [JobRecoveryResult.Skip, JobRecoveryResult.FailWithBackoff]
    assert "took longer than 0.1 s" in caplog.text and handler.__qualname__ in caplog.text
    assert [record.horsies["task_id"] for record in caplog.records] == ["task-1"]  # type: ignore[attr-defined]


async def test_r74_a_handler_in_the_caller_s_process_does_not_hold_up_its_event_loop() -> None:
    released = threading.Event()

    def blocks_until_released(ctx: JobRecovery) -> JobRecoveryResult:
        assert released.wait(10)
        return JobRecoveryResult.FailWithBackoff

    async def blocks_though_async(ctx: JobRecovery) -> JobRecoveryResult:
        return blocks_until_released(ctx)

    for handler in (blocks_until_released, blocks_though_async):
        released.clear()
        asking = asyncio.create_task(decided(registry(handler)))
        await asyncio.sleep(0.05)
        released.set()  # which this loop could not do if the handler had it
        assert await asking == [JobRecoveryResult.FailWithBackoff]


async def test_r74_handlers_share_a_loop_that_is_not_the_caller_s() -> None:
    """What one of them keeps open between calls, another can use, and no handler waits for itself."""
    loops: set[object] = set()

    async def policy(ctx: JobRecovery) -> None:
        loops.add(asyncio.get_running_loop())

    await decided(registry(policy, policy), job(1), job(2))
    assert len(loops) == 1 and asyncio.get_running_loop() not in loops


async def test_r74_a_handler_that_ends_the_thread_of_the_others_costs_only_its_own_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def policy(ctx: JobRecovery) -> JobRecoveryResult:
        if ctx.job.id == "task-1":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
            await asyncio.sleep(5)
        return JobRecoveryResult.FailWithBackoff

    with caplog.at_level(logging.ERROR, "horsies.recovery"):
        assert await decided(registry(policy), job(1), job(2)) == [
            JobRecoveryResult.Skip,
            JobRecoveryResult.FailWithBackoff,
        ]


async def test_r74_when_the_time_of_a_sweep_is_over_the_rest_waits() -> None:
    async def dawdles(ctx: JobRecovery) -> JobRecoveryResult:
        await asyncio.sleep(0.2)
        return JobRecoveryResult.FailWithBackoff

    answers = await decided(registry(dawdles), *map(job, range(4)), within_s=0.1)
    assert answers == [JobRecoveryResult.FailWithBackoff, None, None, None]


async def test_r74_who_stops_asking_stops_the_handler() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def dawdles(ctx: JobRecovery) -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    asking = asyncio.create_task(decided(registry(dawdles), handler_s=60))
    await eventually(begun.is_set)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await eventually(ended.is_set)


# What they hear of


async def test_r75_the_contexts_of_news() -> None:
    hooks, heard = HookRegistry(), list[Any]()
    hooks.on(JobInterrupted, heard.append)
    hooks.on(WorkerRecovered, heard.append)
    asker = InProcess(hooks)
    await asker.interrupted([job(1), job(2)], reason=CRASHED)
    await asker.recovered(recovering="me", dead=["z", "a"], jobs_recovered=2)
    assert heard == [
        JobInterrupted(job(1), worker_id="gone", reason=CRASHED),
        JobInterrupted(job(2), worker_id="gone", reason=CRASHED),
        WorkerRecovered("me", dead_worker_ids=["a", "z"], jobs_recovered=2),
    ]
    assert [asker.has(event) for event in (JobRecovery, JobInterrupted, WorkerRecovered)] == [False, True, True]


@pytest.mark.parametrize("broken", [raises, exits, awaits_and_raises, waits])
async def test_r76_all_observers_hear_of_it_whatever_the_others_do(
    broken: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    hooks, heard = HookRegistry(), list[Any]()
    hooks.on(JobInterrupted, broken)
    hooks.on(JobInterrupted, heard.append)
    hooks.on(WorkerRecovered, broken)
    hooks.on(WorkerRecovered, heard.append)
    asker = InProcess(hooks, handler_s=0.1 if broken is waits else 5)
    with caplog.at_level(logging.ERROR, "horsies.recovery"):
        await asker.interrupted([job()], reason=CRASHED)
        await asker.recovered(recovering="me", dead=["gone"], jobs_recovered=1)
    assert [type(context) for context in heard] == [JobInterrupted, WorkerRecovered]
    first, second = caplog.records
    assert first.horsies == {"task_id": "task-1", "task": "charge_card"}  # type: ignore[attr-defined]
    assert "the JobInterrupted hook" in first.getMessage() and "the WorkerRecovered hook" in second.getMessage()
