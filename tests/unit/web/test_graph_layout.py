"""Layers, the order within them, and places without overlaps."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies.web.svg.folding import GraphNode, fold
from horsies.web.svg.layers import MOST_BENDS, Layers, crossings, layered, levels_of, without_circles, without_shortcuts
from horsies.web.svg.layout import GAP, Direction, GraphLayout, PlacedBox, lay_out
from tests.each import each
from tests.unit.web.strategies import a_node, dags, few, graphs, random_dag, steps

Rows = tuple[list[GraphNode], list[tuple[int, int]]]


def check_layers(layers: Layers, edges: list[tuple[int, int]]) -> None:
    for source, target in edges:
        assert layers.row_of[source] < layers.row_of[target]
    placed = sorted(point for row in layers.rows for point in row)
    assert placed == list(range(len(layers.row_of)))
    assert all(layers.row_of[point] == at for at, row in enumerate(layers.rows) for point in row)
    for way in layers.ways.values():
        assert [layers.row_of[point] for point in way] == list(range(layers.row_of[way[0]], layers.row_of[way[-1]] + 1))
    assert set(layers.ways) | set(layers.direct) == set(edges)


def overlap(one: PlacedBox, other: PlacedBox, apart: float = 0.0) -> bool:
    return (
        one.x < other.x + other.width + apart
        and other.x < one.x + one.width + apart
        and one.y < other.y + other.height + apart
        and other.y < one.y + one.height + apart
    )


def check_layout(layout: GraphLayout) -> None:
    for one, other in combinations(layout.boxes, 2):
        assert not overlap(one, other, GAP - 0.01)
    for box in layout.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= layout.width
        assert box.y + box.height <= layout.height
        for cell in box.cells:
            assert box.x <= cell.x
            assert cell.x + cell.width <= box.x + box.width
            assert box.y <= cell.y
            assert cell.y + cell.height <= box.y + box.height
        assert not any(overlap(one, other) for one, other in combinations(box.cells, 2))


@few
@given(dags())
def test_m91_layers_respect_edges(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    check_layers(layered(count, edges), edges)


@few
@given(dags(), st.integers(0, 10))
def test_m91_bends_are_bounded(graph: tuple[int, list[tuple[int, int]]], most: int) -> None:
    count, edges = graph
    layers = layered(count, edges, most_bends=most)
    check_layers(layers, edges)
    assert len(layers.row_of) - count <= most


@few
@given(dags())
def test_m91_sweeps_never_make_more_crossings(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    assert crossings(layered(count, edges)) <= crossings(layered(count, edges, most_sweeps=0))


def test_m91_sweeps_untangle() -> None:
    edges = [(at, 20 + (at * 7) % 20) for at in range(20)]
    assert crossings(layered(40, edges)) == 0
    edges = sorted(set(random_dag(300, 2, 40)[1]))
    before, after = crossings(layered(300, edges, most_sweeps=0)), crossings(layered(300, edges))
    assert after < before * 0.7


@few
@given(graphs())
def test_m91_crossings_are_counted_one_by_one(graph: Rows) -> None:
    count = len(graph[0])
    layers = layered(count, without_circles(count, graph[1]))
    expected = 0
    for upper, lower in pairwise(layers.rows):
        place = {point: at for at, point in enumerate([*upper])} | {point: at for at, point in enumerate([*lower])}
        segments = [(place[one], place[other]) for one in upper for other in layers.below[one]]
        expected += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(segments, 2))
    assert crossings(layers) == expected


@few
@given(st.integers(0, 12), st.lists(st.tuples(st.integers(-2, 14), st.integers(-2, 14)), max_size=60))
def test_m91_circles_are_cut(count: int, edges: list[tuple[int, int]]) -> None:
    kept = without_circles(count, edges)
    inside = {(a, b) for a, b in edges if a != b and 0 <= a < count and 0 <= b < count}
    assert set(kept) <= inside
    levels = levels_of(count, edges)
    assert all(levels[a] < levels[b] for a, b in kept)
    assert without_circles(count, kept) == kept, "without circles nothing is cut"
    for cut in inside - set(kept):
        assert _reaches(count, kept, cut[1], cut[0]), "only an edge that closes a circle is cut"


def _reaches(count: int, edges: list[tuple[int, int]], start: int, goal: int) -> bool:
    found = {start}
    for _ in range(count):
        found |= {target for source, target in edges if source in found}
    return goal in found


@few
@given(dags(most=15))
def test_m91_leaving_out_shortcuts_keeps_what_is_reached(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    kept = without_shortcuts(count, edges)
    assert set(kept) <= set(edges)
    for source, target in edges:
        assert _reaches(count, kept, source, target)
    for one in kept:
        assert not _reaches(count, [other for other in kept if other != one], *one)


@few
@given(graphs(), st.sampled_from((None, "right", "down")), st.sets(st.sampled_from(("map-1", "siblings-0", "level-0"))))
def test_m91_boxes_do_not_overlap(graph: Rows, direction: Direction | None, opened: set[str]) -> None:
    layout = lay_out(fold(*graph, opened=opened, wide=3, most_boxes=25), direction)
    assert [placed.box for placed in layout.boxes] == list(layout.graph.boxes)
    assert {(way.source, way.target) for way in layout.ways} == set(layout.graph.edges)
    check_layout(layout)


@few
@given(dags(most=25), st.sampled_from(("right", "down")))
def test_m91_edges_pass_boxes_at_a_distance(graph: tuple[int, list[tuple[int, int]]], direction: Direction) -> None:
    count, edges = graph
    layout = lay_out(fold([a_node(index) for index in range(count)], edges, wide=100), direction)
    for way in layout.ways:
        others = [box for at, box in enumerate(layout.boxes) if at not in (way.source, way.target)]
        for (x1, y1), (x2, y2) in pairwise(way.spots):
            left, right = min(x1, x2) + 0.01, max(x1, x2) - 0.01
            upper, lower = min(y1, y2) + 0.01, max(y1, y2) - 0.01
            for box in others:
                apart = left >= box.x + box.width or right <= box.x or upper >= box.y + box.height or lower <= box.y
                assert apart, (way, box)


@few
@given(st.integers(1, 30), st.sampled_from(("right", "down")))
def test_m91_chains_are_straight(length: int, direction: Direction) -> None:
    edges = [(at, at + 1) for at in range(length - 1)]
    layout = lay_out(fold([a_node(at) for at in range(length)], edges), direction)
    centres = {round(box.y + box.height / 2 if direction == "right" else box.x + box.width / 2) for box in layout.boxes}
    assert len(centres) == 1


def test_m91_a_diamond_is_symmetric() -> None:
    layout = lay_out(fold([a_node(at) for at in range(4)], [(0, 1), (0, 2), (1, 3), (2, 3)]), "right")
    middle = [box.y + box.height / 2 for box in layout.boxes]
    assert middle[0] == pytest.approx(middle[3])
    assert middle[0] == pytest.approx((middle[1] + middle[2]) / 2)


def test_m91_a_long_edge_is_straight_where_it_passes_layers() -> None:
    edges = [(at, at + 1) for at in range(5)] + [(0, 5)]
    layout = lay_out(fold([a_node(at) for at in range(6)], edges), "right")
    way = next(way for way in layout.ways if (way.source, way.target) == (0, 5))
    assert len({round(y, 3) for _, y in way.spots[2:-2]}) == 1


@each(("edges", "direction"), [([(at, at + 1) for at in range(19)], "down"), ([], "right")])
def test_m91_the_direction_suits_the_page(edges: list[tuple[int, int]], direction: str) -> None:
    assert lay_out(fold([a_node(at) for at in range(20)], edges, wide=30)).direction == direction


def test_m91_circles_and_loops_are_drawn_backwards() -> None:
    layout = lay_out(fold([a_node(0), a_node(1), a_node(2)], [(0, 1), (1, 2), (2, 0), (1, 1), (0, 9)]))
    assert [(way.source, way.target) for way in layout.ways if way.is_back] == [(2, 0)]
    assert len(layout.ways) == 3


def test_m91_nothing_to_lay_out() -> None:
    layout = lay_out(fold([], []))
    assert (layout.boxes, layout.ways) == ((), ())


@each(("degree", "window"), [(2, 40), (6, 500)])
def test_m91_m95_the_work_of_a_layout_is_bounded(degree: int, window: int) -> None:
    """Four times as many nodes are folded into as many boxes, and their layout is as much work."""
    small, large = (fold(*random_dag(count, degree, window)) for count in (500, 2_000))
    check_layout(lay_out(large))
    assert steps(lambda: lay_out(large)) < 3 * steps(lambda: lay_out(small))


@pytest.mark.slow("graphs of ten thousand nodes")
@each(("degree", "window"), [(1, 10_000), (2, 40), (8, 10_000)])
def test_m91_m95_ten_thousand_nodes_are_laid_out(degree: int, window: int) -> None:
    nodes, edges = random_dag(10_000, degree, window)
    check_layout(lay_out(fold(nodes, edges[:50_000])))


def test_m91_many_long_edges_are_drawn_without_bends() -> None:
    length = 300
    edges = [(at, at + 1) for at in range(length - 1)] + [(at, length - 1 - at) for at in range(length // 2 - 5)]
    layers = layered(length, sorted(set(edges)))
    assert len(layers.row_of) - length <= MOST_BENDS
    assert layers.direct
    layout = lay_out(fold([a_node(at) for at in range(length)], edges))
    assert len(layout.ways) == len(set(edges))
