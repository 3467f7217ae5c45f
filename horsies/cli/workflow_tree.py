"""A workflow as `horsies workflow show` prints it: a tree for people and JSON for programs. Its nodes have the elements
of maps and the nodes of child workflows below them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from horsies.cli import output
from horsies.core.codec.serde import task_result_from_json
from horsies.core.store.workflow_reads import NodeRow, WorkflowRow
from horsies.core.text import visible
from horsies.core.types import Ok, WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.read import WorkflowFamily

MOST_ELEMENTS = 20
LONGEST_ERROR = 160

STYLES = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CANCELLED": "red",
    "RUNNING": "yellow",
    "PAUSED": "bold yellow",
    "ENQUEUED": "cyan",
    "READY": "cyan",
    "PENDING": "dim",
    "SKIPPED": "dim",
}

# If a map has many elements, those in the first of these states are shown.
_URGENCY = (
    WorkflowTaskStatus.FAILED,
    WorkflowTaskStatus.RUNNING,
    WorkflowTaskStatus.ENQUEUED,
    WorkflowTaskStatus.READY,
    WorkflowTaskStatus.PENDING,
    WorkflowTaskStatus.SKIPPED,
    WorkflowTaskStatus.COMPLETED,
)


def as_lines(family: WorkflowFamily, room: int | None = None) -> "list[output.Line]":
    """The tree, a line for each node. What does not fit into `room` columns is on further lines below it."""
    lines = list(_Tree(family).lines())
    width = max(len(line.lead) + len(line.name) for line in lines)
    times = [_time(line.seconds) for line in lines]
    longest = max(map(len, times))
    found = []
    for line, time in zip(lines, times, strict=True):
        parts = [
            (line.lead, "dim"),
            (line.name.ljust(width - len(line.lead)), "default"),
            (f"  {line.status:<9}", STYLES.get(line.status, "default")),
            (f"  {time:>{longest}}", "default"),
        ]
        for row in _rows(parts, line, room):
            text = output.styled(*row)
            text.rstrip()
            found.append(text)
    return found


def _rows(parts: list[tuple[str, str]], line: "_Line", room: int | None) -> list[list[tuple[str, str]]]:
    """The parts of a node and its remarks, on as many lines as they need."""
    rows = [parts]
    below = line.lead.replace("├─ ", "│  ").replace("└─ ", "   ") + "   "
    for remark, style in line.remarks:
        used = sum(len(text) for text, _ in rows[-1])
        if room is not None and used + 2 + len(remark) > room:
            rows.append([(below, "dim"), (remark, style)])
        else:
            rows[-1].append((f"  {remark}", style))
    return rows


def as_json_tree(family: WorkflowFamily) -> dict[str, Any]:
    """The same as plain values, complete."""
    tree = _Tree(family)
    return tree.workflow_values(family.workflows[0])


def error_text(result: str | None) -> str | None:
    """The text of a stored error result, on one line; None if the result is not an error."""
    if result is None:
        return None
    read = task_result_from_json(result)
    if not isinstance(read, Ok) or read.value.err is None:
        return None
    error = read.value.err
    return " ".join(": ".join(part for part in (error.code, error.message) if part).split()) or None


@dataclass(frozen=True, slots=True)
class _Line:
    """One row of the tree, before its columns are aligned."""

    lead: str  # the branches to the left of the name
    name: str
    status: str
    seconds: float | None
    remarks: Sequence[tuple[str, str]]  # text and style


class _Tree:
    def __init__(self, family: WorkflowFamily) -> None:
        self._top = family.workflows[0]
        self._workflows = {workflow.id: workflow for workflow in family.workflows}
        self._nodes: dict[str, list[NodeRow]] = {}
        self._elements: dict[tuple[str, int], list[NodeRow]] = {}
        for node in family.nodes:
            if node.map_index is None:
                self._nodes.setdefault(node.workflow_id, []).append(node)
            else:
                self._elements.setdefault((node.workflow_id, node.map_index), []).append(node)

    def lines(self) -> Iterator[_Line]:
        top = self._top
        remarks = [(top.id, "dim")]
        if top.error_code is not None and top.status is WorkflowStatus.FAILED:
            remarks.append((_cut(error_text(top.error and f'{{"err":{top.error}}}') or top.error_code), "red"))
        yield _Line("", visible(top.name), top.status, top.seconds, remarks)
        yield from self._branches(top.id, "")

    def _branches(self, workflow_id: str, lead: str) -> Iterator[_Line]:
        nodes = self._nodes.get(workflow_id, [])
        ids = {node.task_index: node.node_id for node in nodes}
        for node in nodes:
            is_last = node is nodes[-1]
            yield self._line(node, lead + ("└─ " if is_last else "├─ "), ids)
            yield from self._below(node, lead + ("   " if is_last else "│  "))

    def _below(self, node: NodeRow, lead: str) -> Iterator[_Line]:
        if node.sub_workflow_id is not None:
            yield from self._branches(node.sub_workflow_id, lead)
        elements = self._elements.get((node.workflow_id, node.task_index), [])
        shown = sorted(elements, key=lambda element: (_URGENCY.index(element.status), element.task_index))
        shown, rest = shown[:MOST_ELEMENTS], shown[MOST_ELEMENTS:]
        shown.sort(key=lambda element: element.task_index)
        for element in shown:
            is_last = element is shown[-1] and not rest
            yield self._line(element, lead + ("└─ " if is_last else "├─ "), {})
        if rest:
            counts = Counter(element.status.value for element in rest)
            told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
            yield _Line(lead + "└─ ", f"… {len(rest)} more", "", None, [(told, "dim")])

    def _line(self, node: NodeRow, lead: str, ids: dict[int, str]) -> _Line:
        remarks = [] if node.task_id is None else [(node.task_id, "dim")]
        if node.node_type == "SUBWORKFLOW":
            remarks.append((f"workflow {node.sub_workflow_id or node.task_name}", "dim"))
        elif node.node_type == "MAP":
            elements = self._elements.get((node.workflow_id, node.task_index), [])
            done = sum(element.status is WorkflowTaskStatus.COMPLETED for element in elements)
            remarks.append((f"map {done}/{len(elements)}", "dim"))
        if node.status is WorkflowTaskStatus.FAILED:
            remarks.append((_cut(error_text(node.result) or node.error_code or "no result"), "red"))
        if node.previous_task_ids:
            remarks.append((f"run {len(node.previous_task_ids) + 1}", "yellow"))
        if node.dependencies:
            remarks.append(("← " + ", ".join(ids.get(index, str(index)) for index in node.dependencies), "dim"))
        return _Line(lead, visible(node.node_id), node.status, node.seconds, remarks)

    def workflow_values(self, workflow: WorkflowRow) -> dict[str, Any]:
        nodes = self._nodes.get(workflow.id, [])
        ids = {node.task_index: node.node_id for node in nodes}
        return {
            "id": workflow.id,
            "name": workflow.name,
            "definition_key": workflow.definition_key,
            "status": workflow.status,
            "error_code": workflow.error_code,
            "error": error_text(workflow.error and f'{{"err":{workflow.error}}}'),
            "sent_at": workflow.sent_at,
            "started_at": workflow.started_at,
            "paused_at": workflow.paused_at,
            "completed_at": workflow.completed_at,
            "good_until": workflow.good_until,
            "seconds": workflow.seconds,
            "nodes": [self._node_values(node, ids) for node in nodes],
        }

    def _node_values(self, node: NodeRow, ids: dict[int, str]) -> dict[str, Any]:
        values: dict[str, Any] = {
            "node_id": node.node_id,
            "index": node.task_index,
            "type": node.node_type,
            "name": node.task_name,
            "status": node.status,
            "error_code": node.error_code,
            "error": error_text(node.result),
            "waits_for": [ids.get(index, str(index)) for index in node.dependencies],
            "task_id": node.task_id,
            "previous_task_ids": list(node.previous_task_ids),
            "started_at": node.started_at,
            "completed_at": node.completed_at,
            "seconds": node.seconds,
        }
        if node.node_type == "MAP":
            elements = self._elements.get((node.workflow_id, node.task_index), [])
            values["elements"] = [self._node_values(element, {}) for element in elements]
        if node.node_type == "SUBWORKFLOW":
            child = self._workflows.get(node.sub_workflow_id or "")
            values["workflow"] = None if child is None else self.workflow_values(child)
        return values


def _cut(text: str) -> str:
    text = visible(text)
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else output.duration(seconds)
