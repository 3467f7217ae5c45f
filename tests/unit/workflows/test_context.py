"""What a task of a workflow can know about it (F-34, F-36, F-37, F-62, F-63, T-70)."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from horsies import (
    ContractCode,
    NodeKey,
    OperationalErrorCode,
    OutcomeCode,
    SubWorkflowError,
    SubWorkflowNode,
    SubWorkflowSummary,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowContextMissingIdError,
    WorkflowDefinition,
    WorkflowMeta,
    WorkflowStatus,
)
from horsies.core.tasks import execute
from tests.each import each
from tests.unit.workflows.sample import APP, number, see, take, where, words, workflow


@dataclasses.dataclass(frozen=True)
class Paper:
    content: bytes


@APP.task("print", queue_name="fast")
def printed() -> TaskResult[Paper, TaskError]:
    return TaskResult(ok=Paper(b"\xff"))


class Press(WorkflowDefinition[Paper]):
    name = "press"
    definition_key = "context.press"
    sheet = printed.node()()

    class Meta:
        output = "sheet"


SHEET = json.loads(printed.codec.result.encode(TaskResult(ok=Paper(b"\xff"))))


def context(**given: Any) -> WorkflowContext:
    return WorkflowContext.of({"workflow_id": "w", "task_index": 3, "task_name": "t", **given})


def test_f36_what_the_context_says() -> None:
    sheet = printed.node(node_id="sheet")()
    found = context(results={"sheet": SHEET, "other": {"ok": [1]}})
    assert (found.workflow_id, found.task_index, found.task_name) == ("w", 3, "t")
    assert found.result_for(sheet).ok_value == Paper(b"\xff") == found.result_for(sheet.key()).ok_value
    assert found.has_result(sheet) and found.has_result(NodeKey("other"))
    assert found.result_for(NodeKey("other")).ok_value == [1], "a bare key knows no type"
    assert not found.has_result(number.node(node_id="none")())


def test_f36_nodes_that_are_not_in_it() -> None:
    found = context(results={"a": {"ok": 1}})
    with pytest.raises(KeyError, match="workflow_ctx_from"):
        found.result_for(number.node(node_id="b")())
    with pytest.raises(KeyError):
        found.summary_for(NodeKey("a"))


def test_f36_nodes_without_an_id() -> None:
    node = number.node()()
    for ask in (context().result_for, context().has_result):
        with pytest.raises(WorkflowContextMissingIdError):
            ask(node)
    for ask in (context().summary_for, context().has_summary):
        with pytest.raises(WorkflowContextMissingIdError):
            ask(SubWorkflowNode(Press))


def test_f36_t70_a_lookup_without_an_id_has_a_code_of_its_own() -> None:
    node = number.node()()

    def fn(workflow_ctx: WorkflowContext | None = None) -> TaskResult[int, TaskError]:
        assert workflow_ctx is not None
        return workflow_ctx.result_for(node)

    APP._tasks.pop("lookup", None)
    task = APP.task("lookup", queue_name="fast", default_unhandled_error_code="MINE")(fn)
    given = {"workflow_id": "w", "task_index": 0, "task_name": "t", "results": {}}
    report = execute.run(task, None, json.dumps({"workflow_ctx": given}))
    assert report.error_code == ContractCode.WORKFLOW_CTX_MISSING_ID
    assert f'"{ContractCode.WORKFLOW_CTX_MISSING_ID.value}"' in report.result
    mapped = APP.task("lookup mapped", queue_name="fast", exception_mapper={WorkflowContextMissingIdError: "OWN"})(fn)
    assert execute.run(mapped, None, json.dumps({"workflow_ctx": given})).error_code == "OWN"


def test_f34_errors_are_delivered_as_they_are() -> None:
    skipped = TaskError(error_code=OutcomeCode.UPSTREAM_SKIPPED, data={"dependency_index": 1})
    found = context(results={"a": {"err": json.loads(skipped.model_dump_json())}})
    assert found.result_for(number.node(node_id="a")()).err_value == skipped


def test_f62_f63_summaries_of_children() -> None:
    press = SubWorkflowNode(Press, node_id="press")
    summary = SubWorkflowSummary[Any](
        status=WorkflowStatus.COMPLETED, output=SHEET["ok"], total_tasks=1, completed_tasks=1
    )
    found = context(summaries={"press": json.loads(summary.model_dump_json())}, results={"press": SHEET})
    assert found.has_summary(press) and not found.has_summary(NodeKey("other"))
    read = found.summary_for(press)
    assert (read.status, read.output, read.total_tasks) == (WorkflowStatus.COMPLETED, Paper(b"\xff"), 1)
    assert found.result_for(press).ok_value == Paper(b"\xff")
    failed = context(summaries={"press": {"status": "FAILED", "failed_tasks": 1, "error_summary": "no ink"}})
    assert failed.summary_for(press).output is None and failed.summary_for(press).error_summary == "no ink"


def test_f62_the_error_of_a_child_reaches_a_parameter() -> None:
    summary = SubWorkflowSummary[Any](status=WorkflowStatus.FAILED)
    error = SubWorkflowError(
        error_code=OutcomeCode.SUBWORKFLOW_FAILED, sub_workflow_id="c", sub_workflow_summary=summary
    )
    text = json.dumps({"a": {"err": json.loads(error.model_dump_json())}})
    _, kwargs = take.codec.arguments.decode(None, text)
    assert type(kwargs["a"].err) is SubWorkflowError and kwargs["a"].err.sub_workflow_id == "c"


@each(
    ("stored", "code"),
    [
        ({"ok": "text"}, ContractCode.PYDANTIC_HYDRATION_ERROR),
        ({}, OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
        (5, OperationalErrorCode.RESULT_DESERIALIZATION_ERROR),
    ],
)
def test_f36_results_that_cannot_be_read_are_errors(stored: Any, code: Any) -> None:
    assert context(results={"a": stored}).result_for(number.node(node_id="a")()).err_value.error_code is code


def test_f36_a_context_for_tests_of_your_own() -> None:
    node = number.node()()
    workflow(node)
    made = WorkflowContext("w", 1, "t", {"give_number:0": TaskResult(ok=1)})
    assert made.result_for(node).ok_value == 1
    summary = SubWorkflowSummary[Paper](status=WorkflowStatus.COMPLETED)
    made = WorkflowContext("w", 1, "t", summaries={"p": summary})
    assert made.summary_for(SubWorkflowNode(Press, node_id="p")) is summary


def test_f36_f37_parameters_are_filled_in_from_the_arguments_of_the_row() -> None:
    place = {"workflow_id": "w", "task_index": 3, "task_name": "see"}
    given = {"k": 2, "workflow_ctx": {**place, "results": {"a": {"ok": 1}}, "summaries": {}}}
    _, kwargs = see.codec.arguments.decode(None, json.dumps(given))
    assert kwargs["k"] == 2 and kwargs["workflow_ctx"].result_for(NodeKey("a")).ok_value == 1
    _, kwargs = where.codec.arguments.decode(None, json.dumps({"workflow_meta": place}))
    assert kwargs == {"workflow_meta": WorkflowMeta("w", 3, "see")}
    assert words.codec.arguments.decode(None, None) == ((), {})
