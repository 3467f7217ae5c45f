"""The decisions of the engine as plain functions: joins, inputs, ends, conclusions, what one end means for others."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horsies.core.models.tasks import BUILTIN_KEY
from horsies.core.models.workflow.registry import InputError
from horsies.core.store.workflows import Closing, Flow, FlowNode, Payload, Source
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.finish import NodeEnd, conclude, end_of_map
from horsies.core.workflows.inputs import arguments, elements, expand, ok_text
from horsies.core.workflows.settle import Readiness, Settling, readiness
from tests.each import each

PENDING, READY, RUNNING = WorkflowTaskStatus.PENDING, WorkflowTaskStatus.READY, WorkflowTaskStatus.RUNNING
COMPLETED, FAILED, SKIPPED = WorkflowTaskStatus.COMPLETED, WorkflowTaskStatus.FAILED, WorkflowTaskStatus.SKIPPED
OK, BAD = '{"ok":1}', '{"err":{"error_code":"BAD","message":"no"}}'
T0 = datetime(2100, 1, 1, tzinfo=UTC)


@each(
    ("join", "min_success", "allow", "counts", "expected"),
    [
        ("all", None, False, (0, 0, 0, 0), Readiness.READY),
        ("all", None, False, (2, 1, 0, 0), Readiness.WAIT),
        ("all", None, False, (2, 2, 0, 0), Readiness.READY),
        ("all", None, False, (2, 0, 1, 0), Readiness.SKIP),
        ("all", None, False, (2, 0, 0, 1), Readiness.SKIP),
        ("all", None, True, (2, 1, 0, 0), Readiness.WAIT),
        ("all", None, True, (2, 0, 1, 0), Readiness.WAIT),
        ("all", None, True, (2, 0, 1, 1), Readiness.READY),
        ("any", None, False, (3, 0, 2, 0), Readiness.WAIT),
        ("any", None, False, (3, 1, 0, 0), Readiness.READY),
        ("any", None, False, (3, 0, 2, 1), Readiness.SKIP),
        ("quorum", 2, False, (3, 1, 1, 0), Readiness.WAIT),
        ("quorum", 2, False, (3, 2, 0, 0), Readiness.READY),
        ("quorum", 2, False, (3, 1, 1, 1), Readiness.SKIP),
        ("quorum", 2, False, (3, 0, 2, 0), Readiness.SKIP),
    ],
)
def test_f30_f31_f32_when_a_node_runs(
    join: str, min_success: int | None, allow: bool, counts: tuple[int, int, int, int], expected: Readiness
) -> None:
    total, completed, failed, skipped = counts
    found = readiness(join, min_success, allow, total=total, completed=completed, failed=failed, skipped=skipped)
    assert found is expected


FLOW = Flow("w", WorkflowStatus.RUNNING, "FAIL", None, None, False, None, None, "w", 0, None, False, open_nodes=3)
NODE = FlowNode("w", 0, "TASK", PENDING, [], 1, 0, 0, 0, "all", None, False, None, None)


def flow(**more: Any) -> Flow:
    return FLOW._replace(**more)


def node(index: int, *dependents: int, **more: Any) -> FlowNode:
    return NODE._replace(task_index=index, dependents=list(dependents), **more)


def settled(settling: Settling) -> dict[int, WorkflowTaskStatus]:
    while not settling.is_settled:
        assert settling.wanted() == []
        settling.run()
    return {index: state.status for (_, index), state in settling.nodes.items()}


def test_f94_a_node_that_is_open_again_is_not_counted_any_more() -> None:
    settling = Settling([flow(status=WorkflowStatus.FAILED, has_error=True, open_nodes=0)])
    settling.add([node(0, 1, status=FAILED), node(1, status=SKIPPED, failed=1)])
    settling.open_again(("w", 1), PENDING)
    settling.open_again(("w", 0), READY)
    assert settled(settling) == {0: READY, 1: PENDING}
    assert settling.nodes["w", 1].failed == -1 and settling.flows["w"].open_nodes == 2


def test_f95_a_map_that_runs_does_not_count_its_dependencies() -> None:
    settling = Settling([flow()])
    settling.add([node(0, 1, status=RUNNING), node(1, node_type="MAP", status=RUNNING, has_elements=True, total=2)])
    settling.end(("w", 0), NodeEnd(FAILED, BAD, "BAD"))
    assert settled(settling) == {0: FAILED, 1: RUNNING}
    assert not settling.nodes["w", 1].is_changed


def closing(index: int, status: WorkflowTaskStatus, result: str | None = None, after_s: int = 0) -> Closing:
    code = "BAD" if status is FAILED else None
    return Closing("w", index, status, result, code, T0 + timedelta(seconds=after_s))


def test_f43_without_a_case_the_error_is_that_of_the_required_node_that_failed_first() -> None:
    given = flow(success_policy={"cases": [[0, 1]], "optional": [2]})
    late = '{"err":{"error_code":"LATE"}}'
    end = conclude(given, [closing(0, FAILED, late, 9), closing(1, FAILED, BAD, 5), closing(2, FAILED, OK, 1)])
    assert (end.status, end.result, end.error_code) == (WorkflowStatus.FAILED, BAD, "BAD")
    end = conclude(given, [closing(0, COMPLETED, OK), closing(1, SKIPPED)])
    assert end.error_code == "WORKFLOW_SUCCESS_CASE_NOT_MET"


def test_f75_f96_how_a_workflow_ends() -> None:
    assert conclude(flow(), [closing(0, COMPLETED, OK)]).result == '{"ok":null}', "no output"
    assert conclude(flow(output_index=0), [closing(0, COMPLETED, OK)]).result == OK
    assert conclude(flow(), [closing(0, FAILED, BAD)]).error_code == "BAD"
    end = conclude(flow(is_overdue=True, output_index=0), [closing(0, COMPLETED, OK)])
    assert (end.status, end.error_code) == (WorkflowStatus.FAILED, "WORKFLOW_EXPIRED")


PAYLOAD = Payload(
    "w", 5, "n", "TASK", "READY", "t", None, "default", 1, None, None, None, {}, None, None, None, None
)  # fmt: skip


def payload(**more: Any) -> Payload:
    return PAYLOAD._replace(**more)


def source(index: int, status: WorkflowTaskStatus, result: str | None = None) -> Source:
    return Source("w", index, f"n{index}", status, result, None)


def test_f33_f34_f35_results_of_others_stand_beside_what_was_given() -> None:
    taken = {"ok": 0, "bad": 1, "gone": 2, "open": 3}
    sources = {
        0: source(0, COMPLETED, OK),
        1: source(1, FAILED, BAD),
        2: source(2, SKIPPED),
        3: source(3, RUNNING),
    }
    found = json.loads(arguments(payload(kwargs='{"x": [1]}', args_from=taken), sources) or "")
    assert found["x"] == [1] and found["ok"] == {"ok": 1} and found["bad"] == json.loads(BAD)
    assert found["gone"]["err"]["data"] == {"dependency_index": 2} and "open" not in found
    assert found["gone"]["err"]["error_code"] == {BUILTIN_KEY: "UPSTREAM_SKIPPED"}


def test_f33_f34_f35_values_of_others_and_none_of_those_that_have_none() -> None:
    sources = {
        0: source(0, COMPLETED, '{ "ok" : {"a": [1.10, "}"]} }'),
        1: source(1, FAILED, BAD),
        2: source(2, SKIPPED),
        3: source(3, RUNNING),
        4: source(4, COMPLETED, '{"ok":[{"ok":1.10},{"ok":[2]},{"ok":null}]}'),
        5: source(5, COMPLETED),
    }
    taken = {f"p{index}": {"node": index, "takes": "values" if index == 4 else "value"} for index in sources}
    text = arguments(payload(kwargs='{"x": [1]}', args_from={**taken, "r": 0}), sources) or ""
    assert json.loads(text) == {
        "x": [1], "p0": {"a": [1.1, "}"]}, "p4": [1.1, [2], None], "p5": None, "r": {"ok": {"a": [1.1, "}"]}},
    }  # fmt: skip
    assert '{"a": [1.10, "}"]}' in text and "[1.10,[2],null]" in text, "the texts are those of the results"


@each("result", [BAD, "5", '{"ok":1,"x":2}', '{"no":1}', '{"ok":}', '{"ok":1', "nonsense", ""])
def test_f33_a_value_is_cut_out_of_nothing_but_a_result(result: str) -> None:
    with pytest.raises(InputError):
        ok_text(result)


@each("entry", ["0", None, {"takes": "value"}, {"node": [0], "takes": "value"}, [0]])
def test_f33_f72_an_input_that_names_no_node_is_refused(entry: Any) -> None:
    with pytest.raises(InputError, match="does not exist"):
        arguments(payload(args_from={"p": entry}), {0: source(0, COMPLETED, OK)})


def test_f36_the_context_holds_what_has_ended() -> None:
    sources = {0: source(0, COMPLETED, OK), 1: source(1, RUNNING)}
    found = json.loads(arguments(payload(ctx_from=[0, 1]), sources) or "")["workflow_ctx"]
    assert found == {
        "workflow_id": "w",
        "task_index": 5,
        "task_name": "t",
        "results": {"n0": {"ok": 1}},
        "summaries": {},
    }


@each(
    ("result", "expected"),
    [
        ('{"ok":[]}', []),
        ('{"ok": [ 1 , "a,]b" ,{"k":[2,3]},1.10 ] }', ["1", '"a,]b"', '{"k":[2,3]}', "1.10"]),
        ('{"ok":["\\u0000\\""]}', ['"\\u0000\\""']),
    ],
)
def test_f95_the_members_of_a_list_are_taken_as_they_stand(result: str, expected: list[str]) -> None:
    assert elements(source(0, COMPLETED, result)) == expected


@each("result", ['{"ok":{"a":[1]}}', '{"ok":"[1]"}', BAD, "[1]", "nonsense"])
def test_f95_what_is_no_list_is_refused(result: str) -> None:
    with pytest.raises(InputError):
        elements(source(0, COMPLETED, result))


def test_f95_f37_an_element_has_its_own_place() -> None:
    options = {"over": 0, "param": "x", "max_parallel": None}
    kwargs = '{"y": 2, "workflow_meta": {"workflow_id": "w", "task_index": 5, "task_name": "t"}}'
    given = payload(node_type="MAP", map_options=options, kwargs=kwargs)
    found = expand(given, {0: source(0, COMPLETED, '{"ok":[7,8]}')}, first=10)
    second = found.rows[1]
    assert (second["node_id"], second["task_index"], second["map_position"]) == ("n[1]", 11, 1)
    assert json.loads(second["task_kwargs"]) == {
        "y": 2, "x": 8, "workflow_meta": {"workflow_id": "w", "task_index": 11, "task_name": "t"},
    }  # fmt: skip
    assert json.loads(found.options) == {**options, "first": 10, "count": 2}


def test_f95_a_map_succeeds_with_as_many_elements_as_it_needs() -> None:
    some = [(COMPLETED, OK, None), (FAILED, BAD, "BAD"), (COMPLETED, OK, None)]
    assert end_of_map(some, 2) == NodeEnd(COMPLETED, f'{{"ok":[{OK},{BAD},{OK}]}}')
    end = end_of_map(some, None)
    assert (end.status, end.error_code) == (FAILED, "BAD")
    assert json.loads(end.result or "")["err"]["data"] == {"failed": [1], "succeeded": 2, "total": 3}
