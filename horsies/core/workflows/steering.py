"""Functions that pause and resume a workflow by its id, for programs without a handle (F-54)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horsies.core.models.workflow.results import HandleResult
from horsies.core.workflows import operations

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


async def pause_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Start no more nodes, here and in the child workflows; True if it was running."""
    return await operations.run_async(broker, workflow_id, operations.pause)


def pause_workflow_sync(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Start no more nodes, here and in the child workflows; True if it was running."""
    return operations.run(broker, workflow_id, operations.pause)


async def resume_workflow(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Continue; True if it was paused."""
    return await operations.run_async(broker, workflow_id, operations.resume)


def resume_workflow_sync(broker: PostgresBroker, workflow_id: str) -> HandleResult[bool]:
    """Continue; True if it was paused."""
    return operations.run(broker, workflow_id, operations.resume)
