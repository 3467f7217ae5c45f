"""Starts workflows: a spec becomes rows, and the caller gets a handle (F-80 to F-82).

A start never raises for what can go wrong. The error carries the id, so that the start can be tried again without being
written twice. `layout.py` makes the rows.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from horsies.core import errors, tracing
from horsies.core.db import Refused, describe, is_about_content, is_known, is_transient, reason
from horsies.core.models.workflow import nodes, registry, results
from horsies.core.producer import envelope
from horsies.core.producer.send import RESEND_PAUSES, tried
from horsies.core.store import workflow_reads
from horsies.core.types import Err, Ok, run_sync
from horsies.core.workflows.handle import WorkflowHandle
from horsies.core.workflows.layout import TreePosition, lay_out, write_layout

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.db import Connection
    from horsies.core.models.workflow.spec import WorkflowSpec

OutT = TypeVar("OutT")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_Code = results.WorkflowStartErrorCode


async def start_workflow_async(
    spec: WorkflowSpec[OutT],
    broker: PostgresBroker,
    workflow_id: str | None = None,
    sent_at: datetime | None = None,
    *,
    resend_on_transient_err: bool = False,
    good_until: datetime | None = None,
    connection: Connection | None = None,
) -> results.WorkflowStartResult[WorkflowHandle[OutT]]:
    """Write the workflow with all its nodes and the first tasks, all at once; with a connection, as a savepoint of the
    transaction that is open there."""
    call = _Call.of(spec.name, workflow_id, sent_at, good_until)
    return await _start(spec, broker, call, resend_on_transient_err, connection)


start_workflow = run_sync(start_workflow_async)


class WorkflowStarter:
    """What the `start` methods of a spec use: the broker of its app, opened at the first use."""

    def __init__(self, broker: Callable[[], PostgresBroker], *, resend: bool = False) -> None:
        self._broker = broker
        self._resend = resend

    async def start_async(
        self, spec: WorkflowSpec[OutT], workflow_id: str | None = None, *, good_until: datetime | None = None
    ) -> results.WorkflowStartResult[WorkflowHandle[OutT]]:
        """Start it under a new id, or under a given one."""
        return await self.start_on(None, spec, workflow_id, good_until)

    async def start_on(
        self,
        connection: Connection | None,
        spec: WorkflowSpec[OutT],
        workflow_id: str | None,
        good_until: datetime | None,
    ) -> results.WorkflowStartResult[WorkflowHandle[OutT]]:
        """The same, in the transaction of this connection if there is one."""
        return await start_workflow_async(
            spec,
            self._broker(),
            workflow_id,
            resend_on_transient_err=self._resend,
            good_until=good_until,
            connection=connection,
        )

    async def retry_async(
        self, spec: WorkflowSpec[OutT], error: results.WorkflowStartError
    ) -> results.WorkflowStartResult[WorkflowHandle[OutT]]:
        """Repeat a start that failed with ENQUEUE_FAILED: same id, same deadline."""
        if not isinstance(error, results.WorkflowStartError):
            call = _Call.of(spec.name, None, None, None)
            return Err(call.failed(_Code.VALIDATION_FAILED, "retry_start takes a WorkflowStartError"))
        call = _Call(spec.name, error.workflow_id, error.sent_at or datetime.now(UTC), error.good_until, is_retry=True)
        if error.code is not _Code.ENQUEUE_FAILED:
            why = f"only a start that failed with ENQUEUE_FAILED can be tried again, not one with {error.code}"
            return Err(call.failed(_Code.VALIDATION_FAILED, why))
        if error.workflow_name != spec.name:
            why = f"the error belongs to workflow {error.workflow_name!r}"
            return Err(call.failed(_Code.VALIDATION_FAILED, why))
        return await _start(spec, self._broker(), call, self._resend)


@dataclass(frozen=True, slots=True)
class _Call:
    """One start, however often it is tried."""

    name: str
    workflow_id: str
    sent_at: datetime
    good_until: datetime | None
    is_retry: bool = False

    @classmethod
    def of(cls, name: str, workflow_id: str | None, sent_at: datetime | None, good_until: datetime | None) -> _Call:
        # Ids have one spelling: the same UUID in capitals is the same workflow.
        given = workflow_id.lower() if isinstance(workflow_id, str) else workflow_id
        return cls(name, str(uuid4()) if given is None else given, sent_at or datetime.now(UTC), good_until)

    def failed(
        self, code: results.WorkflowStartErrorCode, message: str, *, retryable: bool = False, cause: Any = None
    ) -> results.WorkflowStartError:
        text = f"workflow {self.name!r}: {message}"
        return results.WorkflowStartError(
            code, text, self.name, self.workflow_id, self.sent_at, self.good_until, retryable=retryable, exception=cause
        )

    def refused(self, why: str) -> Refused:
        return Refused(self.failed(_Code.VALIDATION_FAILED, why))


async def _start(
    spec: WorkflowSpec[OutT], broker: PostgresBroker, call: _Call, resend: bool, connection: Connection | None = None
) -> results.WorkflowStartResult[WorkflowHandle[OutT]]:
    if broker is None:
        return results.no_broker(call.name, call.workflow_id)
    try:
        _check(spec, broker, call)
        plan = spec.plan(broker.app)
    except Refused as refusal:
        return Err(refusal.error)
    except (errors.HorsiesError, registry.BuildFailed) as problem:
        message = problem.message if isinstance(problem, errors.HorsiesError) else str(problem)
        return Err(call.failed(_Code.VALIDATION_FAILED, message, cause=problem))
    except Exception as problem:
        return Err(call.failed(_Code.INTERNAL_FAILED, describe(problem), cause=problem))
    place = TreePosition(call.workflow_id, root=call.workflow_id)
    layout = lay_out(plan, place, good_until=call.good_until, sent_at=call.sent_at)

    async def write(conn: Connection) -> None:
        if await write_layout(conn, layout) or call.is_retry:
            return
        key = await workflow_reads.definition_key(conn, call.workflow_id)
        if key != spec.definition_key:
            raise call.refused(f"a workflow {call.workflow_id} exists already, with the definition {key!r}")

    async def write_alone() -> None:
        async with broker.hub.connection() as conn:
            await write(conn)

    attempt: Callable[[], Awaitable[None]] = partial(broker.bridge.call, write_alone)
    if connection is not None:
        attempt, resend = partial(write, connection), False  # the caller repeats his whole transaction
    with tracing.starting(call.name, call.workflow_id) as span:
        layout.carry(span.trace)
        written = await tried(attempt, partial(_explain, call), RESEND_PAUSES if resend else ())
        if isinstance(written, Err):
            span.failed(written.error.code)
            return written
    return Ok(WorkflowHandle(call.workflow_id, broker, spec))


def _explain(call: _Call, problem: BaseException) -> results.WorkflowStartError:
    if isinstance(problem, Refused):
        refusal: results.WorkflowStartError = problem.error
        return refusal
    cause = reason(problem)
    if is_about_content(cause):
        # This cannot be stored, however often it is tried.
        return call.failed(_Code.VALIDATION_FAILED, describe(cause), cause=cause)
    code = _Code.ENQUEUE_FAILED if is_known(problem) else _Code.INTERNAL_FAILED
    retryable = code is _Code.ENQUEUE_FAILED and is_transient(problem)
    return call.failed(code, describe(problem), retryable=retryable, cause=cause)


def _check(spec: WorkflowSpec[Any], broker: PostgresBroker, call: _Call) -> None:
    if broker.app is not None and broker.app.sends_suppressed:
        raise call.refused(results.NOTHING_IS_STARTED)
    if not isinstance(call.workflow_id, str) or not _UUID.fullmatch(call.workflow_id):
        raise errors.WorkflowValidationError(
            f"the id of a workflow must be a UUID, not {call.workflow_id!r}",
            code=errors.ErrorCode.WORKFLOW_INVALID_ID,
            help_text="leave it out, or give str(uuid.uuid4())",
        )
    try:
        envelope.check_time(call.good_until, "good_until")
        envelope.check_time(call.sent_at, "sent_at")
    except ValueError as problem:
        raise call.refused(str(problem)) from None
    if broker.app is None and any(isinstance(node, nodes.SubWorkflowNode) for node in spec.tasks):
        raise errors.WorkflowValidationError(
            "a workflow with sub-workflows needs a broker with an app, which knows their definitions",
            code=errors.ErrorCode.WORKFLOW_SUBWORKFLOW_APP_MISSING,
            help_text="start it with spec.start(), or give app.get_broker()",
        )
