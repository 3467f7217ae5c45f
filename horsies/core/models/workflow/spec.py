"""A workflow that can be started: its nodes, checked and in their places. It is immutable; a start writes its plan.

This module does not know how a workflow is started: the app gives each spec a starter (`workflows/start.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from horsies.core.codec.shapes import ResultCodec
from horsies.core.errors import ErrorCode, SourceLocation, WorkflowValidationError
from horsies.core.models.workflow import checks, registry
from horsies.core.models.workflow.nodes import Node, SubWorkflowNode, SuccessPolicy, placed
from horsies.core.models.workflow.plan import Draft, WorkflowPlan, plan_of
from horsies.core.models.workflow.results import OnError, WorkflowStartError, WorkflowStartResult, no_broker
from horsies.core.types import run_sync

if TYPE_CHECKING:
    from horsies.core.models.workflow.nodes import NodeRef
    from horsies.core.workflows.handle import WorkflowHandle


T = TypeVar("T")

OutT = TypeVar("OutT")


class SpecStarter(Protocol):
    """Writes the start of a spec; made by an app."""

    async def start_async(
        self, spec: WorkflowSpec[T], workflow_id: str | None, *, good_until: datetime | None
    ) -> WorkflowStartResult[WorkflowHandle[T]]: ...
    async def retry_async(
        self, spec: WorkflowSpec[T], error: WorkflowStartError
    ) -> WorkflowStartResult[WorkflowHandle[T]]: ...


class WorkflowSpec(Generic[OutT]):
    """A workflow: `app.workflow(...)`, or `build(app)` of a `WorkflowDefinition`. `OutT` is the type of its output."""

    name: str
    definition_key: str
    tasks: tuple[Node[Any], ...]
    on_error: OnError
    output: Node[Any] | None
    success_policy: SuccessPolicy | None
    location: SourceLocation | None
    app: Any  # the app with whose queues and tasks it was checked
    starter: SpecStarter | None
    _plan: WorkflowPlan

    def __init__(
        self,
        name: str,
        tasks: Iterable[Node[Any]],
        on_error: OnError | str = OnError.FAIL,
        output: NodeRef | None = None,
        success_policy: SuccessPolicy | None = None,
        *,
        definition_key: str | None = None,
        app: Any = None,
        location: SourceLocation | None = None,
        declared: tuple[Any, ...] = (),
    ) -> None:
        draft = Draft(
            name,
            tuple(tasks),
            on_error,
            output,
            success_policy,
            definition_key or registry.key_of_build(),
            app,
            location or SourceLocation.of_caller(),
            declared,
        )
        checks.check(draft)
        nodes = placed(draft.nodes, draft.ids)
        self.__dict__.update(
            name=draft.name,
            definition_key=draft.definition_key,
            tasks=nodes,
            on_error=OnError(draft.on_error),
            output=None if draft.output_index is None else nodes[draft.output_index],
            success_policy=success_policy,
            location=draft.location,
            app=draft.app,
            starter=getattr(app, "workflow_starter", None),
            _plan=plan_of(draft),
        )

    @property
    def nodes(self) -> tuple[Node[Any], ...]:
        """The same as `tasks`: every node of the workflow, in its place."""
        return self.tasks

    @property
    def broker(self) -> Any:
        """The broker of its app; None without one."""
        return None if self.starter is None else self.app.get_broker()

    @property
    def resend_on_transient_err(self) -> bool:
        """Whether a start that failed temporarily is retried automatically (T-51)."""
        return False if self.starter is None else bool(self.app.config.resend_on_transient_err)

    def plan(self, app: Any = None, depth: int = 0) -> WorkflowPlan:
        """What a start writes. This calls `build_with` of the sub-workflow nodes without dependencies; an exception
        there is a `BuildFailed`. `app` is the app whose broker writes the plan, if it is not the spec's own."""
        app = app if app is not None else self.app
        roots = {}
        for index, node in enumerate(self.tasks):
            if isinstance(node, SubWorkflowNode):
                if app is None:
                    raise _no_app(self, node)
                if not node.waits_for:
                    roots[index] = self._plan.nodes[index]
        if not roots:
            return self._plan
        children = {
            index: registry.build_plan(
                app, registry.BuildRequest(node.sub_workflow_key or "", node.kwargs_json, {}, depth=depth + 1)
            )
            for index, node in roots.items()
        }
        return replace(self._plan, children=children)

    def output_codec(self) -> ResultCodec | None:
        """The codec that decodes its result; None if it has no output node."""
        return None if self.output is None else self.output.result_codec()

    async def start_async(
        self, workflow_id: str | None = None, *, good_until: datetime | None = None
    ) -> WorkflowStartResult[WorkflowHandle[OutT]]:
        """Start the workflow. Nodes that have not started at `good_until` are skipped."""
        if self.starter is None:
            return no_broker(self.name, workflow_id)
        return await self.starter.start_async(self, workflow_id, good_until=good_until)

    start = run_sync(start_async)

    async def retry_start_async(self, error: WorkflowStartError) -> WorkflowStartResult[WorkflowHandle[OutT]]:
        """Retry a start that failed with ENQUEUE_FAILED, under the same id."""
        if self.starter is None:
            return no_broker(self.name, getattr(error, "workflow_id", None))
        return await self.starter.retry_async(self, error)

    retry_start = run_sync(retry_start_async)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a workflow spec is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a workflow spec is immutable")

    def __repr__(self) -> str:
        return f"<workflow {self.name!r} with {len(self.tasks)} node(s)>"


def _no_app(spec: WorkflowSpec[Any], node: SubWorkflowNode[Any]) -> WorkflowValidationError:
    return WorkflowValidationError(
        f"workflow {spec.name!r}: node {node.node_id!r} is a child workflow, and there is no app to build it",
        code=ErrorCode.WORKFLOW_SUBWORKFLOW_APP_MISSING,
        location=node.location,
        help_text="start it with the broker of an app: app.get_broker()",
    )
