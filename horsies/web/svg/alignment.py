"""Where the points of a layer are, across the direction of the edges.

This is the method of Brandes and Köpf: neighbours are aligned into straight blocks, the blocks are pushed together as
far as the sizes allow, and this is done four times, with a preference for each corner. The result is the middle of the
four. Long edges become straight lines, and points are in the middle of their neighbours where there is room.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from horsies.web.svg.layers import Layers

Apart = Callable[[int, int], float]


def across(layers: Layers, sizes: Sequence[float], gap: float, bend_gap: float) -> list[float]:
    """The centre of each point. Two neighbours in a layer do not overlap and have a gap between them."""
    if not layers.rows:
        return []
    apart = _distance(layers, sizes, gap, bend_gap)
    conflicts = _conflicts(layers)
    found = [
        _one_corner(layers, apart, conflicts, from_below=from_below, from_right=from_right)
        for from_below in (False, True)
        for from_right in (False, True)
    ]
    return _middle(found, sizes)


def _distance(layers: Layers, sizes: Sequence[float], gap: float, bend_gap: float) -> Apart:
    def apart(left: int, right: int) -> float:
        both = sizes[left] / 2 + sizes[right] / 2
        return both + (bend_gap if layers.is_bend(left) or layers.is_bend(right) else gap)

    return apart


def _conflicts(layers: Layers) -> set[tuple[int, int]]:
    """Segments that cross a segment between two bends. These segments are not aligned, so the long edge is straight."""
    found: set[tuple[int, int]] = set()
    for upper, lower in pairwise(layers.rows):
        place = {point: at for at, point in enumerate(upper)}
        start, left = 0, 0
        for at, point in enumerate(lower):
            inner = next((other for other in layers.above[point] if layers.is_bend(other)), None)
            is_inner = inner is not None and layers.is_bend(point)
            if not is_inner and at < len(lower) - 1:
                continue
            right = place[inner] if is_inner and inner is not None else len(upper) - 1
            for other in lower[start : at + 1]:
                for near in layers.above[other]:
                    both = layers.is_bend(near) and layers.is_bend(other)
                    if not both and not left <= place[near] <= right:
                        found.add((near, other))
            start, left = at + 1, right
    return found


def _one_corner(
    layers: Layers, apart: Apart, conflicts: set[tuple[int, int]], *, from_below: bool, from_right: bool
) -> list[float]:
    rows = list(reversed(layers.rows)) if from_below else layers.rows
    rows = [list(reversed(row)) for row in rows] if from_right else rows
    neighbours = layers.below if from_below else layers.above
    root = _blocks(rows, neighbours, conflicts, upwards=from_below)
    places = _pushed(rows, root, (lambda left, right: apart(right, left)) if from_right else apart)
    return [-place for place in places] if from_right else places


def _blocks(
    rows: Sequence[Sequence[int]],
    neighbours: Sequence[Sequence[int]],
    conflicts: set[tuple[int, int]],
    *,
    upwards: bool,
) -> list[int]:
    """The first point of the block of each point. A point is aligned with one of its middle neighbours."""
    count = sum(map(len, rows))
    root = list(range(count))
    taken = bytearray(count)  # neighbours that already have somebody below them
    place = [0] * count
    for row in rows:
        for at, point in enumerate(row):
            place[point] = at
    for row in rows:
        last = -1
        for point in row:
            near = sorted(neighbours[point], key=place.__getitem__)
            for other in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                segment = (point, other) if upwards else (other, point)
                if last < place[other] and not taken[other] and segment not in conflicts:
                    taken[other] = 1
                    root[point] = root[other]
                    last = place[other]
                    break
    return root


def _pushed(rows: Sequence[Sequence[int]], root: Sequence[int], apart: Apart) -> list[float]:
    """The places after the blocks were pushed to the left, and then to the right where nothing is moved by it."""
    after: dict[int, dict[int, float]] = {}
    before: dict[int, int] = {point: 0 for row in rows for point in row if root[point] == point}
    for row in rows:
        for left, right in pairwise(row):
            needs = after.setdefault(root[left], {})
            if root[right] not in needs:
                before[root[right]] += 1
            needs[root[right]] = max(needs.get(root[right], 0.0), apart(left, right))
    order = [block for block, count in before.items() if not count]
    place = dict.fromkeys(before, 0.0)
    for block in order:
        for other, distance in after.get(block, {}).items():
            place[other] = max(place[other], place[block] + distance)
            before[other] -= 1
            if not before[other]:
                order.append(other)
    for block in reversed(order):
        room = [place[other] - distance for other, distance in after.get(block, {}).items()]
        place[block] = max(place[block], min(room, default=place[block]))
    return [place[root[point]] for point in range(len(root))]


def _middle(found: Sequence[Sequence[float]], sizes: Sequence[float]) -> list[float]:
    """The mean of the two middle ones of four assignments, after all were aligned with the narrowest."""
    edges = [
        (
            min(place - size / 2 for place, size in zip(one, sizes, strict=True)),
            max(place + size / 2 for place, size in zip(one, sizes, strict=True)),
        )
        for one in found
    ]
    narrowest = min(edges, key=lambda pair: pair[1] - pair[0])
    moved = [
        [place + (narrowest[1] - high if number % 2 else narrowest[0] - low) for place in one]
        for number, (one, (low, high)) in enumerate(zip(found, edges, strict=True))
    ]
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*moved, strict=True)]
