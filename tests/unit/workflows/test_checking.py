"""What `app.check()` finds about workflows (F-91, F-92, M-20, M-22)."""

from __future__ import annotations

import importlib
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from horsies import AppConfig, Horsies, SubWorkflowNode, TaskError, TaskResult, WorkflowDefinition, WorkflowSpec
from horsies.cli.check import summary
from tests.unit.workflows.sample import URL


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig.for_database_url(URL))


@pytest.fixture
def task(app: Horsies) -> Any:
    @app.task("t")
    def t(x: int = 1) -> TaskResult[int, TaskError]:
        return TaskResult(ok=x)

    return t


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that can be imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def codes(app: Horsies) -> list[str]:
    return [str(error.code) for error in app.check()]


def test_f91_builders_are_noted_and_stay_functions(app: Horsies, task: Any) -> None:
    @app.workflow_builder()
    def one() -> WorkflowSpec[Any]:
        return app.workflow("one", [task.node()()], definition_key="one")

    @app.workflow_builder(cases=[{"size": 1}, {"size": 2}])
    def two(size: int) -> WorkflowSpec[Any]:
        return app.workflow("two", [task.node()() for _ in range(size)], definition_key="two")

    @app.workflow_builder
    def three(size: int = 3) -> WorkflowSpec[Any]:
        return two(size)

    assert len(three().tasks) == 3 and [builder.name.rpartition(".")[2] for builder in app.get_workflow_builders()] == [
        "one",
        "two",
        "three",
    ]
    assert app.check() == []
    assert summary(app) == "1 task, 0 workflows, 3 builders, 0 schedules"


def test_f91_each_case_is_built_with_sends_suppressed(app: Horsies, task: Any) -> None:
    seen: list[Any] = []

    @app.workflow_builder(cases=[{"size": 1}, {"size": 2, "name": "b"}])
    def build(size: int, name: str = "a") -> WorkflowSpec[Any]:
        spec = app.workflow(name, [task.node()() for _ in range(size)], definition_key="k")
        seen.append((size, name, task.send().err_value.code, spec.start().err_value.code))
        return spec

    assert app.check() == []
    assert seen == [
        (1, "a", "SEND_SUPPRESSED", "VALIDATION_FAILED"),
        (2, "b", "SEND_SUPPRESSED", "VALIDATION_FAILED"),
    ]
    assert not app.sends_suppressed


def test_f91_hrs_027_cases_are_missing(app: Horsies) -> None:
    @app.workflow_builder()
    def build(size: int) -> WorkflowSpec[Any]:
        raise AssertionError

    [error] = app.check()
    assert error.code == "HRS-027" and "size" in error.message and str(error.location).startswith(__file__)


@pytest.mark.parametrize("case", [{}, {"size": 1, "more": 2}, {"sise": 1}, 5, [("size", 1)], {1: 2}])
def test_f91_hrs_028_a_case_that_does_not_fit(app: Horsies, task: Any, case: Any) -> None:
    @app.workflow_builder(cases=[{"size": 1}, case])
    def build(size: int) -> WorkflowSpec[Any]:
        return app.workflow("w", [task.node()()], definition_key="k")

    [error] = app.check()
    assert error.code == "HRS-028" and "cases[1]" in error.message


def test_f91_hrs_029_a_builder_that_does_not_build(app: Horsies, task: Any) -> None:
    @app.workflow_builder()
    def raises() -> WorkflowSpec[Any]:
        raise KeyError("gone")

    @app.workflow_builder()
    def returns() -> WorkflowSpec[Any]:
        return 5  # type: ignore[return-value]

    @app.workflow_builder()
    def unsound() -> WorkflowSpec[Any]:
        return app.workflow("w", [task.node()(y=1)], definition_key="k")

    @app.workflow_builder()
    async def later() -> WorkflowSpec[Any]:  # type: ignore[type-var]
        return app.workflow("w", [task.node()()], definition_key="k")

    @app.workflow_builder(cases=[])
    def never() -> WorkflowSpec[Any]:
        raise AssertionError

    errors = app.check()
    assert [error.code for error in errors] == ["HRS-029"] * 4
    assert "KeyError: 'gone'" in errors[0].message and "returned int" in errors[1].message
    assert "HRS-019" in str(errors[2]) and "coroutine" in errors[3].message
    assert str(errors[0].location) != str(app.get_workflow_builders()[0].location), "where it was raised"


