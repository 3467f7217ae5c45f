"""The terminal dashboard shows rows whatever is in them (M-80): each odd value has a row of its own, in a database
without the constraints. Every row is opened and copied, and nothing ends the program.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.models.monitoring.tasks import GroupRow
from horsies.core.types.status import TaskStatus
from tests.cli import test_odd_rows as odd
from tests.factories import given_attempt, given_node, given_task, given_worker, given_workflow
from tests.hostile_support import obeyed
from tests.odd_rows_support import drop_constraints
from tests.services.tui.support import Viewer

pytestmark = [pytest.mark.slow("opens every odd row in the dashboard"), pytest.mark.timeout(900)]

Fill = Callable[[AsyncConnection[Any]], Awaitable[Any]]


async def schedules(db: AsyncConnection[Any]) -> None:
    for number, what in enumerate(await odd.planted(db, "horsies_schedule_state")):
        await db.execute("INSERT INTO horsies_schedule_state (schedule_name) VALUES (%s)", [f"s{number}"])
        await odd.plant(db, what, "schedule_name", f"s{number}")


async def unknown_states(db: AsyncConnection[Any]) -> None:
    task_id = await given_task(db, status=TaskStatus.RUNNING, started_at="now")
    await given_attempt(db, task_id, outcome="BO\x1b[2JGUS")
    workflow_id = await given_workflow(db, status="BO\x1b[2JGUS", open_nodes=1)
    await given_node(db, workflow_id, status="BO\x1b[2JGUS", node_type="BO\x1b[2JGUS")
    await db.execute("UPDATE horsies_tasks SET status = %s", ["BO\x1b[2JGUS"])
    await given_worker(db, "w1")


@pytest.mark.parametrize(
    ("fill", "tabs"),
    [
        (odd.tasks, "13"),
        (odd.attempts_and_heartbeats, "13"),
        (odd.workers, "125"),
        (odd.workflows, "14"),
        (schedules, "15"),
        (unknown_states, "12345"),
    ],
)
async def test_m80_rows_are_shown_whatever_is_in_them(
    viewer: Viewer, db: AsyncConnection, fill: Fill, tabs: str
) -> None:
    await drop_constraints(db)
    await fill(db)
    for tab in tabs:
        await viewer.press(tab, "r")
        await viewer.sees(f"[{tab} ", without=("nothing is known yet", "  …"))
        if tab == "3":
            await open_groups(viewer)
        await open_rows(viewer)


async def open_groups(viewer: Viewer) -> None:
    """The first one stays open, and its tasks are rows."""
    await viewer.press("home", "enter")
    await viewer.sees("since")


async def open_rows(viewer: Viewer, most: int = 12) -> None:
    """Every row that can be selected, or every so many-th of very many."""
    keys = [row.key for row in viewer.list.rows if row.key is not None and not isinstance(row.value, GroupRow)]
    for key in keys[:: max(1, len(keys) // most)]:
        viewer.app.desk.view.selected = key
        viewer.app.draw()
        await viewer.press("y", "enter")
        await viewer.sees("›", without=("  …\n",))
        assert obeyed(viewer.screen) == set()
        await viewer.press("y", "end", "escape")
        assert viewer.app.is_running and not viewer.app.desk.trail, key
