"""The build requests of a worker to its helper child, and the answers, as messages. No I/O."""

from __future__ import annotations

import json

from horsies.core.models.codes import OperationalErrorCode
from horsies.core.workflows.definitions import BuildFailed, BuildRequest
from horsies.core.workflows.plan import WorkflowPlan, plan_from_json, plan_to_json

BUILD = b"BuildRequest"
_PLAN, _FAILED = b"+", b"-"


def pack_request(request: BuildRequest) -> tuple[bytes, bytes]:
    """The kind of the request and its content."""
    content = {
        "definition_key": request.definition_key,
        "kwargs_json": request.kwargs_json,
        "injected": dict(request.injected),
        "depth": request.depth,
    }
    return BUILD, json.dumps(content).encode()


def request_of(content: bytes) -> BuildRequest:
    """The inverse of `pack_request`."""
    return BuildRequest(**json.loads(content))


def pack_plan(plan: WorkflowPlan) -> bytes:
    return _PLAN + plan_to_json(plan).encode()


def pack_failure(problem: BuildFailed) -> bytes:
    content = {"message": str(problem), "code": problem.code.value}
    return _FAILED + json.dumps(content).encode()


def plan_of(answer: bytes) -> WorkflowPlan:
    """The plan. `BuildFailed` if there is none; ValueError, KeyError or TypeError if the answer is invalid."""
    kind, content = answer[:1], answer[1:]
    if kind == _PLAN:
        return plan_from_json(content)
    if kind != _FAILED:
        raise ValueError(f"neither a plan nor a failure: {kind!r}")
    given = json.loads(content)
    raise BuildFailed(given["message"], OperationalErrorCode(given["code"]))
