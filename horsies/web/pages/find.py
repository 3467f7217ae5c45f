"""The search of every page (M-91): an id, its beginning, its end or its short form, and the name of a task lead to what
they name. Each look is bounded: no index has the ends of ids, so these are looked for among the newest tasks.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from horsies import monitoring
from horsies.core.models.monitoring.tasks import TaskSummary
from horsies.core.monitoring.filters import TaskFilter
from horsies.core.monitoring.task_queries import find_tasks
from horsies.core.types import Ok
from horsies.web.format import CUT, id_ends
from horsies.web.pages.frame import Viewer, query, viewer_of
from horsies.web.screens import Screen

MOST_WORKFLOWS = 200  # of which the ends of ids are compared: the open ones, and those that ended last


async def find(request: Request) -> Response:
    viewer = await viewer_of(request)
    return RedirectResponse(await place_of(viewer, viewer.param("q")), 303)


async def place_of(viewer: Viewer, wanted: str) -> str:
    """The address of what somebody looks for; the list of tasks whose ids begin so, if there is nothing."""
    if not wanted:
        return viewer.path("tasks")
    broker = viewer.dashboard.broker
    for kind, found in (
        ("tasks", await monitoring.get_task_detail(broker, wanted)),
        ("workflows", await monitoring.get_workflow_run(broker, wanted)),
    ):
        if isinstance(found, Ok) and found.value is not None:
            return viewer.path(kind, wanted)
    begin, end = id_ends(wanted)
    if end is None:
        if is_known(viewer, wanted) or await some(viewer, task_names=[wanted]):
            return viewer.path("tasks") + query(name=wanted)
        if await some(viewer, id_prefix=wanted):
            return viewer.path("tasks") + query(id=wanted)
        begin, end = "", wanted
    return await place_by_ends(viewer, begin, end) or viewer.path("tasks") + query(id=wanted)


async def place_by_ends(viewer: Viewer, begin: str, end: str) -> str | None:
    """The task or workflow whose id begins and ends so, or the list of several such tasks."""
    found = await some(viewer, id_prefix=begin or None, id_suffix=end)
    if len(found) == 1:
        return viewer.path("tasks", found[0].task_id)
    if found:
        return viewer.path("tasks") + query(id=f"{begin}{CUT}{end}")
    runs = await monitoring.list_workflow_runs(viewer.dashboard.broker, limit=MOST_WORKFLOWS)
    ids = [run.workflow_id for run in runs.value] if isinstance(runs, Ok) else []
    like = [one for one in ids if one.startswith(begin) and one.endswith(end)]
    return viewer.path("workflows", like[0]) if len(like) == 1 else None


def is_known(viewer: Viewer, name: str) -> bool:
    app = viewer.dashboard.app
    return app is not None and name in app.tasks


async def some(viewer: Viewer, **wanted: Any) -> tuple[TaskSummary, ...]:
    """Up to two such tasks, of those that a list looks at."""
    found = await find_tasks(viewer.dashboard.broker, TaskFilter(**wanted), limit=2, counted=False)
    return found.value.items if isinstance(found, Ok) else ()


SCREENS = (Screen("/find", find),)