MODULE = """
    from __future__ import annotations
    from typing import TYPE_CHECKING
    from horsies import Horsies, TaskError, TaskResult, WorkflowSpec, WorkflowDefinition
    import horsies
    if TYPE_CHECKING:
        from horsies import WorkflowSpec as Unseen
    app = Horsies.current()

    @app.task({name!r})
    def t() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)
"""


def test_f92_hrs_030_functions_that_look_like_builders(app: Horsies, folder: Path) -> None:
    text = (
        MODULE
        + """
    @app.workflow_builder()
    def noted() -> WorkflowSpec[int]:
        return app.workflow("w", [t.node()()], definition_key="k")

    def plain() -> WorkflowSpec: ...
    def generic() -> horsies.WorkflowSpec[int]: ...
    def unresolved(x: Missing) -> WorkflowSpec[int]: ...
    def other() -> int: ...
    def untyped(): ...
    def unseen() -> Unseen: ...
    class Holder:
        def method(self) -> WorkflowSpec: ...
    """
    )
    (folder / "builders_f92.py").write_text(dedent(text.format(name="t")))
    (folder / "imports_f92.py").write_text("from builders_f92 import plain, noted\n")
    app.make_current()
    app.discover_tasks(["builders_f92", "imports_f92"])
    errors = app.check()
    assert [(error.code, error.message.split()[0]) for error in errors] == [
        ("HRS-030", "plain"),
        ("HRS-030", "generic"),
        ("HRS-030", "unresolved"),
    ]
    assert all("builders_f92.py" in str(error.location) for error in errors)


def test_m20_workflows_built_during_import(app: Horsies, folder: Path) -> None:
    (folder / "broken_flow.py").write_text(
        dedent(MODULE.format(name="t") + '\n    app.workflow("w", [t.node()()], on_error="x")\n')
    )
    app.make_current()
    app.discover_tasks(["broken_flow"])
    assert codes(app) == ["HRS-016", "HRS-215"]


def test_m20_f06_two_definitions_with_one_key(app: Horsies, folder: Path) -> None:
    text = (
        MODULE
        + """
    class Flow(WorkflowDefinition[None]):
        name = {name!r}
        definition_key = "checking.same"
        step = t.node()()
    """
    )
    for name in ("one_m20f", "two_m20f"):
        (folder / f"{name}.py").write_text(dedent(text.format(name=name)))
    app.make_current()
    app.discover_tasks(["one_m20f", "two_m20f"])
    [error] = app.check()
    assert error.code == "HRS-017" and "two_m20f" in str(error.location) and "one_m20f" in str(error)


def test_m20_definitions_are_built(app: Horsies, task: Any) -> None:
    other = Horsies(AppConfig.for_database_url(URL))

    class Good(WorkflowDefinition[None]):
        name = "good"
        definition_key = "checking.good"
        step = task.node()()

    class Outer(WorkflowDefinition[None]):
        name = "outer"
        definition_key = "checking.outer"
        step = SubWorkflowNode(Good)

    class Template(WorkflowDefinition[None]):
        @classmethod
        def build_with(cls, app: Any, size: int) -> WorkflowSpec[Any]:  # type: ignore[override]
            raise AssertionError

    assert app.check() == [] and summary(app) == "1 task, 2 workflows, 0 builders, 0 schedules"

    class Keyless(WorkflowDefinition[None]):
        name = "keyless"
        step = task.node()()

    class Wrong(WorkflowDefinition[int]):
        name = "wrong"
        definition_key = "checking.wrong"
        step = task.node()(x="text")

    assert sorted(codes(app)) == ["HRS-016", "HRS-025", "HRS-031"]
    assert other.check() == []
