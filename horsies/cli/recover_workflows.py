"""`horsies recover-workflows`: let workflows go on that have been left lying (M-10, R-37)."""

from __future__ import annotations

from typing import Annotated

import typer

from horsies.cli import manual, output
from horsies.cli.options import DatabaseUrl, OptionalModule
from horsies.core.recovery.stuck_workflows import recover_stuck_workflows_sync


def recover_workflows(
    module: OptionalModule = None,
    grace: Annotated[
        int, typer.Option("--grace-ms", min=0, help="Leave alone what has ended less than this ago.")
    ] = 10_000,
    as_json: manual.AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Move on nodes and workflows that have come to a standstill because somebody died at the wrong moment. Workers do
    this by themselves all the time; without one that runs, this does it once."""
    with manual.opened(module, database_url, with_hooks=True) as app:
        moved = manual.value_of(recover_stuck_workflows_sync(app.get_broker(), grace), app)
    if as_json:
        manual.print_json({"recovered_count": moved})
    elif moved:
        output.out().print(f"{manual.count(moved, 'step')} taken for nodes and workflows that were stuck", markup=False)
    else:
        output.out().print("no workflow is stuck", markup=False)
    return 0
