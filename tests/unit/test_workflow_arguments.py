"""What the workflow engine writes into the arguments of a task, as the task gets it; and that nobody else may."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from horsies import SubWorkflowError, TaskError, TaskResult, WorkflowContext, WorkflowMeta, WorkflowStatus
from horsies.core.codec.arguments import ArgumentsCodec, read
from horsies.core.codec.shapes import CodecError
from horsies.core.models.codes import OutcomeCode
from horsies.core.models.workflow.nodes import NodeKey
from tests.each import each

Number = TaskResult[int, TaskError]
PLACE = {"workflow_id": "w", "task_index": 3, "task_name": "t"}
CONTEXT = {**PLACE, "results": {"n": {"ok": 5}}, "summaries": {}}


def codec(fn: Callable[..., Any]) -> ArgumentsCodec:
    return ArgumentsCodec(read(fn))


def both(
    a: int, workflow_ctx: WorkflowContext | None, b: int = 2, *, workflow_meta: WorkflowMeta | None = None
) -> Number:
    raise NotImplementedError


def only_meta(a: int, workflow_meta: WorkflowMeta | None) -> Number:
    raise NotImplementedError


def neither(a: int, **others: int) -> Number:
    raise NotImplementedError


def takes_result(a: Number) -> Number:
    raise NotImplementedError


def test_f36_f37_a_stored_call_gives_context_and_meta_to_who_declares_them() -> None:
    text = json.dumps({"a": 1, "workflow_ctx": CONTEXT, "workflow_meta": PLACE})
    args, kwargs = codec(both).decode(None, text)
    context = kwargs.pop("workflow_ctx")
    assert (args, kwargs) == ((), {"a": 1, "workflow_meta": WorkflowMeta("w", 3, "t")})
    assert (context.workflow_id, context.task_index, context.task_name) == ("w", 3, "t")
    assert context.result_for(NodeKey("n")) == TaskResult(ok=5)


@each("text", ['{"a": 1}', '{"a": 1, "workflow_ctx": null, "workflow_meta": null}'])
def test_f36_f37_without_a_workflow_there_is_none(text: str) -> None:
    _, kwargs = codec(both).decode(None, text)
    assert kwargs["workflow_ctx"] is None and kwargs.get("workflow_meta") is None


def test_f37_what_a_task_declares_no_longer_is_dropped() -> None:
    """The workflow was started by an older release of the code."""
    text = json.dumps({"a": 1, "workflow_ctx": CONTEXT, "workflow_meta": PLACE})
    assert codec(only_meta).decode(None, text) == ((), {"a": 1, "workflow_meta": WorkflowMeta("w", 3, "t")})


@each("fn", [both, only_meta, neither])
@each("name", ["workflow_ctx", "workflow_meta"])
def test_f36_f37_a_sender_can_give_neither(fn: Callable[..., Any], name: str) -> None:
    with pytest.raises(CodecError, match="filled in by the workflow engine"):
        codec(fn).encode((), {"a": 1, name: None})


@pytest.mark.parametrize("given", [{}, {"workflow_id": "w"}, {**PLACE, "task_index": "three"}, 5])
def test_l28_a_context_that_the_engine_did_not_write_is_refused(given: Any) -> None:
    for name in ("workflow_ctx", "workflow_meta"):
        with pytest.raises(CodecError, match=name):
            codec(both).decode(None, json.dumps({"a": 1, name: given}))


def test_f62_the_error_of_a_child_workflow_reaches_who_takes_its_result() -> None:
    summary = {"status": "FAILED", "total_tasks": 2, "failed_tasks": 1}
    error = {
        "error_code": {"__builtin_task_code__": "SUBWORKFLOW_FAILED"},
        "sub_workflow_id": "c",
        "sub_workflow_summary": summary,
    }
    _, kwargs = codec(takes_result).decode(None, json.dumps({"a": {"err": error}}))
    found = kwargs["a"].unwrap_err()
    assert isinstance(found, SubWorkflowError) and found.error_code is OutcomeCode.SUBWORKFLOW_FAILED
    assert (found.sub_workflow_id, found.sub_workflow_summary.status) == ("c", WorkflowStatus.FAILED)


def test_f33_a_plain_error_stays_one() -> None:
    _, kwargs = codec(takes_result).decode(None, '{"a": {"err": {"error_code": "MINE"}}}')
    assert type(kwargs["a"].unwrap_err()) is TaskError
