"""A stop at any moment of a task with hooks: either it was stopped, or it has its result (X-05, T-30)."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from horsies import AppConfig, Horsies, TaskContext, TaskError, TaskResult
from horsies.core.tasks import context, execute, hooks
from horsies.core.tasks.context import Run, RunFacts, StopTask
from horsies.core.tasks.execute import Report
from tests.stop_support import is_stopped_at

FILES = {execute.__file__, hooks.__file__, contextlib.__file__}
FACTS = RunFacts("task", 1, 1, "default", None, None, None, None)


class Stage:
    """An app with hooks that write down when they run."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.app = Horsies(AppConfig.for_database_url("postgresql://localhost/nowhere"))
        for name in ("outer", "inner"):
            self.app.around_task(self._around(name))
        self.app.after_task(self._after)
        self.app.on_failure(self._after)

        @self.app.task("work")
        def work(fails: bool) -> str:
            if fails:
                raise ValueError("the task has failed")
            return "the result"

        self.task = self.app.tasks["work"]

    def _around(self, name: str) -> Any:
        @contextlib.contextmanager
        def around(ctx: TaskContext) -> Iterator[None]:
            self.said.append(f"enter {name}")
            try:
                yield
            finally:
                self.said.append(f"leave {name}")

        return around

    def _after(self, ctx: TaskContext, result: TaskResult[Any, TaskError] | TaskError) -> None:
        self.said.append("after")


def run(stage: Stage, this: Run, *, fails: bool) -> Report | None:
    """What a child does with a sync task; None if it was stopped before its function had ended."""

    def call() -> Report:
        context.begin(this)
        return execute.run(stage.task, None, '{"fails":true}' if fails else '{"fails":false}', this)

    try:
        return contextvars.copy_context().run(call)
    except StopTask:
        return execute.kept(this)


# No signal is handled between making a coroutine and awaiting it.
@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fails", [False, True], ids=["ok", "failed"])
def test_x05_t30_a_stop_at_any_instruction_after_the_function_loses_no_result(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for log in (execute.log, hooks.log):
        monkeypatch.setattr(log, "disabled", True)
    stage = Stage()
    whole = run(stage, Run(stage.task, FACTS), fails=fails)
    assert whole is not None and whole.ok is not fails
    came = set[bool]()
    for instruction in count(1):
        stage.said.clear()
        this, ended, reports = Run(stage.task, FACTS), list[bool](), list[Report | None]()
        was_stopped = is_stopped_at(
            instruction,
            FILES,
            lambda this=this, reports=reports: reports.append(run(stage, this, fails=fails)),  # type: ignore[misc]
            lambda this=this, ended=ended: ended.append(this.outcome is not None),  # type: ignore[misc]
        )
        if not was_stopped:
            break
        [report], [has_ended] = reports, ended
        came.add(has_ended)
        assert (report is not None) is has_ended, (instruction, stage.said)
        if report is not None:
            assert (report.ok, report.error_code) == (whole.ok, whole.error_code)
            entered, left = (sum(one.startswith(word) for one in stage.said) for word in ("enter", "leave"))
            assert left >= entered - 1, (instruction, stage.said)  # only that which began just then
    assert came == {False, True}
