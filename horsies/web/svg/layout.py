"""The layout of a graph: a place for each box and a way for each edge.

Boxes are in layers. The layers follow each other to the right or downwards, whichever lets the picture be larger on a
page; in a large graph it is always to the right. No two boxes overlap, and an edge passes boxes at a distance.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from horsies.web.svg.alignment import across
from horsies.web.svg.folding import Box, Edge, FoldedGraph
from horsies.web.svg.layers import Layers, layered, without_circles

Direction: TypeAlias = Literal["right", "down"]
Spot: TypeAlias = tuple[float, float]

NODE = (180.0, 44.0)
GROUP = (244.0, 62.0)
CELL = (148.0, 24.0)  # with a label
SMALL_CELL = (20.0, 20.0)  # with the gap, as far apart as fingers need
CELL_GAP = 4.0
FRAME = (10.0, 63.0, 10.0)  # of an open box: at the sides, at the top, at the bottom
NOTE = 14.0  # the line below the cells
MOST_LABELLED = 60  # cells; more of them have no label

MARGIN = 12.0
GAP = 14.0  # between boxes of a layer
BEND_GAP = 10.0
LAYER_GAP = {"right": 44.0, "down": 30.0}
WIDEST_LAYER_GAP = 150.0
SMALL = 800  # boxes and bends
PAGE_WIDTH = 1_200.0  # a picture that is not wider needs no shrinking


@dataclass(frozen=True, slots=True)
class PlacedBox:
    """A box and the place of its upper left corner. For an open box, `cells` has the places of its cells."""

    box: Box
    x: float
    y: float
    width: float
    height: float
    cells: tuple["PlacedBox", ...] = ()


@dataclass(frozen=True, slots=True)
class EdgePath:
    """An edge from one box to another, as positions, and the spots that it passes.

    At each spot the edge runs in the direction of the layout. `is_back`: it closes a circle, which no workflow has.
    """

    source: int
    target: int
    spots: tuple[Spot, ...]
    is_back: bool = False


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Boxes in their places, in the order of the folded graph."""

    graph: FoldedGraph
    boxes: tuple[PlacedBox, ...]
    ways: tuple[EdgePath, ...]
    width: float
    height: float
    direction: Direction


def lay_out(graph: FoldedGraph, direction: Direction | None = None) -> GraphLayout:
    """The layout of a folded graph. Without a direction, the better one is chosen."""
    sizes = [_size(box) for box in graph.boxes]
    inside = [(a, b) for a, b in graph.edges if a != b and 0 <= a < len(sizes) and 0 <= b < len(sizes)]
    forward = without_circles(len(sizes), inside)
    layers = layered(len(sizes), forward)
    back = sorted(set(inside) - set(forward))
    tried = [direction] if direction else _worth_trying(layers)
    return min((_Placing(graph, layers, sizes, one).result(back) for one in tried), key=_shrinking)


def _worth_trying(layers: Layers) -> list[Direction]:
    """Both directions, unless the graph is so large that the second one would take long."""
    return ["right", "down"] if len(layers.row_of) <= SMALL else ["right"]


def _shrinking(layout: GraphLayout) -> tuple[float, float]:
    """How much the picture is shrunk to be as wide as a page, and its area."""
    return max(1.0, layout.width / PAGE_WIDTH), layout.width * layout.height


def _size(box: Box) -> tuple[float, float]:
    if box.kind == "node":
        return NODE
    if not box.is_open:
        return GROUP
    columns, rows, (width, height) = _grid(box)
    sides, top, bottom = FRAME
    inner = columns * (width + CELL_GAP) - CELL_GAP
    below = bottom + (NOTE if box.hidden else 0.0)
    return max(inner + 2 * sides, GROUP[0]), top + rows * (height + CELL_GAP) - CELL_GAP + below


