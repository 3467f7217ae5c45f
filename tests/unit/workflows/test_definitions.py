"""Workflows as classes, their keys and their parameters (F-04 to F-06, F-61; HRS-016, 017, 022, 023, 025)."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from horsies import (
    NodeKey,
    OnError,
    SubWorkflowNode,
    SuccessCase,
    SuccessPolicy,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowDefinition,
    WorkflowSpec,
    WorkflowValidationError,
    from_node,
)
from horsies.core.models.workflow import registry
from tests.each import each
from tests.unit.workflows.sample import APP, codes_of, maybe, number, take, words, workflow

if TYPE_CHECKING:
    from horsies import Horsies

T = TypeVar("T")


class Order(BaseModel):
    id: int


class Steps(WorkflowDefinition[str]):
    name = "steps"
    definition_key = "definitions.steps"

    first = number.node()(x=3)
    second = take.node(node_id="own")(a=from_node(first))

    class Meta:
        output = "own"
        on_error = OnError.PAUSE
        success_policy = SuccessPolicy(cases=[SuccessCase(required=["first"])], optional=[NodeKey("own")])


class Sized(WorkflowDefinition[int]):
    name = "sized"
    definition_key = "definitions.sized"

    @classmethod
    def build_with(cls, app: Horsies, size: int, *, order: Order | None = None) -> WorkflowSpec[int]:
        nodes = [number.node()(x=at) for at in range(size)]
        return app.workflow(f"sized {size}", nodes, output=nodes[-1])


class Idle(WorkflowDefinition[None]):
    name = "idle"
    definition_key = "definitions.idle"
    one = number.node()()


def test_f04_nodes_are_the_attributes_in_their_order() -> None:
    spec = Steps.build(APP)
    assert isinstance(spec, WorkflowSpec)
    assert (spec.name, spec.definition_key) == ("steps", "definitions.steps")
    assert [node.node_id for node in spec.tasks] == ["first", "own"]
    assert spec.on_error is OnError.PAUSE and spec.output is spec.tasks[1]
    plan = spec.plan()
    assert plan.nodes[1].dependencies == (0,) and plan.output_index == 1
    assert plan.success_policy == {"cases": [[0]], "optional": [1]}
    assert Idle.build(APP).output is None and Idle.build(APP).plan().success_policy is None


def test_f04_the_attributes_know_their_names() -> None:
    assert Steps.first.key() == NodeKey("first") and Steps.second.key() == NodeKey("own")
    assert Steps.first.index == 0 and Steps.second.waits_for == (Steps.first,)


def test_f04_f07_a_node_that_two_classes_share() -> None:
    shared = number.node()()

    class One(WorkflowDefinition[int]):
        name = "one"
        definition_key = "definitions.share.one"
        left = shared

        class Meta:
            output = shared

    class Two(WorkflowDefinition[None]):
        name = "two"
        definition_key = "definitions.share.two"
        before = words.node()()
        right = shared
        again = Steps.first

    assert One.left.key() == NodeKey("left") and Two.right.key() == NodeKey("right")
    assert Two.again.key() == NodeKey("again") and Steps.first.key() == NodeKey("first")
    assert One.build(APP).plan().output_index == 0 and Two.build(APP).plan().nodes[1].node_id == "right"


def test_f04_definitions_inherit_nodes() -> None:
    class Base(WorkflowDefinition[T], Generic[T]):
        first = number.node()()
        second = words.node()()

    class Derived(Base[int]):
        name = "derived"
        definition_key = "definitions.derived"
        third = maybe.node()(a=from_node(Base.first))
        second = None

        class Meta:
            output = "third"

    spec = Derived.build(APP)
    assert [node.node_id for node in spec.tasks] == ["first", "third"]
    assert spec.plan().nodes[1].dependencies == (0,)
    assert Derived.declared_type() is int


@each(
    ("declared", "output", "accepted"),
    [
        (int, "a", True),
        (float, "a", True),
        (Any, "a", True),
        (int | None, "a", True),
        (str, "a", False),
        (None, "a", False),
        (None, None, True),
        (Any, None, True),
        (int, None, False),
    ],
)
def test_f04_hrs_025_the_output_has_the_declared_type(declared: Any, output: Any, accepted: bool) -> None:
    class Typed(WorkflowDefinition[declared]):
        name = "typed"
        definition_key = "definitions.typed"
        a = number.node()()
        Meta = type("Meta", (), {"output": output})

    assert codes_of(lambda: Typed.build(APP)) == ([] if accepted else ["HRS-025"])


def test_f04_the_type_of_its_result() -> None:
    assert Steps.output_type() is str and Sized.output_type() is int and Idle.output_type() is type(None)
    assert Idle.output_codec().decode('{"ok": null}').ok is None


def test_f04_an_output_that_is_not_there() -> None:
    class Lost(WorkflowDefinition[int]):
        name = "lost"
        definition_key = "definitions.lost"
        a = number.node()()

        class Meta:
            output = "b"

    assert codes_of(lambda: Lost.build(APP)) == ["HRS-011"], "and not that it has none"


def test_f05_build_with_takes_parameters_and_fills_in_the_key() -> None:
    two, three = Sized.build_with(APP, 2), Sized.build_with(APP, size=3, order=Order(id=1))
    assert (two.definition_key, two.name, len(two.tasks)) == ("definitions.sized", "sized 2", 2)
    assert len(three.tasks) == 3 and Sized.build_with(APP, 2) is not two
    assert codes_of(lambda: APP.workflow("outside", [number.node()()])) == ["HRS-016"]


def test_f05_a_key_that_is_given_stays() -> None:
    class Given(WorkflowDefinition[None]):
        name = "given"
        definition_key = "definitions.given"

        @classmethod
        def build_with(cls, app: Any) -> WorkflowSpec[Any]:  # type: ignore[override]
            Idle.build_with(app)
            inner = Sized.build_with(app, 1)
            assert inner.definition_key == "definitions.sized"
            return app.workflow("w", [number.node()()], definition_key="other")  # type: ignore[no-any-return]

    assert Given.build_with(APP).definition_key == "other"


def test_f05_a_subclass_that_inherits_build_with_has_its_own_key() -> None:
    class Bigger(Sized):
        definition_key = "definitions.bigger"

    assert Bigger.build_with(APP, 1).definition_key == "definitions.bigger"
    assert Sized.build_with(APP, 1).definition_key == "definitions.sized"


def test_f05_by_default_there_are_no_parameters() -> None:
    assert Steps.build_with(APP).plan() == Steps.build(APP).plan()
    for args, params in ((1,), {}), ((), {"a": 1}):
        assert codes_of(lambda args=args, params=params: Steps.build_with(APP, *args, **params)) == ["HRS-022"]


def test_f05_hrs_023_what_build_with_must_be() -> None:
    def define(**members: Any) -> Any:
        return type("Wrong", (WorkflowDefinition,), {"name": "w", "definition_key": "definitions.wrong", **members})

    def build_with(cls: Any, app: Any) -> Any:
        return 5

    async def later(cls: Any, app: Any) -> Any:
        return 5

    assert codes_of(lambda: define(build_with=build_with)) == ["HRS-023"]
    assert codes_of(lambda: define(build_with=staticmethod(build_with))) == ["HRS-023"]
    assert codes_of(lambda: define(build_with=classmethod(build_with)).build_with(APP)) == ["HRS-023"]
    assert codes_of(lambda: define(build_with=classmethod(later)).build_with(APP)) == ["HRS-023"]


def test_f05_hrs_023_build_with_that_cannot_be_called_by_name() -> None:
    class NoApp(WorkflowDefinition[None]):
        name = "no app"
        definition_key = "definitions.no_app"

        @classmethod
        def build_with(cls, *, app: Any) -> WorkflowSpec[Any]:  # type: ignore[override]
            raise AssertionError

    class ByPosition(WorkflowDefinition[None]):
        name = "by position"
        definition_key = "definitions.by_position"

        @classmethod
        def build_with(cls, app: Any, size: int, /) -> WorkflowSpec[Any]:  # type: ignore[override]
            raise AssertionError

    class Untellable(WorkflowDefinition[None]):
        name = "untellable"
        definition_key = "definitions.untellable"

        @classmethod
        def build_with(cls, app: Any, thing: type(APP)) -> WorkflowSpec[Any]:  # type: ignore[override, valid-type]
            raise AssertionError

    for definition in (NoApp, ByPosition, Untellable):
        assert codes_of(lambda definition=definition: workflow(SubWorkflowNode(definition))) == ["HRS-023"]


def test_f05_hrs_025_what_build_with_returns_has_the_declared_type() -> None:
    class Promised(WorkflowDefinition[str]):
        name = "promised"
        definition_key = "definitions.promised"

        @classmethod
        def build_with(cls, app: Any, output: bool = True) -> WorkflowSpec[Any]:
            node = number.node()()
            return app.workflow("w", [node], output=node if output else None)  # type: ignore[no-any-return]

    assert codes_of(lambda: Promised.build_with(APP)) == ["HRS-025"]
    assert codes_of(lambda: Promised.build_with(APP, output=False)) == ["HRS-025"]


def test_f06_a_definition_is_registered_when_it_is_defined() -> None:
    assert registry.find("definitions.steps") is Steps
    assert registry.find("definitions.unknown") is None


def test_f06_hrs_017_a_key_belongs_to_one_definition() -> None:
    with pytest.raises(WorkflowValidationError) as raised:

        class Another(WorkflowDefinition[None]):
            name = "another"
            definition_key = "definitions.steps"
            a = number.node()()

    assert raised.value.code == "HRS-017" and str(raised.value.location).startswith(__file__)
    assert "Steps" in str(raised.value)
    with pytest.raises(WorkflowValidationError, match="HRS-017"):

        class Inherits(Steps):
            third = words.node()()

    assert registry.find("definitions.steps") is Steps


def test_f06_the_same_lines_may_run_again() -> None:
    def define() -> Any:
        class Again(WorkflowDefinition[None]):
            name = "again"
            definition_key = "definitions.again"
            a = number.node()()

        return Again

    first, second = define(), define()
    assert registry.find("definitions.again") is second is not first
    del second
    gc.collect()
    assert registry.find("definitions.again") is None, "the registry does not keep classes alive"


def test_f06_hrs_016_a_definition_without_a_key() -> None:
    class Keyless(WorkflowDefinition[None]):
        name = "keyless"
        a = number.node()()

    assert codes_of(lambda: Keyless.build(APP)) == ["HRS-016"]
    assert codes_of(lambda: workflow(SubWorkflowNode(Keyless))) == ["HRS-016"]


def test_f61_hrs_022_parameters_need_a_build_with() -> None:
    a = number.node()()
    assert codes_of(lambda: workflow(SubWorkflowNode(Idle, {"size": 1}))) == ["HRS-022"]
    assert codes_of(lambda: workflow(a, SubWorkflowNode(Idle, {"p": from_node(a)}))) == ["HRS-022"]
    workflow(SubWorkflowNode(Idle), SubWorkflowNode(Sized, {"size": 1}))


class Fed(WorkflowDefinition[None]):
    name = "fed"
    definition_key = "definitions.fed"

    @classmethod
    def build_with(
        cls, app: Any, number: TaskResult[int, TaskError], workflow_ctx: WorkflowContext | None = None
    ) -> WorkflowSpec[Any]:  # type: ignore[override]
        return app.workflow("fed", [words.node()()])  # type: ignore[no-any-return]


def test_f61_parameters_of_a_sub_workflow_are_checked_like_those_of_a_task() -> None:
    a, b = number.node()(), words.node()()
    assert codes_of(lambda: workflow(SubWorkflowNode(Sized, {"size": 1, "y": 1}))) == ["HRS-019"]
    assert codes_of(lambda: workflow(SubWorkflowNode(Sized))) == ["HRS-020"]
    assert codes_of(lambda: workflow(SubWorkflowNode(Sized, {"size": "1"}))) == ["HRS-031"]
    assert codes_of(lambda: workflow(b, SubWorkflowNode(Sized, {"size": from_node(b)}))) == ["HRS-024"]
    plan = workflow(a, SubWorkflowNode(Sized, {"size": from_node(a)})).plan()
    assert plan.nodes[1].forms == {"size": "value"}
    assert codes_of(lambda: workflow(b, SubWorkflowNode(Fed, {"number": from_node(b)}))) == ["HRS-024"]
    assert codes_of(lambda: workflow(a, SubWorkflowNode(Idle, waits_for=[a], workflow_ctx_from=[a]))) == ["HRS-010"]
    assert codes_of(lambda: workflow(a, SubWorkflowNode(Sized, {"size": 1}, waits_for=[a], workflow_ctx_from=[a]))) == [
        "HRS-010"
    ]
    node = SubWorkflowNode(Fed, {"number": from_node(a)}, workflow_ctx_from=[a])
    plan = workflow(a, node).plan().nodes[1]
    assert (plan.node_type, plan.sub_workflow_key, plan.task_name) == ("SUBWORKFLOW", "definitions.fed", "fed")
    assert plan.args_from == {"number": 0} and plan.ctx_from == (0,)
    assert plan.queue_name is plan.priority is plan.good_until is None
    wrong: Any = int
    assert codes_of(lambda: workflow(SubWorkflowNode(wrong))) == ["HRS-215"]


def test_f61_a_definition_inside_of_a_function() -> None:
    class Local(BaseModel):
        id: int

    class Inner(WorkflowDefinition[None]):
        name = "inner"
        definition_key = "definitions.inner"

        @classmethod
        def build_with(cls, app: Horsies, thing: Local) -> WorkflowSpec[Any]:  # type: ignore[override]
            return app.workflow("inner", [number.node()(x=thing.id)])

    class Innermost(Inner):
        definition_key = "definitions.innermost"

    for definition in (Inner, Innermost):
        plan = workflow(SubWorkflowNode(definition, {"thing": Local(id=5)})).plan()
        assert plan.children[0].nodes[0].kwargs_json == '{"x":5}'


def test_f61_values_for_build_with_travel_by_its_types() -> None:
    plan = workflow(SubWorkflowNode(Sized, {"size": 1, "order": Order(id=7)})).plan().nodes[0]
    assert plan.kwargs_json == '{"size":1,"order":{"id":7}}'
