"""The phases of a check: their order, that errors end it and warnings do not, and what that means for who starts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import time
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from horsies import (
    AppConfig,
    DailySchedule,
    Horsies,
    HorsiesError,
    MultipleValidationErrors,
    RetryPolicy,
    ScheduleConfig,
    TaskError,
    TaskResult,
    TaskSchedule,
    WorkflowDefinition,
    WorkflowSpec,
)
from horsies.cli.main import run
from horsies.core.checks import require_sound
from horsies.core.errors import CheckWarning, ValidationReport
from tests.unit.checks.examples import forgetting_modules

NOWHERE = "postgresql://user:s3cr3t@127.0.0.1:9/d"


def schedule(task_name: str = "t", **fields: Any) -> TaskSchedule:
    fields = {"name": "nightly", "pattern": DailySchedule(time=time(3)), **fields}
    return TaskSchedule(task_name=task_name, **fields)


def app_with(*schedules: TaskSchedule, **options: Any) -> Horsies:
    app = Horsies(AppConfig.for_database_url(NOWHERE, schedule=ScheduleConfig(schedules=list(schedules))))

    @app.task("t", **options)
    def t(x: int = 1) -> TaskResult[int, TaskError]:
        return TaskResult(ok=x)

    return app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with forgetting_modules():
        monkeypatch.syspath_prepend(str(tmp_path))
        yield tmp_path


def codes(found: list[HorsiesError]) -> list[str]:
    return [str(error.code) for error in found]


def test_m20_each_phase_comes_after_the_one_before(folder: Path) -> None:
    """An app with a mistake for every phase: each time the first one is mended, the next one is told, and no other."""
    (folder / "broken_m20p.py").write_text("1 / 0\n")
    app = app_with(schedule("unknown"), retry_policy=RetryPolicy.fixed([1], auto_retry_for=["TASK_EXPIRED"]))
    t: Any = app.tasks["t"]
    app.discover_tasks(["broken_m20p"])

    class Flow(WorkflowDefinition[int]):
        name = "flow"
        definition_key = "phases.flow"
        step = t.node()()

    @app.workflow_builder()
    def build(size: int = 0) -> WorkflowSpec[Any]:
        return app.workflow("w", [t.node()()] * size, definition_key="phases.built")

    assert codes(app.check(live=True)) == ["HRS-210", "HRS-025"], "phases 2 and 3 run together"
    (folder / "broken_m20p.py").write_text(
        "from horsies import WorkflowSpec\ndef flow() -> WorkflowSpec: raise ValueError\n"
    )
    Flow.Meta = type("Meta", (), {"output": "step"})  # type: ignore[attr-defined]
    assert codes(app.check(live=True)) == ["HRS-029"]
    build.__defaults__ = (1,)
    app._modules.clear()
    assert codes(app.check(live=True)) == ["HRS-300"]
    assert app.config.schedule is not None
    app.config.schedule.schedules[:] = [schedule()]
    try:
        found = app.check(live=True)
    finally:
        app.get_broker().close()
    assert codes(found) == ["HRS-217", "HRS-211"], "a warning ends nothing"
    assert [error.severity for error in found] == ["warning", "error"]
    assert "s3cr3t" not in str(found[1])
    assert codes(app.check()) == ["HRS-217"]


def test_m20_s04_all_schedules_are_told_together() -> None:
    app = app_with(schedule("unknown", enabled=False), schedule(name="other", kwargs={"y": 1}), schedule(name="sound"))
    assert codes(app.check()) == ["HRS-300", "HRS-205"]


def test_m21_who_starts_is_stopped_by_errors_and_not_by_warnings() -> None:
    doubtful = app_with(retry_policy=RetryPolicy.fixed([1], auto_retry_for=["TASK_EXPIRED"]))
    assert codes(doubtful.check()) == ["HRS-217"]
    require_sound(doubtful)
    with pytest.raises(HorsiesError) as one:
        require_sound(app_with(schedule("unknown")))
    assert one.value.code == "HRS-300"
    with pytest.raises(MultipleValidationErrors) as several:
        require_sound(app_with(schedule("unknown"), schedule(name="other", kwargs={"y": 1})))
    assert codes(several.value.errors) == ["HRS-300", "HRS-205"]
    assert str(several.value).endswith("error: 2 problems in the check")


OWN = """
    from horsies import AppConfig, Horsies, TaskError, TaskResult, WorkflowSpec

    app = Horsies(AppConfig.for_database_url("postgresql://localhost/none"))

    @app.task("t")
    def t() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    def flow() -> WorkflowSpec:
        return app.workflow("flow", [t.node()()], definition_key="own.flow")
"""


def test_f92_m21_a_forgotten_builder_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "own_f92.py"
    file.write_text(dedent(OWN))
    assert run(["check", str(file)]) == 1
    assert capsys.readouterr().err.startswith("warning[HRS-030]: flow returns a WorkflowSpec")
    assert run(["check", str(file), "--allow", "hrs-030"]) == 0
    assert capsys.readouterr().out == "ok: 1 task, 0 workflows, 0 builders, 0 schedules\n"


def test_f92_it_is_told_once_if_the_module_is_discovered_as_well(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "own_twice_f92.py"
    file.write_text(dedent(OWN) + 'app.discover_tasks(["own_twice_f92"])\n')
    assert run(["check", str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("warning[HRS-030]: ") and said.count("HRS-030]") == 1


def test_m20_a_workflow_started_at_import_is_told_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "starts_m20.py"
    file.write_text(dedent(OWN) + "flow().start().unwrap()\n")
    assert run(["check", str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error[HRS-210]: ") and 'if __name__ == "__main__":' in said.rpartition("= help:")[2]


def test_m04_only_codes_can_be_allowed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "nothing", "--allow", "HRS-999"]) == 1
    assert "'--allow'" in capsys.readouterr().err


def test_m30_warnings_are_headed_and_counted_as_such() -> None:
    one, two = CheckWarning("one"), CheckWarning("two")
    assert str(one) == "warning: one"
    assert str(ValidationReport("p", [one, two])).endswith("warning: 2 problems in p")
    assert str(ValidationReport("p", [one, HorsiesError("three")])).endswith("error: 2 problems in p")
