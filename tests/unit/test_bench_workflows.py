"""The workflows that `make bench` measures have the shape and the number of nodes that its figures say."""

from __future__ import annotations

import pytest

from benchmarks.workflow_graphs import SHAPES
from benchmarks.workflow_start import Start

WIDTH = 7


@pytest.mark.parametrize(
    ("shape", "workflows", "edges"),
    [
        ("fan_out", 1, 2 * WIDTH),
        ("roots", 1, WIDTH),
        ("chain", 1, WIDTH - 1),
        ("diamonds", WIDTH, 4 * WIDTH),
        ("mapped", 1, 2),
    ],
)
def test_every_shape_has_the_nodes_and_edges_it_claims(shape: str, workflows: int, edges: int) -> None:
    graph = SHAPES[shape](WIDTH)
    plans = [spec.plan() for spec in graph.build()]
    elements = WIDTH if shape == "mapped" else 0
    assert len(plans) == workflows
    assert sum(len(plan.nodes) for plan in plans) + elements == graph.nodes
    assert sum(len(node.dependencies) for plan in plans for node in plan.nodes) == edges


def test_memory_is_counted_for_each_node_from_before_the_build() -> None:
    assert Start(nodes=1_000, build_s=1, start_s=1, before_mb=50, peak_mb=54).bytes_for_each == 4_000
