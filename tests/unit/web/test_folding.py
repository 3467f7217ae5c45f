"""Which boxes are drawn for the nodes of a workflow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies.web.svg.folding import MOST_CELLS, Box, FoldedGraph, GraphNode, fold
from horsies.web.svg.layers import levels_of, without_circles
from tests.each import each
from tests.unit.web.strategies import a_node, few, graphs, random_dag, steps


def box_of(graph: FoldedGraph, index: int) -> Box:
    return next(box for box in graph.boxes if index in box.members)


def fan(width: int, failed: tuple[int, ...] = ()) -> tuple[list[GraphNode], list[tuple[int, int]]]:
    """0 → 1..width → width + 1."""
    nodes = [a_node(index, "FAILED" if index in failed else "COMPLETED") for index in range(width + 2)]
    middle = range(1, width + 1)
    return nodes, [*((0, one) for one in middle), *((one, width + 1) for one in middle)]


def a_map(elements: int, failed: tuple[int, ...] = ()) -> tuple[list[GraphNode], list[tuple[int, int]]]:
    """0 → 1 (a map with elements 3, 4, …) → 2."""
    nodes = [a_node(0), a_node(1, "RUNNING", kind="MAP", label="resize"), a_node(2, "PENDING")]
    for index in range(3, 3 + elements):
        status = "FAILED" if index in failed else "COMPLETED"
        nodes.append(a_node(index, status, kind="ELEMENT", map_index=1, label=f"resize[{index - 3}]"))
    return nodes, [(0, 1), (1, 2)]


@few
@given(graphs(), st.integers(1, 14), st.integers(1, 60), st.integers(1, 60))
def test_m91_every_node_is_in_exactly_one_box(
    graph: tuple[list[GraphNode], list[tuple[int, int]]], wide: int, boxes: int, edges: int
) -> None:
    nodes, pairs = graph
    folded = fold(nodes, pairs, wide=wide, most_boxes=boxes, most_edges=edges)
    held = [index for box in folded.boxes for index in box.members]
    assert sorted(held) == sorted({node.index for node in nodes})
    assert folded.nodes == len(held)
    assert len(folded.boxes) <= boxes
    assert len({box.key for box in folded.boxes}) == len(folded.boxes)


@few
@given(graphs(), st.integers(1, 14), st.integers(1, 60))
def test_m91_no_failure_is_hidden(graph: tuple[list[GraphNode], list[tuple[int, int]]], wide: int, boxes: int) -> None:
    nodes, pairs = graph
    status = {node.index: node.status for node in reversed(nodes)}
    folded = fold(nodes, pairs, wide=wide, most_boxes=boxes)
    for box in folded.boxes:
        failed = [index for index in box.members if status[index] == "FAILED"]
        assert box.failed == len(failed) and box.first_failed in (failed or [None])
        assert (box.status == "FAILED") == bool(failed)
    keys = {box.key for box in folded.boxes}
    assert {key for _, key in folded.failures()} <= keys
    assert {index for index, _ in folded.failures()} == {box.first_failed for box in folded.boxes if box.failed}


def test_m91_of_a_failed_map_the_first_failed_element_is_named() -> None:
    """The map failed because of it, and its own page says no more than that."""
    states = ["COMPLETED"] * 5 + ["FAILED"] * 2
    elements = [GraphNode(1 + n, f"pack[{n}]", state, map_index=0) for n, state in enumerate(states)]
    [box] = fold([GraphNode(0, "pack", "FAILED", kind="MAP"), *elements], []).boxes
    assert (box.failed, box.first_failed) == (3, 6)


@few
@given(graphs())
def test_m91_edges_of_boxes_are_edges_of_their_nodes(graph: tuple[list[GraphNode], list[tuple[int, int]]]) -> None:
    folded = fold(*graph)
    place = {index: at for at, box in enumerate(folded.boxes) for index in box.members}
    meant = {(place[a], place[b]) for a, b in graph[1] if a in place and b in place and place[a] != place[b]}
    assert set(folded.edges) == meant
    assert len(folded.edges) == len(meant)


@few
@given(graphs())
def test_m91_folding_gives_the_same_boxes_for_the_same_rows(
    graph: tuple[list[GraphNode], list[tuple[int, int]]],
) -> None:
    nodes, edges = graph
    assert fold(nodes, edges) == fold(list(nodes), list(reversed(edges)))


@few
@given(graphs(most=20), st.integers(1, 8))
def test_m91_folding_makes_no_circles(graph: tuple[list[GraphNode], list[tuple[int, int]]], boxes: int) -> None:
    nodes = [replace(node, index=at, map_index=None) for at, node in enumerate(graph[0])]
    edges = without_circles(len(nodes), graph[1])
    folded = fold(nodes, edges, wide=2, most_boxes=boxes, most_edges=boxes)
    assert set(without_circles(len(folded.boxes), folded.edges)) == set(folded.edges)


def test_m91_siblings_become_one_box_that_counts() -> None:
    folded = fold(*fan(30, failed=(17, 23)))
    assert [box.kind for box in folded.boxes] == ["node", "siblings", "node"]
    group = folded.boxes[1]
    assert group.key == "siblings-1"
    assert group.counts == (("FAILED", 2), ("COMPLETED", 28))
    assert (group.failed, group.first_failed, group.status) == (2, 17, "FAILED")
    assert group.label == "app.work"
    assert folded.edges == ((0, 1), (1, 2))
    assert folded.failures() == ((17, "siblings-1"),)


@each(("width", "boxes"), [(12, 14), (13, 3)])
def test_m91_few_siblings_stay_apart(width: int, boxes: int) -> None:
    assert len(fold(*fan(width)).boxes) == boxes


def test_m91_an_open_group_shows_its_members_in_order() -> None:
    group = fold(*fan(30, failed=(17, 23)), opened=["siblings-1"]).boxes[1]
    assert [cell.index for cell in group.cells] == list(range(1, 31))
    assert group.hidden == ()
    assert group.is_open
    folded = fold(*fan(30, failed=(17, 23)), opened=["siblings-1"])
    assert folded.failures() == ((17, "node-17"), (23, "node-23"))


def test_m91_elements_are_in_the_box_of_their_map() -> None:
    folded = fold(*a_map(1_000, failed=(500, 700)))
    assert [box.key for box in folded.boxes] == ["node-0", "map-1", "node-2"]
    box = folded.boxes[1]
    assert box.index == 1
    assert box.label == "resize"
    assert len(box.members) == 1_001
    assert box.counts == (("FAILED", 2), ("COMPLETED", 998))
    assert box.first_failed == 500


def test_m91_an_open_map_shows_the_urgent_elements_first() -> None:
    box = fold(*a_map(1_000, failed=(500, 700)), opened={"map-1"}).boxes[1]
    assert len(box.cells) == MOST_CELLS
    assert [cell.index for cell in box.cells[:3]] == [500, 700, 3]
    assert box.hidden == (("COMPLETED", 600),)


def test_m91_a_map_without_failures_has_its_own_state() -> None:
    assert fold(*a_map(5)).boxes[1].status == "RUNNING"


def test_m91_elements_whose_map_is_absent_get_a_box_for_it() -> None:
    nodes = [a_node(7, "FAILED", map_index=3), a_node(8, map_index=3)]
    (box,) = fold(nodes, [(3, 7)]).boxes
    assert (box.key, box.index, box.members, box.label) == ("map-3", None, (7, 8), "map 3")
    assert box.first_failed == 7


def test_m91_contradicting_maps_are_drawn_on_their_own() -> None:
    nodes = [a_node(0, map_index=0), a_node(1, map_index=2), a_node(2, map_index=1), a_node(3, map_index=1)]
    assert [box.members for box in fold(nodes, []).boxes] == [(0,), (1,), (2,), (3,)]


def test_m91_parallel_chains_fold_by_level() -> None:
    nodes = [a_node(index, "FAILED" if index == 4_000 else "COMPLETED") for index in range(6_002)]
    last = 6_001
    edges = [(0, 1 + 2 * at) for at in range(3_000)]
    edges += [(1 + 2 * at, 2 + 2 * at) for at in range(3_000)]
    edges += [(2 + 2 * at, last) for at in range(3_000)]
    folded = fold(nodes, edges)
    assert Counter(box.kind for box in folded.boxes) == {"node": 3, "level": 2}
    assert box_of(folded, 4_000).key == "node-4000", "a failed node stays outside while there is room"
    assert {box.key for box in folded.boxes if box.kind == "level"} == {"level-1", "level-2"}


@each(("degree", "window"), [(1, 2_000), (2, 40), (8, 2_000)])
def test_m91_m95_the_work_of_folding_grows_with_the_graph(degree: int, window: int) -> None:
    """Twice as many nodes are not four times the work."""
    small, large = random_dag(1_000, degree, window), random_dag(2_000, degree, window)
    assert steps(lambda: fold(*large)) < 3 * steps(lambda: fold(*small))


@pytest.mark.slow("graphs of ten thousand nodes")
@each(("degree", "window"), [(1, 10_000), (2, 40), (8, 10_000), (40, 300)])
def test_m91_m95_ten_thousand_nodes_are_folded_into_a_few_hundred_boxes(degree: int, window: int) -> None:
    nodes, edges = random_dag(10_000, degree, window)
    folded = fold(nodes, edges[:50_000])
    assert len(folded.boxes) <= 400
    assert len(folded.edges) <= 1_200
    assert sum(len(box.members) for box in folded.boxes) == 10_000


def test_m91_a_very_long_chain_is_folded_in_runs() -> None:
    folded = fold([a_node(index) for index in range(10_000)], [(index, index + 1) for index in range(9_999)])
    assert len(folded.boxes) == 400
    assert max(levels_of(400, folded.edges)) == 399
    assert folded.boxes[0].members == tuple(range(25))


def test_m91_edges_that_longer_ways_imply_are_left_out_when_they_are_many() -> None:
    nodes = [a_node(index) for index in range(100)]
    edges = [(a, b) for a in range(100) for b in range(a + 1, 100)]
    folded = fold(nodes, edges, wide=200)
    assert folded.edges == tuple((at, at + 1) for at in range(99))
    assert folded.implied == 4_950 - 99


def test_m91_keys_do_not_change_with_states() -> None:
    def keys(status: str) -> list[str]:
        nodes, edges = random_dag(300, 2, 20)
        return [box.key for box in fold([replace(node, status=status) for node in nodes], edges).boxes]

    assert keys("PENDING") == keys("COMPLETED") == keys("FAILED")


def test_m91_labels_say_what_members_have_in_common() -> None:
    nodes = [a_node(index, label=f"fetch-page-{index}", detail=f"t{index}") for index in range(1, 20)]
    assert fold(nodes, []).boxes[0].label == "fetch-page…"
    nodes = [a_node(index, label=f"{index}", detail=f"t{index}") for index in range(1, 20)]
    assert fold(nodes, []).boxes[0].label == ""


@few
@given(graphs(), st.sets(st.sampled_from(("map-1", "map-2", "siblings-0", "level-0", "level-1", "node-1", "x"))))
def test_m91_any_keys_may_be_open(graph: tuple[list[GraphNode], list[tuple[int, int]]], opened: set[str]) -> None:
    for box in fold(*graph, opened=opened, wide=2, most_boxes=5).boxes:
        assert not box.is_open or box.key in opened
        assert sum(len(cell.members) for cell in box.cells) <= len(box.members)


def test_m91_no_nodes_no_boxes() -> None:
    assert fold([], [(0, 1)]) == FoldedGraph((), ())
