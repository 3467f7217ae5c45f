"""`recover_stuck_workflows`: the manual form of what every worker's reaper does for stuck workflows (R-37, R-97). It is
written once, async, and runs on the broker's bridge.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from horsies.core.brokers.results import as_broker_result
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.broker import BrokerErrorCode
from horsies.core.recovery.reconcile import Reconciler
from horsies.core.sync import on_bridge
from horsies.core.types.twins import run_sync
from horsies.core.workflows.control import builder_for

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker


@as_broker_result(BrokerErrorCode.DB_OPERATION_FAILED)
@on_bridge
async def recover_stuck_workflows(broker: PostgresBroker, grace_ms: int = 10_000) -> int:
    """Let every stuck workflow continue: nodes whose task or child workflow ended at least `grace_ms` ago without an
    effect, nodes that were not enqueued, and workflows past their deadline or without an open node. Return how many
    nodes and workflows were moved. Child workflows are built if the broker has an app that knows them; otherwise they
    are left to the workers."""
    if isinstance(grace_ms, bool) or not isinstance(grace_ms, int) or grace_ms < 0:
        message = f"grace_ms must be a number of milliseconds of at least 0, not {grace_ms!r}"
        raise ConfigurationError(message, code=ErrorCode.CONFIG_INVALID_RECOVERY)
    return await Reconciler(broker.hub, builder_for(broker), timedelta(milliseconds=grace_ms)).run()


recover_stuck_workflows_sync = run_sync(recover_stuck_workflows)
