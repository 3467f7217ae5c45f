"""Workflows as pictures: Mermaid text, a tree in the terminal, JSON."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

from horsies.cli.workflow_tree import MOST_ELEMENTS, as_json_tree, as_lines
from horsies.core.store.workflow_reads import NodeRow, WorkflowRow
from horsies.core.types.status import WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows.read import WorkflowFamily, mermaid

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BAD = json.dumps({"err": {"error_code": "BAD_THING", "message": "it\nbroke"}})


def node(index: int, status: str = "PENDING", *after: int, workflow: str = "w", **more: Any) -> NodeRow:
    given: dict[str, Any] = {
        "workflow_id": workflow,
        "task_index": index,
        "node_id": f"n{index}",
        "node_type": "TASK",
        "task_name": "t",
        "sub_workflow_key": None,
        "status": WorkflowTaskStatus(status),
        "result": None,
        "error_code": None,
        "dependencies": after,
        "map_index": None,
        "map_position": None,
        "task_id": None,
        "previous_task_ids": (),
        "sub_workflow_id": None,
        "started_at": None,
        "completed_at": None,
        "seconds": None,
    }
    return NodeRow(**{**given, **more})


def element(index: int, of: int, position: int, status: str, **more: Any) -> NodeRow:
    more = {"node_id": f"n{of}[{position}]", "node_type": "ELEMENT", "map_index": of, "map_position": position, **more}
    return node(index, status, **more)


def flow(flow_id: str = "w", status: str = "RUNNING", **more: Any) -> WorkflowRow:
    given: dict[str, Any] = {
        "id": flow_id,
        "name": "orders",
        "definition_key": "orders",
        "status": WorkflowStatus(status),
        "error": None,
        "error_code": None,
        "parent_workflow_id": None,
        "good_until": None,
        "sent_at": NOON,
        "started_at": NOON,
        "paused_at": None,
        "completed_at": None,
        "seconds": 75.0,
    }
    return WorkflowRow(**{**given, **more})


def text_of(*nodes: NodeRow, flows: list[WorkflowRow] | None = None) -> list[str]:
    return [line.plain for line in as_lines(WorkflowFamily(flows or [flow()], list(nodes)))]


def test_a_diagram_draws_kinds_states_and_edges() -> None:
    drawn = mermaid(
        [
            node(0, "COMPLETED"),
            node(1, "FAILED", 0, error_code="BAD_THING", node_type="SUBWORKFLOW"),
            node(2, "RUNNING", 0, 1, node_type="MAP"),
            element(3, 2, 0, "COMPLETED"),
            element(4, 2, 1, "READY"),
        ]
    )
    assert drawn.splitlines()[:7] == [
        "flowchart TD",
        '    n0["n0<br/>COMPLETED"]:::COMPLETED',
        '    n1[["n1<br/>FAILED: BAD_THING"]]:::FAILED',
        '    n2[/"n2<br/>RUNNING 1/2"/]:::RUNNING',
        "    n0 --> n1",
        "    n0 --> n2",
        "    n1 --> n2",
    ]
    assert set(re.findall(r"classDef (\w+) ", drawn)) == {"COMPLETED", "FAILED", "RUNNING"}


def test_nothing_in_an_id_or_a_code_means_something_to_mermaid() -> None:
    drawn = mermaid([node(0, "FAILED", node_id='end"];x-->y[', error_code='"<b>#')])
    (label,) = re.findall(r'n0\["(.*)"\]:::FAILED', drawn)
    assert '"' not in label and "[" not in label and ">y" not in label and "<b>" not in label
    assert label.startswith("end#34;#93;#59;x--#62;y#91;<br/>FAILED: #34;#60;b#62;#35;")


def test_a_tree_has_a_line_for_each_node() -> None:
    lines = text_of(
        node(0, "COMPLETED", seconds=1.25),
        node(1, "FAILED", 0, result=BAD, error_code="BAD_THING", seconds=3.0, previous_task_ids=("x",)),
        node(2, "PENDING", 0, 1),
    )
    assert lines == [
        "orders  RUNNING    1 min 15 s  w",
        "├─ n0   COMPLETED       1.2 s",
        "├─ n1   FAILED          3.0 s  BAD_THING: it broke  run 2  ← n0",
        "└─ n2   PENDING                ← n0, n1",
    ]


def test_child_workflows_stand_below_their_node() -> None:
    child = flow("c", parent_workflow_id="w")
    lines = text_of(
        node(0, "RUNNING", node_type="SUBWORKFLOW", sub_workflow_id="c"),
        node(1, "PENDING", 0),
        node(0, "RUNNING", workflow="c", node_id="inside"),
        node(1, "PENDING", workflow="c", node_id="last"),
        flows=[flow(), child],
    )
    assert [line.split("  ")[0].rstrip() for line in lines[1:]] == ["├─ n0", "│", "│", "└─ n1"]
    assert [line[:14].rstrip() for line in lines[2:4]] == ["│  ├─ inside", "│  └─ last"]
    assert "workflow c" in lines[1]


def test_of_many_elements_the_urgent_ones_are_shown() -> None:
    many = [element(index, 0, index - 1, "COMPLETED") for index in range(1, 100)]
    many[70] = element(71, 0, 70, "FAILED", result=BAD)
    lines = text_of(node(0, "RUNNING", node_type="MAP"), *many)
    assert len(lines) == 2 + MOST_ELEMENTS + 1
    assert "map 98/99" in lines[1]
    assert any(line.startswith("   ├─ n0[70]") and "BAD_THING" in line for line in lines)
    assert "… 79 more" in lines[-1] and "79 COMPLETED" in lines[-1]


def test_a_failed_workflow_says_why() -> None:
    failed = flow(status="FAILED", error='{"error_code": "BAD_THING", "message": "it broke"}', error_code="BAD_THING")
    assert text_of(node(0, "FAILED"), flows=[failed])[0].endswith("w  BAD_THING: it broke")
    assert "no result" in text_of(node(0, "FAILED"), flows=[failed])[1]


def test_json_has_everything_in_its_place() -> None:
    family = WorkflowFamily(
        [flow(), flow("c", "COMPLETED", parent_workflow_id="w")],
        [
            node(0, "COMPLETED", node_type="SUBWORKFLOW", sub_workflow_id="c"),
            node(1, "FAILED", 0, node_type="MAP", result=BAD, error_code="BAD_THING"),
            *(element(index, 1, index - 2, "COMPLETED") for index in range(2, 60)),
            node(0, "COMPLETED", workflow="c", node_id="inside", task_id="t1", started_at=NOON, seconds=2.0),
        ],
    )
    tree = as_json_tree(family)
    assert json.loads(json.dumps(tree, default=datetime.isoformat))["sent_at"] == NOON.isoformat()
    child, mapped = tree["nodes"]
    assert (tree["id"], tree["status"], tree["seconds"]) == ("w", "RUNNING", 75.0)
    assert child["workflow"]["nodes"][0]["node_id"] == "inside" and child["workflow"]["nodes"][0]["task_id"] == "t1"
    assert len(mapped["elements"]) == 58 and mapped["waits_for"] == ["n0"]
    assert (mapped["error_code"], mapped["error"]) == ("BAD_THING", "BAD_THING: it broke")