def _grid(box: Box) -> tuple[int, int, tuple[float, float]]:
    """Columns, rows and size of the cells of an open box."""
    count = len(box.cells)
    is_small = count > MOST_LABELLED
    columns = min(count, 25) if is_small else -(-count // 15)
    return columns, -(-count // columns), SMALL_CELL if is_small else CELL


class _Placing:
    """One layout in the making. `along` is the direction of the edges, `across` the other."""

    def __init__(
        self, graph: FoldedGraph, layers: Layers, sizes: Sequence[tuple[float, float]], direction: Direction
    ) -> None:
        self.graph, self.layers, self.sizes, self.direction = graph, layers, sizes, direction
        bends = [0.0] * (len(layers.row_of) - len(sizes))
        self.thick = [width if direction == "right" else height for width, height in sizes]
        self.broad = [height if direction == "right" else width for width, height in sizes] + bends
        self.across = _from_margin(across(layers, self.broad, GAP, BEND_GAP), self.broad)
        self.bounds = self._bounds()

    def result(self, back: Iterable[Edge]) -> GraphLayout:
        boxes = tuple(self._box(at) for at in range(len(self.sizes)))
        ways = [self._way(edge, points) for edge, points in self.layers.ways.items()]
        ways += [self._direct(edge) for edge in self.layers.direct]
        ways += [self._direct(edge, is_back=True) for edge in back]
        width = max((box.x + box.width for box in boxes), default=0.0) + MARGIN
        height = max((box.y + box.height for box in boxes), default=0.0) + MARGIN
        beyond = [spot for way in ways for spot in way.spots]
        width = max([width, *(x + MARGIN for x, _ in beyond)])
        height = max([height, *(y + MARGIN for _, y in beyond)])
        ordered = tuple(sorted(ways, key=lambda way: (way.source, way.target)))
        return GraphLayout(self.graph, boxes, ordered, width, height, self.direction)

    def _bounds(self) -> list[tuple[float, float]]:
        """Where each layer begins and ends. The gap between two is larger where edges go far to the side."""
        found: list[tuple[float, float]] = []
        start = MARGIN
        for row, points in enumerate(self.layers.rows):
            thick = max((self.thick[point] for point in points if not self.layers.is_bend(point)), default=0.0)
            found.append((start, start + thick))
            far = (
                abs(self.across[point] - self.across[other])
                for point in self.layers.rows[row]
                for other in self.layers.below[point]
            )
            start += thick + min(WIDEST_LAYER_GAP, LAYER_GAP[self.direction] + 0.08 * max(far, default=0.0))
        return found

    def _start_of(self, at: int) -> float:
        start, end = self.bounds[self.layers.row_of[at]]
        return start + (end - start - self.thick[at]) / 2

    def _box(self, at: int) -> PlacedBox:
        width, height = self.sizes[at]
        along, side = self._start_of(at), self.across[at] - self.broad[at] / 2
        x, y = self._spot(along, side)
        return PlacedBox(self.graph.boxes[at], x, y, width, height, _placed_cells(self.graph.boxes[at], x, y))

    def _spot(self, along: float, side: float) -> Spot:
        along, side = round(along, 2), round(side, 2)
        return (along, side) if self.direction == "right" else (side, along)

    def _way(self, edge: Edge, points: Sequence[int]) -> EdgePath:
        """From the end of the source, straight through the layers of the bends, to the start of the target."""
        source, target = edge
        spots = [(self._start_of(source) + self.thick[source], self.across[source])]
        spots.append((self.bounds[self.layers.row_of[source]][1], self.across[source]))
        for bend in points[1:-1]:
            start, end = self.bounds[self.layers.row_of[bend]]
            spots += [(start, self.across[bend]), (end, self.across[bend])]
        spots.append((self.bounds[self.layers.row_of[target]][0], self.across[target]))
        spots.append((self._start_of(target), self.across[target]))
        return EdgePath(source, target, _without_repeats([self._spot(*spot) for spot in spots]))

    def _direct(self, edge: Edge, *, is_back: bool = False) -> EdgePath:
        source, target = edge
        start = self._spot(self._start_of(source) + self.thick[source], self.across[source])
        return EdgePath(source, target, (start, self._spot(self._start_of(target), self.across[target])), is_back)


def _from_margin(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    first = min((place - size / 2 for place, size in zip(places, sizes, strict=True)), default=0.0)
    return [place - first + MARGIN for place in places]


def _without_repeats(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    return (spots[0], *(after for before, after in pairwise(spots) if after != before))


def _placed_cells(box: Box, x: float, y: float) -> tuple[PlacedBox, ...]:
    if not box.is_open:
        return ()
    columns, rows, (width, height) = _grid(box)
    sides, top, _ = FRAME
    found = []
    for at, cell in enumerate(box.cells):
        column, row = (at % columns, at // columns) if width == SMALL_CELL[0] else (at // rows, at % rows)
        left, upper = x + sides + column * (width + CELL_GAP), y + top + row * (height + CELL_GAP)
        found.append(PlacedBox(cell, left, upper, width, height))
    return tuple(found)
