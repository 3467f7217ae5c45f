"""What the workflow engine writes into the arguments of a task, as the task gets it; and that nobody else may."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from horsies import TaskError, TaskResult, WorkflowContext, WorkflowMeta
from horsies.core.codec.arguments import ArgumentsCodec, read
from horsies.core.codec.shapes import CodecError
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
