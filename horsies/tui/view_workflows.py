"""Tab 4: workflows with their progress, one workflow with its nodes, and one node (M-80). Plain functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from horsies.cli.output import between
from horsies.cli.tables import Column
from horsies.core.models.monitoring.cluster import Explanation
from horsies.core.models.monitoring.tasks import (
    WorkflowNodeInfo,
    WorkflowRunDetail,
    WorkflowRunSummary,
    WorkflowTaskDetail,
)
from horsies.core.types import WORKFLOW_TASK_TERMINAL_STATES, WorkflowTaskStatus
from horsies.tui.charts import bar
from horsies.tui.lines import Line, ListRow, Span, age, block, columns, line, named, number, status
from horsies.tui.view_tasks import CLOSED, OPEN, reason, task_detail

BAR, NARROW_BAR = 10, 4
NARROW = 60
DETAIL_BAR = 30
MOST_NODES = 1_000  # that are laid out at the same time


def runs(found: Sequence[WorkflowRunSummary], width: int, now: datetime) -> tuple[Line, list[ListRow]]:
    """The titles, and a line for each workflow."""
    head, lines = columns(_columns(now, BAR if width >= NARROW else NARROW_BAR), found, width)
    return head, [ListRow(shown, one.workflow_id, one) for one, shown in zip(found, lines, strict=True)]


def progress(run: WorkflowRunSummary, width: int = BAR) -> Line:
    """`█████░░░░░ 12/24`: how many of its nodes have ended. If too many have not, they were not counted."""
    if not run.nodes:
        return ()
    if run.nodes_ended is None:
        return line(("░" * width, "dim"), f" ?/{number(run.nodes)}")
    [word] = status(run.status)
    fraction = run.nodes_ended / run.nodes
    return line((bar(fraction, width), word.tone or "busy"), f" {number(run.nodes_ended)}/{number(run.nodes)}")


def _columns(now: datetime, bar_width: int) -> tuple[Column, ...]:
    return (
        Column("Workflow", lambda run: run.name, folds=True),
        Column("state", lambda run: status(run.status)),
        Column("progress", lambda run: progress(run, bar_width)),
        Column(
            "since", lambda run: age(run.completed_at or run.paused_at or run.started_at or run.sent_at, now), leaves=1
        ),
        Column("took", lambda run: _took(run, now), leaves=2),
        Column("error", lambda run: run.error_code, folds=True),
        Column("child of", lambda run: run.parent_workflow_id, leaves=4),
        Column("id", lambda run: run.workflow_id, leaves=6),
    )


def _took(run: WorkflowRunSummary, now: datetime) -> str | None:
    return between(run.started_at or run.sent_at, run.completed_at or now)


def run_detail(
    found: WorkflowRunDetail, opened: frozenset[int], search: str, width: int, now: datetime
) -> list[ListRow]:
    """A workflow and its nodes. The elements of a map are below it if it is open."""
    run = found.run
    pairs: list[tuple[str, Any]] = [
        ("workflow", run.workflow_id),
        ("child of", run.parent_workflow_id),
        ("definition", run.definition_key),
        ("sent", run.sent_at),
        ("started", run.started_at),
        ("paused", run.paused_at),
        ("ended", run.completed_at),
        ("took", _took(run, now)),
        ("deadline", run.good_until),
        ("on error", found.on_error),
        ("error", run.error_code),
    ]
    head: list[Line] = [
        (
            *line((f"{run.name}  ", "bold")),
            *status(run.status),
            Span("  "),
            *progress(run, min(DETAIL_BAR, width // 3)),
        ),
        (),
        *named(pairs, width),
    ]
    for name, text in (("error", found.error), ("result", found.result)):
        if text:
            head += [(), *block(name, text, width)][:12]
    return [*map(ListRow, head), ListRow(()), *_nodes(found, opened, search, width, now)]


def _nodes(
    found: WorkflowRunDetail, opened: frozenset[int], search: str, width: int, now: datetime
) -> Iterator[ListRow]:
    elements: dict[int, list[WorkflowNodeInfo]] = {}
    for node in found.nodes:
        if node.map_index is not None:
            elements.setdefault(node.map_index, []).append(node)
    waits_for: dict[int, list[int]] = {}
    for edge in found.edges:
        waits_for.setdefault(edge.target, []).append(edge.source)
    names = {node.task_index: node.node_id for node in found.nodes}
    shown = [
        one
        for node in found.nodes
        if node.map_index is None
        for one in (node, *(elements.get(node.task_index, ()) if node.task_index in opened else ()))
    ]
    if search:
        shown = [node for node in found.nodes if search.casefold() in f"{node.node_id} {node.status}".casefold()]
    matching, shown = len(shown), shown[:MOST_NODES]
    if not shown:
        yield ListRow(line(("no nodes", "dim")))
        return
    head, lines = columns(_node_columns(now, elements, waits_for, names, opened), shown, width)
    yield ListRow(head)
    for node, cells in zip(shown, lines, strict=True):
        yield ListRow(cells, f"node:{node.task_index}", node)
    left = matching - len(shown) + found.total_nodes - len(found.nodes)
    if left > 0:
        yield ListRow(line((f"… and {left:,} more nodes: / searches", "dim")))


def _node_columns(
    now: datetime,
    elements: dict[int, list[WorkflowNodeInfo]],
    waits_for: dict[int, list[int]],
    names: dict[int, str],
    opened: frozenset[int],
) -> tuple[Column, ...]:
    def name(node: WorkflowNodeInfo) -> str:
        if node.map_index is not None:
            return f"    {node.node_id}"
        if node.task_index in elements:
            return f"{OPEN if node.task_index in opened else CLOSED}{node.node_id}"
        return f"  {node.node_id}"

    def what(node: WorkflowNodeInfo) -> str:
        if node.node_type == "MAP":
            below = elements.get(node.task_index, [])
            return f"map {sum(one.status in WORKFLOW_TASK_TERMINAL_STATES for one in below)}/{len(below)}"
        return "workflow" if node.node_type == "SUBWORKFLOW" else node.task_name

    def before(node: WorkflowNodeInfo) -> str:
        return ", ".join(names.get(index, str(index)) for index in waits_for.get(node.task_index, ()))

    return (
        Column("Node", name, folds=True),
        Column("state", lambda node: status(node.status)),
        Column("took", lambda node: _node_took(node, now)),
        Column("error", lambda node: node.error_code, folds=True),
        Column("runs", what, leaves=1, folds=True),
        Column("after", before, leaves=2, folds=True),
        Column("task", lambda node: node.task_id, leaves=6),
    )


def _node_took(node: WorkflowNodeInfo, now: datetime) -> str | None:
    if node.completed_at is None and node.status is not WorkflowTaskStatus.RUNNING:
        return None
    return between(node.started_at, node.completed_at or now)


def node_detail(found: WorkflowTaskDetail, why: Explanation | None, width: int, now: datetime) -> list[ListRow]:
    """A node, and below it the task that runs it, if there is one."""
    node = found.node
    pairs: list[tuple[str, Any]] = [
        ("node", f"{node.node_id} ({found.workflow_id}:{node.task_index})"),
        ("type", node.node_type),
        ("runs", node.task_name),
        ("queue", node.queue_name),
        ("priority", found.priority),
        ("waits for", ", ".join(map(str, found.dependencies))),
        ("before", ", ".join(map(str, found.dependents))),
        ("join", node.join_type + (f", at least {found.min_success}" if found.min_success else "")),
        ("of these", _of_dependencies(node)),
        ("ready", node.ready_at),
        ("enqueued", node.enqueued_at),
        ("started", node.started_at),
        ("ended", node.completed_at),
        ("deadline", found.good_until),
        ("child workflow", node.sub_workflow_id),
        ("earlier tasks", ", ".join(found.previous_task_ids)),
        ("error", node.error_code),
    ]
    lines: list[Line] = [(*line((f"{node.node_id}  ", "bold")), *status(node.status)), ()]
    if why is not None and node.status not in WORKFLOW_TASK_TERMINAL_STATES:
        lines += [*reason(why, width), ()]
    lines += named(pairs, width)
    for name, text in (
        ("kwargs", found.task_kwargs),
        ("options", found.task_options),
        ("child workflow", found.sub_workflow_summary),
        ("result", found.result if found.task is None else None),
    ):
        if text:
            lines += [(), *block(name, text, width)]
    rows = list(map(ListRow, lines))
    if found.task is not None:
        rows += [ListRow(()), ListRow(line(("its task", "head"))), *task_detail(found.task, None, width, now)]
    return rows


def _of_dependencies(node: WorkflowNodeInfo) -> str:
    counts = Counter(completed=node.deps_completed, failed=node.deps_failed, skipped=node.deps_skipped)
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)
