"""The layers of a graph and the order within them.

A layer holds nodes without edges among them, and edges lead from layers to later ones. An edge over several layers
passes a bend in each of them. The order within the layers is improved by sweeps, so that few edges cross; the number
of sweeps is bounded, and the best order that was seen is the result.

Nodes are numbered from 0. Edges that would close a circle are left out of consideration.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MOST_BENDS = 3_000
MOST_SWEEPS = 16
SWEEP_BUDGET = 24_000  # segments that all sweeps together may visit
PATIENCE = 3  # sweeps without progress after which no further one is made


def levels_of(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """For each node the length of the longest way that leads to it."""
    order, children = _in_order(count, edges)
    levels = [0] * count
    for node in order:
        below = levels[node] + 1
        for child in children[node]:
            if levels[child] < below:
                levels[child] = below
    return levels


def without_circles(count: int, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges without those that close a circle."""
    order, children = _in_order(count, edges)
    return sorted((node, child) for node in order for child in children[node])


def without_shortcuts(count: int, edges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges without those that a longer way implies, and without those that close a circle."""
    order, children = _in_order(count, edges)
    place = {node: at for at, node in enumerate(order)}
    reached = [0] * count  # as sets of bits
    kept = []
    for node in reversed(order):
        for child in sorted(children[node], key=place.__getitem__):
            if not reached[node] >> child & 1:
                kept.append((node, child))
                reached[node] |= reached[child] | 1 << child
    return sorted(kept)


def _in_order(count: int, edges: Iterable[tuple[int, int]]) -> tuple[list[int], list[list[int]]]:
    """All nodes, each before its children, and the children of each. A search in depth skips edges that lead back."""
    children: list[list[int]] = [[] for _ in range(count)]
    for source, target in dict.fromkeys(edges):
        if source != target and 0 <= source < count and 0 <= target < count:
            children[source].append(target)
    forward: list[list[int]] = [[] for _ in range(count)]
    left: list[int] = []
    state = bytearray(count)  # 0: not seen, 1: on the way from the start to here, 2: left
    for start in range(count):
        if state[start]:
            continue
        state[start] = 1
        path = [(start, iter(children[start]))]
        while path:
            node, ahead = path[-1]
            for child in ahead:
                if state[child] != 1:
                    forward[node].append(child)
                if not state[child]:
                    state[child] = 1
                    path.append((child, iter(children[child])))
                    break
            else:
                state[node] = 2
                left.append(node)
                path.pop()
    left.reverse()
    return left, forward


@dataclass(slots=True)
class Layers:
    """Points in layers: the nodes, and after them the bends of edges.

    `above` and `below` are the neighbours of a point in the layers before and after its own. `ways` are the points
    that an edge passes, from its source to its target. An edge in `direct` has no bends, though it is long: there
    would be too many of them.
    """

    nodes: int
    rows: list[list[int]]
    row_of: list[int]
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)
    ways: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    direct: list[tuple[int, int]] = field(default_factory=list)

    def is_bend(self, point: int) -> bool:
        return point >= self.nodes

    def segments(self) -> int:
        return sum(map(len, self.below))


def layered(
    count: int, edges: Sequence[tuple[int, int]], *, most_bends: int = MOST_BENDS, most_sweeps: int = MOST_SWEEPS
) -> Layers:
    """The nodes in layers, in an order with few crossings. The edges must not contain circles."""
    row_of = _rows_of(count, edges)
    found = Layers(count, [[] for _ in range(max(row_of, default=-1) + 1)], row_of)
    found.above, found.below = [[] for _ in range(count)], [[] for _ in range(count)]
    room = most_bends
    for source, target in sorted(edges, key=lambda edge: (row_of[edge[1]] - row_of[edge[0]], edge)):
        room -= row_of[target] - row_of[source] - 1
        if room < 0:
            found.direct.append((source, target))
        else:
            _add_way(found, source, target)
    found.rows = _first_order(found)
    _improve(found, most_sweeps)
    return found


def _rows_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each node: its level, or later if that shortens its edges."""
    order, children = _in_order(count, edges)
    rows = levels_of(count, edges)
    parents = [0] * count
    for _, target in edges:
        parents[target] += 1
    for node in reversed(order):
        if len(children[node]) > parents[node]:
            rows[node] = min(rows[child] for child in children[node]) - 1
    used = {row: place for place, row in enumerate(sorted(set(rows)))}
    return [used[row] for row in rows]


def _add_way(layers: Layers, source: int, target: int) -> None:
    way = [source]
    for row in range(layers.row_of[source] + 1, layers.row_of[target]):
        way.append(len(layers.row_of))
        layers.row_of.append(row)
        layers.above.append([])
        layers.below.append([])
    way.append(target)
    for upper, lower in pairwise(way):
        layers.below[upper].append(lower)
        layers.above[lower].append(upper)
    layers.ways[source, target] = way


def _first_order(layers: Layers) -> list[list[int]]:
    """The points in the order in which a search in depth meets them, so what belongs together is side by side."""
    rows: list[list[int]] = [[] for _ in layers.rows]
    seen = bytearray(len(layers.row_of))
    for start in sorted(range(layers.nodes), key=lambda node: (layers.row_of[node], node)):
        waiting = [start]
        while waiting:
            point = waiting.pop()
            if not seen[point]:
                seen[point] = 1
                rows[layers.row_of[point]].append(point)
                waiting.extend(sorted(layers.below[point], reverse=True))
    return rows


def crossings(layers: Layers, rows: Sequence[Sequence[int]] | None = None) -> int:
    """How often segments between neighbouring layers cross."""
    rows = layers.rows if rows is None else rows
    return sum(_crossings_between(upper, lower, layers.below) for upper, lower in pairwise(rows))


def _crossings_between(upper: Sequence[int], lower: Sequence[int], below: Sequence[Sequence[int]]) -> int:
    place = {point: at for at, point in enumerate(lower)}
    seen: list[int] = []
    found = 0
    for point in upper:
        for at in sorted([place[other] for other in below[point]]):
            found += len(seen) - bisect_right(seen, at)
            insort(seen, at)
    return found


def _improve(layers: Layers, most_sweeps: int) -> None:
    """Sweeps down and up in turn; each puts points near the middle of their neighbours in the layer before."""
    best, fewest = layers.rows, crossings(layers)
    sweeps = min(most_sweeps, SWEEP_BUDGET // max(1, layers.segments()))
    rows = [list(row) for row in best]
    waited = 0
    for sweep in range(sweeps):
        if not fewest or waited > PATIENCE:
            break
        _sweep(rows, layers.below if sweep % 2 else layers.above, upwards=bool(sweep % 2), last_first=sweep % 4 > 1)
        found = crossings(layers, rows)
        waited += 1
        if found < fewest:
            best, fewest, waited = [list(row) for row in rows], found, 0
    layers.rows = best


def _sweep(rows: list[list[int]], neighbours: Sequence[Sequence[int]], *, upwards: bool, last_first: bool) -> None:
    places = range(len(rows) - 2, -1, -1) if upwards else range(1, len(rows))
    for place in places:
        fixed = {point: at for at, point in enumerate(rows[place + 1 if upwards else place - 1])}
        rows[place] = _by_middle(rows[place], fixed, neighbours, last_first=last_first)


def _by_middle(
    row: Sequence[int], fixed: dict[int, int], neighbours: Sequence[Sequence[int]], *, last_first: bool
) -> list[int]:
    """The row sorted by the middle of the neighbours. Points without neighbours keep their places."""
    middle: dict[int, float] = {}
    for point in row:
        if near := neighbours[point]:
            middle[point] = sum([fixed[other] for other in near]) / len(near)
    movable = [point for point in row if point in middle]
    ordered = iter(sorted(reversed(movable) if last_first else movable, key=middle.__getitem__))
    return [next(ordered) if point in middle else point for point in row]
