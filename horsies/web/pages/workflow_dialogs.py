"""What is asked before something is done to a workflow (M-91): pause, resume or cancel it, or retry what has failed."""

from __future__ import annotations

from horsies import monitoring
from horsies.core.text import visible
from horsies.web.format import of
from horsies.web.pages import standstill
from horsies.web.pages.asking import MOST_NAMED, Dialog, DialogMaker, listed, value, values
from horsies.web.pages.frame import Viewer, not_found


def changing(
    action: str, title: str, sentence: str, confirm: str, said: str, *, is_dangerous: bool = False
) -> DialogMaker:
    async def make(viewer: Viewer) -> Dialog:
        run = (await viewer.read(monitoring.get_workflow_run, value(viewer, "id"))).run
        return Dialog(
            f"{title} {visible(run.name)}?",
            [f"{_stands(run)} {sentence}"],
            viewer.path("api", "workflows", run.workflow_id, action),
            confirm,
            said,
            is_dangerous=is_dangerous,
        )

    return make


def _stands(run: monitoring.WorkflowRunSummary) -> str:
    return f"Workflow {run.workflow_id} is {run.status.value}, with {of(run.open_nodes, 'open node')}."


async def resume_workflow(viewer: Viewer) -> Dialog:
    """What a resume does depends on what has failed: it may end the workflow at once."""
    found = await viewer.read(monitoring.get_workflow_run, value(viewer, "id"))
    fails = standstill.will_fail(found, viewer.now)
    sentences = [_stands(found.run), *standstill.resume_in_words(found, viewer.now)]
    if found.failed_indexes:
        sentences.append("To run what failed again, choose “Retry failed nodes…” instead.")
    return Dialog(
        f"Resume {visible(found.run.name)}?",
        sentences,
        viewer.path("api", "workflows", found.run.workflow_id, "resume"),
        "Resume it, and let it fail" if fails else "Resume it",
        "The workflow was resumed.",
        is_dangerous=fails,
        said_by_status=standstill.SAID_AFTER,
    )


async def retry_workflow(viewer: Viewer) -> Dialog:
    found = await viewer.read(monitoring.get_workflow_run, value(viewer, "id"))
    wanted = values(viewer, "node")
    failed = [node for node in found.nodes if node.task_index in set(found.failed_indexes)]
    chosen = [node for node in failed if not wanted or node.node_id in wanted]
    if not chosen:
        raise not_found("failed node")
    is_one = len(chosen) == 1
    because = f"were skipped because of {'it' if is_one else 'them'}"
    return Dialog(
        f"Retry {of(len(chosen), 'failed node')} of {visible(found.run.name)}?",
        [f"{'It runs' if is_one else 'They run'} again, and then those that {because}. What succeeded is kept."],
        viewer.path("api", "workflows", found.run.workflow_id, "retry"),
        "Retry",
        "The failed node runs again." if is_one else "The failed nodes run again.",
        [listed("node_ids", wanted)] if wanted else [],
        ("node", "task", "error"),
        [(node.node_id, node.task_name, node.error_code) for node in chosen[:MOST_NAMED]],
        max(0, len(chosen) - MOST_NAMED),
    )
