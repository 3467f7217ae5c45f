"""The functions that pause and resume a workflow by its id, for who has no handle (F-54)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horsies.core.models.workflow.results import HandleResult
from horsies.core.types.twins import run_sync
from horsies.core.workflows import operations

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


async def pause_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Start nothing more, here and in the child workflows; True if it was running."""
    return await operations.run_async(broker, workflow_id, operations.pause)


async def resume_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Go on; True if it was paused."""
    return await operations.run_async(broker, workflow_id, operations.resume)


pause_workflow_sync = run_sync(pause_workflow)
resume_workflow_sync = run_sync(resume_workflow)
