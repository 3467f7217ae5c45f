"""What is refused when a workflow is built: the codes of F-90, the rules behind them (F-31, F-33 to F-36, F-42, F-95),
and how findings are shown. Codes of definitions and sub-workflows are in `test_definitions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from horsies import (
    AppConfig,
    Horsies,
    MultipleValidationErrors,
    NodeKey,
    SuccessCase,
    SuccessPolicy,
    TaskError,
    TaskNode,
    TaskResult,
    WorkflowSpec,
    WorkflowValidationError,
    from_node,
)
from horsies.core.errors import MultipleWorkflowErrors
from horsies.core.models.workflow.input_checks import form_of
from tests.each import each
from tests.unit.workflows.sample import (
    APP,
    URL,
    anything,
    codes_of,
    loose,
    maybe,
    number,
    numbers,
    placed,
    plain,
    see,
    summed,
    take,
    where,
    words,
    workflow,
)

LATER = datetime(2999, 1, 1, tzinfo=UTC)
OTHER = Horsies(AppConfig.for_database_url(URL))


@OTHER.task("of another app")
def foreign() -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


def forced(node: Any, **fields: Any) -> Any:
    """A node that nobody can make: nodes do not change, so that they cannot wait for each other."""
    node.__dict__.update(fields)
    return node


def cycle() -> list[Any]:
    a = number.node(node_id="a")()
    b = number.node(node_id="b", waits_for=[a])()
    c = number.node(node_id="c", waits_for=[b])()
    forced(a, waits_for=(c,))
    return [a, b, c]


@each("name", ["", "  ", None, "x" * 256, "a\0b", 5])
def test_f90_hrs_001_no_name(name: Any) -> None:
    assert codes_of(lambda: APP.workflow(name, [number.node()()], definition_key="k")) == ["HRS-001"]


def test_f90_hrs_002_no_nodes() -> None:
    assert codes_of(lambda: workflow()) == ["HRS-002"]


def test_f90_hrs_005_and_hrs_007_cycles() -> None:
    assert codes_of(lambda: workflow(*cycle())) == ["HRS-005", "HRS-007"]
    with pytest.raises(WorkflowValidationError, match=r"c → b → a → c|a → c → b → a|b → a → c → b") as raised:
        workflow(number.node()(), *cycle())
    assert raised.value.code == "HRS-007"
    alone = number.node()()
    forced(alone, waits_for=(alone,))
    assert codes_of(lambda: workflow(alone, words.node()())) == ["HRS-007"]


def test_f90_hrs_006_a_dependency_outside() -> None:
    outside = number.node()()
    assert codes_of(lambda: workflow(number.node()(), words.node(waits_for=[outside])())) == ["HRS-006"]
    assert codes_of(lambda: workflow(words.node(waits_for=[outside])())) == ["HRS-006", "HRS-005"]
    for wrong in ("give_number:0", NodeKey("give_number:0"), number):
        nodes = [number.node()(), words.node(waits_for=[wrong])()]  # type: ignore[list-item]
        assert codes_of(lambda nodes=nodes: workflow(*nodes)) == ["HRS-006"]
    for wrong in (number, 5, None):
        assert codes_of(lambda wrong=wrong: workflow(wrong)) == ["HRS-006"]


def test_f33_f90_hrs_008_a_source_that_it_does_not_wait_for() -> None:
    a, b = number.node()(), number.node()()
    assert codes_of(lambda: workflow(a, TaskNode(take, args_from={"a": a}))) == ["HRS-008"]
    assert codes_of(lambda: workflow(a, b, TaskNode(take, args_from={"a": a}, waits_for=[b]))) == ["HRS-008"]
    wrong: Any = "a"
    assert codes_of(lambda: workflow(a, TaskNode(take, args_from={"a": wrong}, waits_for=[a]))) == ["HRS-008"]


def test_f36_f90_hrs_009_and_hrs_010_the_context() -> None:
    a, b = number.node()(), number.node()()
    assert codes_of(lambda: workflow(a, see.node(workflow_ctx_from=[a])())) == ["HRS-009"]
    assert codes_of(lambda: workflow(a, b, see.node(workflow_ctx_from=[a], waits_for=[b])())) == ["HRS-009"]
    assert codes_of(lambda: workflow(a, number.node(workflow_ctx_from=[a], waits_for=[a])())) == ["HRS-010"]
    assert codes_of(lambda: workflow(a, where.node(workflow_ctx_from=[a], waits_for=[a])())) == ["HRS-010"]
    workflow(a, see.node(workflow_ctx_from=[a], waits_for=[a])())


@each("output", [number.node()(), "b", NodeKey("b"), 5])
def test_f90_hrs_011_an_output_that_is_not_there(output: Any) -> None:
    assert codes_of(lambda: workflow(number.node(node_id="a")(), output=output)) == ["HRS-011"]


@each(
    "policy",
    [
        SuccessPolicy(cases=[]),
        SuccessPolicy(cases=[SuccessCase(required=[])]),
        SuccessPolicy(cases=[SuccessCase(required=["b"])]),
        SuccessPolicy(cases=[SuccessCase(required=["a", number.node()()])]),
        SuccessPolicy(cases=[SuccessCase(required=["a"])], optional=[NodeKey("b")]),
        SuccessPolicy(cases=["a"]),  # type: ignore[list-item]
        SuccessPolicy(cases=[SuccessCase(required=[5])]),  # type: ignore[list-item]
        {"cases": []},
    ],
)
def test_f42_f90_hrs_012_policies(policy: Any) -> None:
    assert codes_of(lambda: workflow(number.node(node_id="a")(), success_policy=policy)) == ["HRS-012"]


@each(
    "options",
    [
        {"join": "some"},
        {"join": None},
        {"join": "quorum"},
        {"join": "quorum", "min_success": 0},
        {"join": "quorum", "min_success": 3},
        {"join": "quorum", "min_success": True},
        {"join": "quorum", "min_success": "1"},
        {"join": "all", "min_success": 1},
        {"join": "any", "min_success": 1},
    ],
)
def test_f31_f90_hrs_013_joins(options: dict[str, Any]) -> None:
    a, b = number.node()(), number.node()()
    assert codes_of(lambda: workflow(a, b, words.node(waits_for=[a, b], **options)())) == ["HRS-013"]


def test_f31_a_quorum_of_nothing() -> None:
    assert codes_of(lambda: workflow(words.node(join="quorum", min_success=1)())) == ["HRS-013"]


@each("options", [{"join": "any"}, {"join": "quorum", "min_success": 1}])
def test_f35_hrs_013_a_source_that_may_not_be_there_needs_a_default(options: dict[str, Any]) -> None:
    a, b = number.node()(), number.node()()
    assert codes_of(lambda: workflow(a, b, take.node(waits_for=[b], **options)(a=from_node(a)))) == ["HRS-013"]
    workflow(a, b, maybe.node(waits_for=[b], **options)(a=from_node(a)))


def test_f90_hrs_014_queues() -> None:
    assert codes_of(lambda: workflow(number.node(queue="nowhere")())) == ["HRS-014"]
    assert codes_of(lambda: OTHER.workflow("w", [foreign.node(queue="fast")()], definition_key="k")) == ["HRS-014"]


@each("priority", [0, 101, -1, True, "1", 1.0])
def test_f90_hrs_015_priorities(priority: Any) -> None:
    assert codes_of(lambda: workflow(number.node(priority=priority)())) == ["HRS-015"]


@each("key", [None, "", " ", 5, "x" * 256])
def test_f06_f90_hrs_016_no_definition_key(key: Any) -> None:
    assert codes_of(lambda: workflow(number.node()(), definition_key=key)) == ["HRS-016"]


def test_f33_f90_hrs_019_names_that_are_no_parameters() -> None:
    a = number.node()()
    assert codes_of(lambda: workflow(TaskNode(number, {"y": 1}))) == ["HRS-019"]
    assert codes_of(lambda: workflow(a, TaskNode(number, args_from={"y": a}, waits_for=[a]))) == ["HRS-019"]
    for reserved in ("workflow_ctx", "workflow_meta"):
        for task in (see, anything):
            node = TaskNode(task, {reserved: 1})
            assert codes_of(lambda node=node: workflow(node)) == ["HRS-019"]
    assert workflow(TaskNode(anything, {"y": 1})).plan().nodes[0].kwargs_json == '{"y":1}'


def test_f90_hrs_020_parameters_that_are_missing() -> None:
    a = number.node()()
    assert codes_of(lambda: workflow(TaskNode(take))) == ["HRS-020"]
    assert codes_of(lambda: workflow(TaskNode(take, {"y": 1.0}))) == ["HRS-020"]
    workflow(a, take.node()(a=from_node(a)), see.node()(), where.node()())


def test_f12_f90_hrs_021_given_twice() -> None:
    a = number.node()()
    node = TaskNode(take, {"a": TaskResult(ok=1)}, [a], {"a": a})
    assert codes_of(lambda: workflow(a, node)) == ["HRS-021"]


@each(
    ("annotation", "source", "accepted"),
    [
        (TaskResult[int, TaskError], number, True),
        (TaskResult[float, TaskError], number, True),
        (TaskResult[Any, TaskError], number, True),
        (TaskResult[int | str, TaskError], number, True),
        (TaskResult[int, TaskError] | None, number, True),
        (TaskResult[list[str], TaskError], words, True),
        (TaskResult[int, TaskError], loose, True),
        (TaskResult[str, TaskError], number, False),
        (TaskResult[list[int], TaskError], words, False),
        (TaskResult[bool, TaskError], number, False),
        (int, number, True),
        (int | None, number, True),
        (float, number, True),
        (Any, number, True),
        (int | TaskResult[str, TaskError], number, True),
        (list[str], words, True),
        (str, number, False),
        (list[int], words, False),
        (None, number, False),
    ],
)
def test_f33_f90_hrs_024_types_of_sources(annotation: Any, source: Any, accepted: bool) -> None:
    def fn(p=None) -> TaskResult[int, TaskError]:  # type: ignore[no-untyped-def]
        return TaskResult(ok=1)

    fn.__annotations__["p"] = annotation
    APP._tasks.pop("typed", None)
    task = APP.task("typed", queue_name="fast")(fn)
    before = source.node()()

    def build() -> Any:
        return workflow(before, task.node()(p=from_node(before)))

    assert codes_of(build) == ([] if accepted else ["HRS-024"])


Int = TaskResult[int, TaskError]


@each(
    ("annotation", "form"),
    [
        (Int, "result"),
        (Int | None, "result"),
        (int | Int, "result"),
        (object | TaskResult[str, TaskError], "value"),
        (int, "value"),
        (float | None, "value"),
        (Any, "value"),
        (str, None),
        (TaskResult[str, TaskError], None),
    ],
)
def test_f33_a_parameter_takes_the_whole_result_if_it_accepts_it_and_else_the_value(annotation: Any, form: Any) -> None:
    assert form_of(annotation, number.node()()) == form


@each(
    ("annotation", "form"),
    [
        (TaskResult[list[Int], TaskError], "result"),
        (list[Int], "value"),
        (Sequence[Int] | None, "value"),
        (list[int], "values"),
        (Sequence[float], "values"),
        (list[Any], "values"),
        (Any, "values"),
        (list[str], None),
        (list[TaskResult[str, TaskError]], None),
        (int, None),
        (set[int], None),
    ],
)
def test_f33_f95_a_parameter_takes_the_results_of_a_map_or_their_values(annotation: Any, form: Any) -> None:
    assert form_of(annotation, number.map_node(over=from_node(numbers.node()()))()) == form


def test_f33_the_plan_knows_which_parameters_take_values() -> None:
    a = number.node()()
    given = [number.node()(x=from_node(a)), loose.node()(a=from_node(a)), take.node()(a=from_node(a), y=from_node(a))]
    plan = workflow(a, *given).plan()
    assert [node.forms for node in plan.nodes] == [{}, {"x": "value"}, {"a": "value"}, {"y": "value"}]


def test_f33_f90_hrs_024_values_of_a_map_whose_elements_may_fail() -> None:
    source = numbers.node()()

    def over(**options: Any) -> Any:
        return number.map_node(over=from_node(source), **options)()

    whole = over()
    plan = workflow(source, whole, summed.node()(values=from_node(whole))).plan()
    assert plan.nodes[2].forms == {"values": "values"}
    for some in (over(join="any"), over(min_success=2)):
        with pytest.raises(WorkflowValidationError, match=r"failed: annotate it list\[TaskResult\[int") as raised:
            workflow(source, some, summed.node()(values=from_node(some)))
        assert raised.value.code == "HRS-024"
        assert codes_of(partial(workflow, source, some, number.map_node(over=from_node(some))())) == ["HRS-024"]
    second = number.map_node(over=from_node(whole))()
    options = workflow(source, whole, second).plan().nodes[2].map_options
    assert options is not None and options.takes_values


@each("join", ["any", "quorum"])
def test_f34_f35_f90_hrs_013_a_value_that_may_be_missing_needs_a_default(join: Any) -> None:
    a = number.node()()
    more = {"min_success": 1} if join == "quorum" else {}
    assert codes_of(lambda: workflow(a, plain.node(join=join, **more)(value=from_node(a)))) == ["HRS-013"]
    assert codes_of(lambda: workflow(a, number.node(join=join, **more)(x=from_node(a)))) == []


def test_f34_f90_hrs_013_a_node_that_allows_failures_needs_a_default_or_the_result() -> None:
    a = number.node()()
    text = r"'value' gets no value from a source that failed: give .* default, or annotate it TaskResult\[int"
    with pytest.raises(WorkflowValidationError, match=text) as raised:
        workflow(a, plain.node(allow_failed_deps=True)(value=from_node(a)))
    assert raised.value.code == "HRS-013"
    assert codes_of(lambda: workflow(a, number.node(allow_failed_deps=True)(x=from_node(a)))) == []
    assert codes_of(lambda: workflow(a, take.node(allow_failed_deps=True)(a=from_node(a)))) == []


def test_f12_f90_hrs_026_parameters_that_only_go_by_position() -> None:
    assert codes_of(lambda: workflow(placed.node()())) == ["HRS-026"]  # type: ignore[call-arg]


@each("value", ["1", math.nan, object(), None, 1.5])
def test_f90_hrs_031_values_that_cannot_be_written(value: Any) -> None:
    assert codes_of(lambda: workflow(TaskNode(number, {"x": value}))) == ["HRS-031"]


def test_f90_hrs_031_a_result_inside_of_an_argument() -> None:
    a = number.node()()
    with pytest.raises(WorkflowValidationError) as raised:
        workflow(a, TaskNode(loose, {"a": [from_node(a)]}))
    assert raised.value.code == "HRS-031" and "by itself" in str(raised.value.help_text)


@each(
    "options",
    [
        {"good_until": datetime(2999, 1, 1)},
        {"good_until": "tomorrow"},
        {"flags": ["Not A Flag"]},
        {"flags": "big"},
    ],
)
def test_f08_other_options_that_make_no_sense(options: dict[str, Any]) -> None:
    assert codes_of(lambda: workflow(number.node(**options)())) == ["HRS-215"]


def test_f08_what_is_no_task_of_the_app() -> None:
    assert codes_of(lambda: workflow(foreign.node()())) == ["HRS-300"]
    plain: Any = len
    assert codes_of(lambda: workflow(TaskNode(plain))) == ["HRS-300"]
    assert codes_of(lambda: WorkflowSpec("w", [TaskNode(plain)], definition_key="k")) == ["HRS-300"]


@each(
    ("make", "code"),
    [
        (lambda source: number.map_node(over=from_node(source), param="y")(), "HRS-019"),
        (lambda source: number.map_node(over=from_node(source), param="workflow_ctx")(), "HRS-019"),
        (lambda source: number.map_node(over=from_node(source), param="x")(x=1), "HRS-021"),
        (lambda source: number.map_node(over=from_node(source))(x=1), "HRS-020"),
        (lambda source: take.map_node(over=from_node(source), param="y")(), "HRS-020"),
        (lambda source: number.map_node(over=from_node(source), join="quorum")(), "HRS-013"),
        (lambda source: number.map_node(over=from_node(source), join="quorum", min_success=0)(), "HRS-013"),
        (lambda source: number.map_node(over=from_node(source), min_success=0)(), "HRS-013"),
        (lambda source: number.map_node(over=from_node(source), join="any", min_success=2)(), "HRS-013"),
        (lambda source: number.map_node(over=from_node(source), join="most")(), "HRS-013"),
        (lambda source: number.map_node(over=from_node(source), max_parallel=0)(), "HRS-215"),
        (lambda source: number.map_node(over=from_node(source), max_parallel=True)(), "HRS-215"),
        (lambda source: number.map_node(over=from_node(source), max_parallel=3_000_000_000)(), "HRS-215"),
        (lambda source: number.map_node(over=from_node(source), min_success=10**5_000)(), "HRS-013"),
    ],
)
def test_f95_maps_that_make_no_sense(make: Callable[[Any], Any], code: str) -> None:
    source = numbers.node()()
    assert codes_of(lambda: workflow(source, make(source))) == [code]


def test_f95_hrs_024_what_a_map_goes_over() -> None:
    no_list, texts = number.node()(), words.node()()
    assert codes_of(lambda: workflow(no_list, number.map_node(over=from_node(no_list))())) == ["HRS-024"]  # type: ignore[arg-type]
    assert codes_of(lambda: workflow(texts, number.map_node(over=from_node(texts))())) == ["HRS-024"]  # type: ignore[arg-type]
    outside = numbers.node()()
    assert "HRS-006" in codes_of(lambda: workflow(texts, number.map_node(over=from_node(outside))()))
    source = numbers.node()()
    first = number.map_node(over=from_node(source))()
    workflow(source, first, maybe.map_node(over=from_node(first))())
    untyped = loose.node()()
    workflow(untyped, number.map_node(over=from_node(untyped))())


def test_f90_all_findings_together_with_their_places() -> None:
    good = number.node(node_id="same")()
    here = Path(__file__).read_text().splitlines()
    bad = TaskNode(number, {"x": "text", "y": 1}, node_id="same")  # the place of `bad`
    lost = take.node(queue="nowhere", join="quorum")(a=from_node(words.node()()))  # type: ignore[arg-type]  # of `lost`
    with pytest.raises(MultipleWorkflowErrors) as raised:
        APP.workflow("", [good, bad, lost], output=NodeKey("none"), definition_key="")  # the place of the workflow
    error = raised.value
    assert isinstance(error, MultipleValidationErrors) and isinstance(error, WorkflowValidationError)
    lines = {
        str(one.code): here[one.location.line - 1].rpartition("#")[2].strip() for one in error.errors if one.location
    }
    assert len(error.errors) == 11
    for code in ("HRS-001", "HRS-016", "HRS-011"):
        assert lines[code] == "the place of the workflow"
    for code in ("HRS-004", "HRS-019", "HRS-031"):
        assert lines[code] == "the place of `bad`"
    for code in ("HRS-006", "HRS-013", "HRS-014", "HRS-024"):
        assert lines[code] == "of `lost`"
    shown = str(error)
    assert "error[HRS-004]: workflow '', node 'same': node 0 has the same id" in shown
    assert f"--> {__file__}:" in shown and "^^^^" in shown and "= note: the first one is at" in shown
    assert shown.endswith("error: 11 problems in workflow ''")
