"""Hooks of the app around every task (X-05): which are refused when they are registered, and what is said about one
that is found wrong when a task runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any

import pytest

from horsies import AppConfig, Horsies
from horsies.core.errors import ConfigurationError
from horsies.core.tasks import context, execute


@pytest.fixture
def app() -> Horsies:
    app = Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))
    app.task("one")(one)
    app.task("one_async")(one_async)
    return app


def one() -> int:
    return 1


async def one_async() -> int:
    return 1


def run(app: Horsies, name: str) -> str:
    task: Any = app.tasks[name]
    this = context.Run(task, context.packed("id", 1, 1, "default"))
    if task.is_async:
        return asyncio.run(execute.run_async(task, None, None, this)).result
    return copy_context().run(_begin_and_run, task, this).result


def _begin_and_run(task: Any, this: context.Run) -> execute.Report:
    context.begin(this)
    return execute.run(task, None, None, this)


class Touchy:
    """Fails on every look at it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class YieldsWhenCalled:
    def __call__(self, ctx: Any) -> Iterator[None]:
        yield


def returns_nothing(ctx: Any) -> None:
    pass


def returns_a_number(ctx: Any) -> int:
    return 5


def returns_something_touchy(ctx: Any) -> Touchy:
    return Touchy()


def returns_a_coroutine(ctx: Any) -> Any:
    return one_async()


@pytest.mark.parametrize("name", ["one", "one_async"])
@pytest.mark.parametrize(
    ("hook", "returned"),
    [
        (returns_nothing, "NoneType"),
        (returns_a_number, "int"),
        (returns_something_touchy, "Touchy"),
        (returns_a_coroutine, "coroutine"),
        (YieldsWhenCalled(), "generator"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_x05_a_hook_that_returns_no_context_manager_is_told_and_the_result_kept(
    app: Horsies, caplog: pytest.LogCaptureFixture, hook: Callable[..., Any], returned: str, name: str
) -> None:
    app.around_task(hook)
    assert run(app, name) == '{"ok":1}'
    [record] = caplog.records
    said = record.getMessage()
    assert record.levelno == logging.ERROR and record.name == "horsies.hooks"
    assert getattr(hook, "__qualname__", "YieldsWhenCalled") in said and f"returned {returned}" in said
    assert "one `yield`" in said and "context manager" in said


def test_x05_hooks_for_async_tasks_are_left_out_elsewhere_without_a_word(
    app: Horsies, caplog: pytest.LogCaptureFixture
) -> None:
    entered: list[str] = []

    @app.around_task
    async def yields(ctx: Any) -> AsyncIterator[None]:
        entered.append("async")
        yield

    @app.around_task
    @asynccontextmanager
    async def manages(ctx: Any) -> AsyncIterator[None]:
        entered.append("async manager")
        yield

    @app.around_task
    @contextmanager
    def everywhere(ctx: Any) -> Iterator[None]:
        entered.append("manager")
        yield

    assert run(app, "one") == '{"ok":1}' and entered == ["manager"]
    assert run(app, "one_async") == '{"ok":1}' and entered[1:] == ["async", "async manager", "manager"]
    assert not caplog.records


def test_x05_a_hook_that_raises_is_told_once(app: Horsies, caplog: pytest.LogCaptureFixture) -> None:
    @app.around_task
    def broken(ctx: Any) -> Any:
        raise LookupError("no tenant")

    assert run(app, "one") == run(app, "one_async") == '{"ok":1}'
    assert [record.getMessage().partition(" raised")[2] for record in caplog.records] == [
        "; the task goes on without it"
    ] * 2


@pytest.fixture
def order(app: Horsies) -> list[str]:
    """What happens, in its order, with a hook of each kind and what a framework has around all of them."""
    happened: list[str] = []

    def around(name: str) -> Callable[[Any], Iterator[None]]:
        def manager(ctx: Any) -> Iterator[None]:
            happened.append(f"{name} begins")
            try:
                yield
            except LookupError:
                happened.append(f"{name} sees the error")
            finally:
                happened.append(f"{name} ends")

        return manager

    app.around_task(around("around"))
    app.before_task(lambda ctx: happened.append("before"))
    app.after_task(lambda ctx, result: happened.append("after"))
    app.on_failure(lambda ctx, error: happened.append("failed"))
    app.task_hooks.add_outermost(around("framework"))
    return happened


def lost() -> int:
    raise LookupError


async def lost_async() -> int:
    raise LookupError


@pytest.mark.parametrize("fn", [lost, lost_async])
def test_x05_what_a_framework_needs_is_around_the_hooks_too(
    app: Horsies, order: list[str], fn: Callable[[], Any]
) -> None:
    app.task("lost")(fn)
    run(app, "lost")
    assert order == [
        "framework begins", "before", "around begins", "around sees the error", "around ends", "after", "failed",
        "framework sees the error", "framework ends",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["one", "one_async"])
@pytest.mark.parametrize("when", ["before_task", "after_task"])
def test_x05_what_a_framework_needs_is_left_when_a_hook_is_stopped(
    app: Horsies, order: list[str], name: str, when: str
) -> None:
    def is_stopped(ctx: Any, *_: Any) -> None:
        raise context.StopTask

    getattr(app, when)(is_stopped)
    if when == "before_task":
        with pytest.raises(context.StopTask):
            run(app, name)
    else:
        assert run(app, name) == '{"ok":1}'
    assert (order[0], order[-1]) == ("framework begins", "framework ends")
    assert "failed" not in order and ("around begins" in order) is (when == "after_task")


async def awaited(ctx: Any) -> None:
    pass


def generator(ctx: Any) -> Iterator[None]:
    yield


async def async_generator(ctx: Any) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("register", "hook", "says", "write"),
    [
        ("around_task", awaited, "awaited has no `yield`", "yield"),
        ("before_task", generator, "generator has a `yield`", "@app.around_task"),
        ("after_task", generator, "generator has a `yield`", "@app.around_task"),
        ("on_failure", async_generator, "async_generator has a `yield`", "@app.around_task"),
        ("before_task", 5, "takes a function, not int", "def"),
    ],
)
def test_x05_a_hook_that_would_never_run_is_refused(
    app: Horsies, register: str, hook: Any, says: str, write: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        getattr(app, register)(hook)
    error = refused.value
    assert error.code == "HRS-214" and f"app.{register}" in error.message and says in error.message
    assert write in (error.help_text or "") and error.location is not None and error.location.file == __file__
    assert not app.task_hooks.exist
