"""Blocking twins of async functions: what they return, what they are called, and that nothing else blocks."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator

import pytest

from horsies import Horsies, TaskHandle, WorkflowHandle, WorkflowSpec, recover_stuck_workflows_sync, start_workflow
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.producer.many import Sends
from horsies.core.producer.reads import Reads
from horsies.core.recovery.utils import WorkerUtils
from horsies.core.scheduler.runtime import Schedules
from horsies.core.task_decorator import TaskFunction
from horsies.core.types.twins import is_blocking, pause, run_sync
from tests.each import each

CLASSES = (
    Horsies,
    TaskFunction,
    Sends,
    TaskHandle,
    WorkflowSpec,
    WorkflowHandle,
    Schedules,
    WorkerUtils,
    Reads,
    PostgresBroker,
)


async def add_async(a: int, b: int = 1) -> tuple[int, bool]:
    """The sum."""
    await pause(0)
    return a + b, is_blocking()


add = run_sync(add_async)


async def fail() -> None:
    raise LookupError("as it is")


async def wait_for_a_turn() -> None:
    await asyncio.sleep(0)


def test_a_twin_returns_and_raises_what_the_function_does() -> None:
    assert add(2, b=3) == (5, True)
    with pytest.raises(LookupError, match="as it is"):
        run_sync(fail)()


async def test_a_twin_blocks_inside_a_running_loop_and_the_function_does_not() -> None:
    assert add(2) == (3, True)
    assert await add_async(2) == (3, False)


def test_nothing_blocks_any_more_when_the_twin_has_ended() -> None:
    with pytest.raises(LookupError):
        run_sync(fail)()
    assert not is_blocking()


def test_a_loop_that_is_run_inside_a_twin_does_not_block() -> None:
    async def nested() -> tuple[tuple[int, bool], tuple[int, bool], bool]:
        return asyncio.run(add_async(1)), add(1), is_blocking()  # as code of the user's may do it

    assert run_sync(nested)() == ((2, False), (2, True), True)


def test_another_thread_does_not_block() -> None:
    seen: list[bool] = []

    async def ask_elsewhere() -> None:
        thread = threading.Thread(target=lambda: seen.append(is_blocking()))
        thread.start()
        thread.join()

    run_sync(ask_elsewhere)()
    assert seen == [False]


def test_what_cannot_block_is_a_mistake_and_no_wait_without_end() -> None:
    with pytest.raises(RuntimeError, match="wait_for_a_turn_sync"):
        run_sync(wait_for_a_turn)()
    assert not is_blocking()


def test_a_twin_has_the_name_signature_and_words_of_its_function() -> None:
    assert (add.__name__, add.__doc__) == ("add", "The sum.")
    assert inspect.signature(add) == inspect.signature(add_async)
    assert not inspect.iscoroutinefunction(add)
    assert recover_stuck_workflows_sync.__name__ == "recover_stuck_workflows_sync"
    assert start_workflow.__name__ == "start_workflow"


def _twins() -> Iterator[tuple[type, str, str]]:
    for owner in CLASSES:
        for name in vars(owner):
            if name.endswith("_async") and not name.startswith("_"):
                yield owner, name.removesuffix("_async"), name
            elif name.endswith("_sync"):
                yield owner, name, name.removesuffix("_sync")


TWINS = list(_twins())


@each(("owner", "blocking", "awaiting"), TWINS)
def test_every_public_method_that_awaits_has_a_twin_that_blocks(owner: type, blocking: str, awaiting: str) -> None:
    sync, async_ = getattr(owner, blocking), getattr(owner, awaiting)
    if inspect.isasyncgenfunction(async_):  # a loop over changes; it cannot be made of the other one
        assert inspect.isgeneratorfunction(sync)
        assert inspect.signature(sync).parameters == inspect.signature(async_).parameters
        return
    assert inspect.iscoroutinefunction(async_) and not inspect.iscoroutinefunction(sync)
    assert inspect.signature(sync) == inspect.signature(async_)
    assert sync.__name__ == blocking
    assert sync.__qualname__ == f"{owner.__name__}.{blocking}"
    assert inspect.getdoc(sync) == inspect.getdoc(async_)


def test_all_of_them_were_found() -> None:
    assert {owner for owner, _, _ in TWINS} == set(CLASSES)
    assert len(TWINS) > 55
