"""`horsies recover-workflows`: repair stuck workflows (M-10, R-37)."""

from __future__ import annotations

from typing import Annotated

import typer

from horsies.cli import manual, output
from horsies.cli.options import DatabaseUrl, OptionalModule
from horsies.core.recovery.stuck_workflows import recover_stuck_workflows_sync


def recover_workflows(
    module: OptionalModule = None,
    grace: Annotated[
        int, typer.Option("--grace-ms", min=0, help="Ignore everything that ended less than this time ago.")
    ] = 10_000,
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Make the missing steps of workflows that are stuck because a process died at the wrong moment. Workers do this
    automatically; use this command if no worker is running."""
    with manual.opened(module, database_url, with_hooks=True) as app:
        moved = manual.value_of(recover_stuck_workflows_sync(app.get_broker(), grace), app)
    if as_json:
        manual.print_json({"recovered_count": moved})
    elif moved:
        output.out().print(f"{manual.count(moved, 'step')} taken for nodes and workflows that were stuck", markup=False)
    else:
        output.out().print("no workflow is stuck", markup=False)
    return 0
