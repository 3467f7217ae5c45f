"""What the engine requests when a sub-workflow node is ready: the plan of the child workflow.

`build_with` is user code. A worker lets its helper child call it (`worker/helper_builder.py`); a program that starts or
resumes a workflow calls it itself (`local_builder.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from horsies.core.models.codes import OperationalErrorCode
from horsies.core.workflows.plan import WorkflowPlan

MAX_DEPTH = 32  # of a workflow in its tree; the one at the top has 0 (F-65)


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """`injected`: for each parameter of `args_from`, the JSON of the whole `TaskResult`."""

    definition_key: str
    kwargs_json: str | None
    injected: Mapping[str, str]
    depth: int = 1  # of the child in its tree (F-65)


class BuildFailed(Exception):
    """There is no plan, and there will be none: the node fails with `code`. (Any other exception, as when the helper
    child died, leaves the node READY, and it is tried again.)"""

    def __init__(self, message: str, code: OperationalErrorCode = OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED) -> None:
        super().__init__(message)
        self.code = code


class NotBuiltHere(Exception):
    """This program does not know the definition. Workers may know it, so the node stays READY for them."""


class Builder(Protocol):
    """Calls `build_with` of a definition, in some process."""

    async def build(self, request: BuildRequest) -> WorkflowPlan: ...
