"""What is asked before anything is changed (M-91: the dry run first): what would happen, to what, and a button. A
dialog changes nothing itself: its form is sent to the JSON API, which checks everything again."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.recovery import SweepStaleWorkersOptions
from horsies.core.recovery.utils import WorkerUtils
from horsies.core.text import visible
from horsies.core.types import Ok, TaskStatus
from horsies.web.answers import Refusal, not_done
from horsies.web.bulk_actions import MOST_IDS
from horsies.web.endpoints import answered
from horsies.web.format import count, of
from horsies.web.pages import task_dialogs, workflow_dialogs
from horsies.web.pages.asking import MOST_NAMED, Dialog, DialogMaker, FormField, listed, value, values
from horsies.web.pages.frame import Viewer, not_found, viewer_of
from horsies.web.pages.queue_choice import UNSERVED, queue_options
from horsies.web.pages.schedules import about_pausing, about_resuming, about_triggering
from horsies.web.render import render
from horsies.web.screens import Screen

WHY_NOT = {
    "TASK_NOT_FOUND": "there is no such task any more",
    "TASK_NOT_CANCELLABLE": "they have ended, or run",
    "TASK_IS_WORKFLOW_TASK": "they belong to workflows, which are cancelled or retried as a whole",
    "TASK_HAS_COMPLETED": "they have succeeded",
    "TASK_HAS_NOT_ENDED": "they have not ended",
    "TASK_ALREADY_RERUN": "they were run again before",
    "TASK_NOT_WAITING": "they do not wait any more",
    "TASK_ALREADY_THERE": "they are there already",
    "TASK_REFUSED_BY_DATABASE": "the database refuses them",
}


def _ids(viewer: Viewer) -> list[str]:
    """The selected tasks."""
    if not (found := values(viewer, "ids")):
        raise Refusal(422, "INVALID_ARGUMENT", "no task is selected")
    return found[:MOST_IDS]


async def _dry_run(viewer: Viewer, title: str, result: Any, *, is_once: bool = False, **more: Any) -> Dialog:
    """What a dry run has told, and how to do it. Of a group that is sent again once it does not know which were."""
    found: monitoring.BulkResult = viewer.dashboard.masking.applied_to(answered(result))
    sentences = [f"{count(found.changed, found.is_exact)} of the tasks would be changed."]
    if is_once and found.changed and not found.is_complete:
        most = f"At most {found.changed:,} of the tasks would be changed"
        sentences = [f"{most}: those that were run again before are left alone."]
    for code, number in found.skipped.items():
        sentences.append(f"{number:,} would be left alone: {WHY_NOT.get(code, code)}.")
    examples = [(one.task_name, one.status.value, one.queue_name, one.task_id) for one in found.examples[:MOST_NAMED]]
    if not found.changed:
        return Dialog(title, sentences)
    return Dialog(
        title,
        [*sentences, *more.pop("sentences", ())],
        columns=("task", "state", "queue", "id"),
        rows=examples,
        more=max(0, found.changed - len(examples)),
        **more,
    )


async def cancel_tasks(viewer: Viewer) -> Dialog:
    ids = _ids(viewer)
    result = await monitoring.cancel_tasks(viewer.dashboard.acting_broker, ids, include_running=True, dry_run=True)
    return await _dry_run(
        viewer,
        f"Cancel {of(len(ids), 'task')}?",
        result,
        sentences=["The code of those that are running is stopped."],
        api=viewer.path("api", "bulk", "cancel"),
        confirm="Cancel them",
        said="The tasks are cancelled.",
        fields=[listed("ids", ids), FormField("include_running", True, "also those that are running", "flag")],
        is_dangerous=True,
    )


async def rerun_tasks(viewer: Viewer) -> Dialog:
    ids = _ids(viewer)
    result = await monitoring.rerun_tasks(viewer.dashboard.acting_broker, ids, dry_run=True)
    return await _dry_run(
        viewer,
        f"Run {of(len(ids), 'task')} again?",
        result,
        sentences=["Each becomes a new task with the same arguments; the old ones stay."],
        api=viewer.path("api", "bulk", "rerun"),
        confirm="Run them again",
        said="New tasks were sent.",
        fields=[listed("ids", ids)],
    )


async def rerun_group(viewer: Viewer) -> Dialog:
    """The failed tasks of a name and code."""
    names, codes = values(viewer, "name"), values(viewer, "code")
    if not names or not codes:
        raise Refusal(422, "INVALID_ARGUMENT", "a group of failures has a task name and an error code")
    result = await monitoring.rerun_tasks(
        viewer.dashboard.acting_broker, statuses=[TaskStatus.FAILED], task_names=names, error_codes=codes, dry_run=True
    )
    return await _dry_run(
        viewer,
        f"Run the failed {visible(', '.join(names))} with {visible(', '.join(codes))} again?",
        result,
        is_once=True,
        sentences=["Each becomes a new task with the same arguments, once; at most 10,000 at a time."],
        api=viewer.path("api", "bulk", "rerun"),
        confirm="Run them again",
        said="New tasks were sent.",
        fields=[listed("task_names", names), listed("error_codes", codes)],
    )


async def move_tasks(viewer: Viewer) -> Dialog:
    ids = _ids(viewer)
    result = await monitoring.move_tasks(viewer.dashboard.acting_broker, ids, dry_run=True)  # where to is asked in it
    return await _dry_run(
        viewer,
        f"Move {of(len(ids), 'task')} to another queue or priority?",
        result,
        sentences=["Only waiting tasks move."],
        api=viewer.path("api", "bulk", "move"),
        confirm="Move them" if len(ids) > 1 else "Move it",
        said="The tasks are moved." if len(ids) > 1 else "The task is moved.",
        fields=[
            listed("ids", ids),
            FormField(
                "queue", "", "New queue (empty: as it is)", options=await queue_options(viewer, ids), otherwise=UNSERVED
            ),
            FormField("priority", "", "New priority (1 is first; empty: as it is)", "number"),
        ],
    )


async def sweep(viewer: Viewer) -> Dialog:
    """What a sweep would do now."""
    options = SweepStaleWorkersOptions(dry_run=True)
    swept = await WorkerUtils(viewer.dashboard.acting_broker).sweep_stale_workers(options)
    if not isinstance(swept, Ok):
        message = viewer.dashboard.database.redact(swept.error.message)
        raise not_done(swept.error.code, message, retryable=swept.error.retryable)
    dead = swept.value.worker_ids
    if not dead:
        return Dialog("Sweep dead workers", ["No worker counts as dead: there is nothing to recover."])
    return Dialog(
        f"Recover the tasks of {of(len(dead), 'dead worker')}?",
        ["Their tasks are returned to the queue or failed, as the settings of recovery say."],
        viewer.path("api", "recovery", "sweep"),
        "Sweep",
        "The sweep is done.",
        columns=("worker",),
        rows=[(worker,) for worker in dead[:MOST_NAMED]],
        more=max(0, len(dead) - MOST_NAMED),
        is_dangerous=True,
    )


def _schedule(action: str, words: Callable[[Viewer, str], Awaitable[str]], said: str) -> DialogMaker:
    async def make(viewer: Viewer) -> Dialog:
        name = value(viewer, "name")
        path, verb = viewer.path("api", "schedules", name, action), action.capitalize()
        return Dialog(f"{verb} schedule {visible(name)}?", [await words(viewer, name)], path, f"{verb} it", said)

    return make


async def edit_schedule(viewer: Viewer) -> Dialog:
    name = value(viewer, "name")
    schedules = await viewer.read(monitoring.list_schedules)
    found = next((one for one in schedules if one.name == name and one.source == "database"), None)
    if found is None or found.definition is None:
        raise not_found("schedule that can be edited")
    pattern = json.dumps(found.definition.get("pattern"), indent=1)
    sentences = ["Its arguments stay as they are. A changed pattern starts with its next run."]
    if found.paused:
        sentences.append("It is paused, and stays so until it is resumed.")
    is_enabled = FormField("enabled", bool(found.definition.get("enabled", True)), "enabled", "flag")
    return Dialog(
        f"Edit schedule {visible(name)}",
        sentences,
        viewer.path("api", "schedules", name, "edit"),
        "Save",
        "The schedule is changed.",
        [
            FormField("pattern", pattern, "When (JSON)", "json"),
            FormField("timezone", found.definition.get("timezone", "UTC"), "Time zone", is_required=True),
            *([] if found.paused else [is_enabled]),
        ],
    )


async def drain_worker(viewer: Viewer) -> Dialog:
    worker_id = value(viewer, "id")
    found = next((one for one in await viewer.read(monitoring.list_workers) if one.worker_id == worker_id), None)
    if found is None:
        raise not_found("registered worker")
    running = "" if found.tasks_running is None else f" It runs {of(found.tasks_running, 'task')} now."
    return Dialog(
        f"Drain worker {visible(worker_id)}?",
        [
            f"It claims nothing more, finishes what it runs, and leaves, as after SIGTERM.{running}",
            "Whatever starts it may start it again.",
        ],
        viewer.path("api", "workers", worker_id, "drain"),
        "Drain it",
        "The worker drains.",
    )


DIALOGS: Mapping[str, DialogMaker] = {
    "cancel-task": task_dialogs.cancel_task,
    "rerun-task": task_dialogs.rerun_task,
    "run-task-now": task_dialogs.run_task_now,
    "cancel-tasks": cancel_tasks,
    "rerun-tasks": rerun_tasks,
    "rerun-group": rerun_group,
    "move-tasks": move_tasks,
    "pause-workflow": workflow_dialogs.changing(
        "pause", "Pause", "What runs goes on to its end; no further node starts.", "Pause it", "The workflow is paused."
    ),
    "resume-workflow": workflow_dialogs.resume_workflow,
    "cancel-workflow": workflow_dialogs.changing(
        "cancel",
        "Cancel",
        "Its open nodes and its child workflows are cancelled; running code is stopped.",
        "Cancel it",
        "The workflow is cancelled.",
        is_dangerous=True,
    ),
    "retry-workflow": workflow_dialogs.retry_workflow,
    "sweep": sweep,
    "drain-worker": drain_worker,
    "pause-schedule": _schedule("pause", about_pausing, "The schedule is paused."),
    "resume-schedule": _schedule("resume", about_resuming, "The schedule runs again."),
    "trigger-schedule": _schedule("trigger", about_triggering, "The task of the schedule was sent."),
    "edit-schedule": edit_schedule,
}


async def show(request: Request) -> Response:
    viewer = await viewer_of(request)
    make = DIALOGS.get(request.path_params["name"])
    if make is None:
        raise not_found("dialog")
    if not viewer.meta.can_act:
        raise Refusal(403, "FORBIDDEN", viewer.meta.actions_disabled_reason or "you may look, but not act")
    return render(request, "dialog.html", dialog=await make(viewer))


SCREENS = (Screen("/dialogs/{name}", show),)
