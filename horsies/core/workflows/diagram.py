"""The graph of a workflow with the current states of its nodes, as Mermaid text. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from horsies.core.store.workflow_reads import NodeRow
from horsies.core.types.status import WorkflowTaskStatus

# A node is a box, a child workflow a box with double sides, a map a stack of its own shape.
_SHAPES = {"TASK": ('["', '"]'), "SUBWORKFLOW": ('[["', '"]]'), "MAP": ('[/"', '"/]')}
_COLOURS = {
    WorkflowTaskStatus.PENDING: "fill:#f4f4f4,stroke:#999,color:#333",
    WorkflowTaskStatus.READY: "fill:#eef4ff,stroke:#5b8def,color:#222",
    WorkflowTaskStatus.ENQUEUED: "fill:#dbe8ff,stroke:#5b8def,color:#222",
    WorkflowTaskStatus.RUNNING: "fill:#fff3cd,stroke:#d39e00,color:#222",
    WorkflowTaskStatus.COMPLETED: "fill:#d7f5dd,stroke:#2e8540,color:#222",
    WorkflowTaskStatus.FAILED: "fill:#fddede,stroke:#c0392b,color:#222",
    WorkflowTaskStatus.SKIPPED: "fill:#f4f4f4,stroke:#999,color:#777,stroke-dasharray:4 3",
}
_SPECIAL = re.compile(r"[^\w .,:/()\-]", re.ASCII)


def mermaid(rows: Sequence[NodeRow]) -> str:
    """A flowchart from top to bottom. The elements of a map are counted, not drawn."""
    nodes = [row for row in rows if row.node_type != "ELEMENT"]
    elements: dict[int, Counter[WorkflowTaskStatus]] = {}
    for row in rows:
        if row.map_index is not None:
            elements.setdefault(row.map_index, Counter())[row.status] += 1
    lines = ["flowchart TD"]
    lines += [_drawn(node, elements.get(node.task_index)) for node in nodes]
    lines += [f"    n{source} --> n{node.task_index}" for node in nodes for source in node.dependencies]
    shown = {node.status for node in nodes}
    lines += [f"    classDef {status} {style}" for status, style in _COLOURS.items() if status in shown]
    return "\n".join(lines) + "\n"


def _drawn(node: NodeRow, elements: Counter[WorkflowTaskStatus] | None) -> str:
    opening, closing = _SHAPES[node.node_type]
    state = node.status.value
    if elements:
        state += f" {elements[WorkflowTaskStatus.COMPLETED]}/{elements.total()}"
    if node.error_code and node.status is WorkflowTaskStatus.FAILED:
        state += f": {_text(node.error_code)}"
    label = f"{_text(node.node_id)}<br/>{state}"
    return f"    n{node.task_index}{opening}{label}{closing}:::{node.status}"


def _text(text: str) -> str:
    """The text of a label: characters with a meaning in Mermaid are written as numbers."""
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
