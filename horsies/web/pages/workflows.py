"""Workflows (M-91): the list, one run as a graph, a timeline and a table of nodes, and one node."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from horsies import monitoring
from horsies.core.models.monitoring.tasks import WorkflowNodeInfo, WorkflowRunDetail
from horsies.core.types import Ok, WorkflowStatus, WorkflowTaskStatus
from horsies.web.pages.frame import Viewer, not_found, query, with_viewer
from horsies.web.pages.standstill import standstill_of
from horsies.web.pages.task import audit_of
from horsies.web.payloads import tree, tree_of
from horsies.web.screens import Screen
from horsies.web.svg.folding import fold, graph_of
from horsies.web.svg.graph import GraphLinks, graph_svg, legend_svg
from horsies.web.svg.layout import lay_out
from horsies.web.svg.timeline import rows_of_run, timeline_svg

LIST_SIZE = 100
SHOWN_NODES = 200
MOST_OPENED = 20
LONGEST_INDEX = 10
STATES = tuple(status.value for status in WorkflowStatus)
_URGENCY = {
    WorkflowTaskStatus.FAILED: 0,
    WorkflowTaskStatus.RUNNING: 1,
    WorkflowTaskStatus.ENQUEUED: 2,
    WorkflowTaskStatus.READY: 3,
    WorkflowTaskStatus.PENDING: 4,
}


async def workflows(viewer: Viewer) -> Response:
    status, name = viewer.one_of("status", STATES, ""), viewer.param("name")
    runs = await viewer.read(monitoring.list_workflow_runs, name=name or None, status=status or None, limit=LIST_SIZE)
    names = await monitoring.list_workflow_names(viewer.dashboard.broker)
    return await viewer.show(
        "workflows.html",
        "Workflows",
        topics="workflows",
        runs=runs,
        limit=LIST_SIZE,
        name=name,
        status=status,
        names=names.value if isinstance(names, Ok) else (),
        tabs=[_tab(one, status, name) for one in ("", *STATES)],
    )


def _tab(status: str, current: str, name: str) -> dict[str, Any]:
    return {
        "label": status.capitalize() or "All",
        "query": query(status=status, name=name),
        "is_current": status == current,
    }


async def workflow(viewer: Viewer) -> Response:
    workflow_id = viewer.request.path_params["workflow_id"]
    run = await viewer.read(monitoring.get_workflow_run, workflow_id)
    opened = viewer.params("open")[:MOST_OPENED]
    audit = await audit_of(viewer, workflow_id)
    return await viewer.show(
        "workflow.html",
        "Workflows",
        topics="workflows tasks" if not run.run.status.is_terminal else "workflows",
        ids=workflow_id if run.run.status.is_terminal else "",
        run=run,
        opened=opened,
        hides=viewer.dashboard.config.hide_payloads,
        audit=audit,
        drawn=lambda: {**drawn(viewer, run, opened), "standstill": standstill_of(run, audit, viewer.now)},
    )


def drawn(viewer: Viewer, run: WorkflowRunDetail, opened: Sequence[str]) -> Mapping[str, Any]:
    """The pictures, the table and the payloads of a run, which may have ten thousand nodes."""
    workflow_id = run.run.workflow_id

    def to_node(index: int) -> str:
        return viewer.path("workflows", workflow_id, "nodes", index)

    links = GraphLinks(
        node=to_node,
        unfold=lambda key: _opening(viewer, workflow_id, [*opened, key]),
        refold=lambda key: _opening(viewer, workflow_id, [one for one in opened if one != key]),
    )
    nodes, edges = graph_of(run)
    graph = fold(nodes, edges, opened=opened)
    return {
        "counts": counts_of(run),
        "graph": graph_svg(lay_out(graph), title=f"Nodes of {run.run.name}", links=links),
        "legend": legend_svg(str(node.status) for node in run.nodes),
        "failures": [key for _, key in graph.failures()],
        "timeline": timeline_svg(rows_of_run(run, to_node), title="Nodes over time", now=viewer.now),
        "shown_nodes": most_urgent(run.nodes),
        "result": None if has_only_error(run) else tree(run.result),
        "error": tree(run.error),
    }


def _opening(viewer: Viewer, workflow_id: str, keys: Sequence[str]) -> str:
    return viewer.path("workflows", workflow_id) + query(open=list(dict.fromkeys(keys))) + "#graph"


def has_only_error(run: WorkflowRunDetail) -> bool:
    """Whether the result is nothing but the error, which is shown by itself."""
    try:
        return run.error is not None and json.loads(run.result or "null") == {"err": json.loads(run.error)}
    except (ValueError, RecursionError):
        return False


def counts_of(run: WorkflowRunDetail) -> list[tuple[str, int]]:
    """How many nodes are in each state, the urgent ones first."""
    counts = Counter(node.status for node in run.nodes)
    return [(status.value.lower(), counts[status]) for status in sorted(counts, key=_urgency)]


def most_urgent(nodes: Sequence[WorkflowNodeInfo]) -> list[WorkflowNodeInfo]:
    """The nodes of the table: failed and open ones first if there are too many, then in the order of the graph."""
    if len(nodes) <= SHOWN_NODES:
        return list(nodes)
    return sorted(nodes, key=lambda node: (_urgency(node.status), node.task_index))[:SHOWN_NODES]


def _urgency(status: WorkflowTaskStatus) -> int:
    return _URGENCY.get(status, 9)


def index_in(text: str) -> int:
    """The index of a node in an address. No node has a longer one, and Python reads no number of any length."""
    if len(text) > LONGEST_INDEX or not (text.isascii() and text.isdigit()):
        raise not_found("node")
    return int(text)


async def node(viewer: Viewer) -> Response:
    given = viewer.request.path_params
    workflow_id, index = given["workflow_id"], index_in(given["index"])
    found = await viewer.read(monitoring.get_workflow_node, workflow_id, index)
    explained = await monitoring.explain_task(viewer.dashboard.broker, f"{workflow_id}:{index}")
    is_open = found.node.status not in (
        WorkflowTaskStatus.COMPLETED,
        WorkflowTaskStatus.FAILED,
        WorkflowTaskStatus.SKIPPED,
    )
    task = found.task
    return await viewer.show(
        "node.html",
        "Workflows",
        topics="workflows tasks",
        workflow_id=workflow_id,
        detail=replace(found, task=None),
        node=found.node,
        task=task,
        why=explained.value if is_open and isinstance(explained, Ok) else None,
        hides=viewer.dashboard.config.hide_payloads,
        drawn=lambda: {
            "kwargs": tree(found.task_kwargs),
            "result": tree(found.result),
            "inputs": tree_of(dict(found.args_from)) if found.args_from else None,
        },
    )


SCREENS = (
    Screen("/workflows", with_viewer(workflows)),
    Screen("/workflows/{workflow_id}", with_viewer(workflow)),
    Screen("/workflows/{workflow_id}/nodes/{index}", with_viewer(node)),
)
