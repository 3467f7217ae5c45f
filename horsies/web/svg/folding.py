"""Folding: which boxes are drawn for the nodes of a workflow.

The elements of a map are part of the map's box. Siblings, that is nodes with the same parents and the same children,
become one box when they are many. If there are still too many boxes or edges, whole levels become one box each. A page
can name boxes that are open: these show their members as cells. A box that stands for many nodes knows how many of
them are in each state and which one failed first, so folding hides no failure.

The rows may contradict each other. Nothing here raises or loops because of it: a node that comes twice counts once, an
edge to an absent node is left out, and an element whose map is absent gets a box that only stands for that map.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, TypeAlias

from horsies.core.models.monitoring.tasks import WorkflowRunDetail
from horsies.web.svg import states
from horsies.web.svg.layers import levels_of, without_shortcuts

WIDE = 12  # more siblings than this become one box
FEW = 2  # the same if there are too many boxes
MOST_BOXES = 400
MOST_EDGES = 1_200
MOST_CELLS = 400  # in all open boxes together

Edge: TypeAlias = tuple[int, int]
BoxKind: TypeAlias = Literal["node", "map", "siblings", "level"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node as it is drawn. For an element, `map_index` is the index of its map."""

    index: int
    label: str
    status: str
    detail: str = ""
    kind: str = "TASK"
    map_index: int | None = None
    note: str = ""  # for the tooltip


@dataclass(frozen=True, slots=True)
class Box:
    """What one box stands for.

    `key` is its name in the URL, which stays the same while states change. `index` is its node if it stands for one
    node or for a map. `members` are the indexes of all nodes that it stands for, in order. If it is open, `cells` are
    its most urgent members, and `hidden` is how many others there are in each state.
    """

    key: str
    kind: BoxKind
    label: str
    detail: str
    status: str
    node_kind: str
    index: int | None
    members: tuple[int, ...]
    counts: tuple[tuple[str, int], ...]
    failed: int
    first_failed: int | None
    note: str = ""
    cells: tuple["Box", ...] = ()
    hidden: tuple[tuple[str, int], ...] = ()

    @property
    def is_folded(self) -> bool:
        return self.kind != "node" and not self.cells

    @property
    def is_open(self) -> bool:
        return bool(self.cells)


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """Boxes, and the edges between them as pairs of positions. `nodes` is how many nodes they stand for, and `implied`
    is how many edges were left out because a longer way implies them."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    nodes: int = 0
    implied: int = 0

    def failures(self) -> tuple[tuple[int, str], ...]:
        """Where failures are seen: the index of a failed node and the key of its box, in the order of the indexes. A
        folded box is named once, with its first failed node."""
        shown = [cell for box in self.boxes for cell in (box.cells or (box,))]
        return tuple(sorted((box.first_failed, box.key) for box in shown if box.first_failed is not None))


def graph_of(run: WorkflowRunDetail) -> tuple[list[GraphNode], list[Edge]]:
    """The nodes and edges of a workflow, as `fold` takes them."""
    nodes = [
        GraphNode(
            index=node.task_index,
            label=node.node_id,
            status=str(node.status),
            detail=node.error_code or node.task_name,
            kind=node.node_type,
            map_index=node.map_index,
            note=f"task {node.task_name}" + (f", {node.error_code}" if node.error_code else ""),
        )
        for node in run.nodes
    ]
    return nodes, [(edge.source, edge.target) for edge in run.edges]


def fold(
    nodes: Iterable[GraphNode],
    edges: Iterable[Edge],
    *,
    opened: Collection[str] = (),
    wide: int = WIDE,
    most_boxes: int = MOST_BOXES,
    most_edges: int = MOST_EDGES,
) -> FoldedGraph:
    """The boxes of a workflow. `opened` has the keys of boxes whose members are shown."""
    by_index: dict[int, GraphNode] = {}
    for node in nodes:
        by_index.setdefault(node.index, node)
    boxes, pairs = _with_maps(by_index, edges)
    for enough in (wide, min(wide, FEW)):
        if enough == wide or len(boxes) > most_boxes:
            boxes, pairs = _with_siblings(boxes, pairs, enough)
    boxes, pairs, implied = _with_levels(boxes, pairs, most_boxes, most_edges)
    return FoldedGraph(_with_cells(boxes, opened), tuple(pairs), len(by_index), implied)


def _with_maps(by_index: Mapping[int, GraphNode], edges: Iterable[Edge]) -> tuple[list[Box], list[Edge]]:
    """A box for each node that is no element, and edges between them."""
    home = {node.index: _home(node, by_index) for node in by_index.values()}
    inside: dict[int, list[int]] = {}
    for index in sorted(home):
        inside.setdefault(home[index], []).append(index)
    boxes = [_map_box(index, held, by_index) for index, held in sorted(inside.items())]
    place = {index: at for at, held in enumerate(map(inside.__getitem__, sorted(inside))) for index in held}
    known = ((place[source], place[target]) for source, target in edges if source in place and target in place)
    return boxes, _unique(known)


def _home(node: GraphNode, by_index: Mapping[int, GraphNode]) -> int:
    """The index of the node whose box holds this one. Only a node that is no element itself can hold others."""
    if node.map_index is None:
        return node.index
    holder = by_index.get(node.map_index)
    return node.map_index if holder is None or holder.map_index is None else node.index


def _map_box(index: int, held: Sequence[int], by_index: Mapping[int, GraphNode]) -> Box:
    own = by_index.get(index)
    if own is not None and list(held) == [index]:
        return _node_box(own)
    elements = [by_index[one] for one in held if one != index]
    cells = tuple(_node_box(node) for node in elements)
    box = _joined(f"map-{index}", "map", cells)
    if own is None:
        return replace(box, label=f"map {index}", node_kind="MAP")
    failed = sorted(one for one in held if by_index[one].status == states.FAILED)
    return replace(
        box,
        label=own.label,
        detail=own.detail,
        status=states.FAILED if failed else own.status,
        node_kind=own.kind,
        index=index,
        members=tuple(held),
        failed=len(failed),
        first_failed=next((one for one in failed if one != index), index) if failed else None,  # it says more
        note=own.note,
    )


def _node_box(node: GraphNode) -> Box:
    failed = node.status == states.FAILED
    return Box(
        key=f"node-{node.index}",
        kind="node",
        label=node.label,
        detail=node.detail,
        status=node.status,
        node_kind=node.kind,
        index=node.index,
        members=(node.index,),
        counts=((node.status, 1),),
        failed=int(failed),
        first_failed=node.index if failed else None,
        note=node.note,
    )


def _joined(key: str, kind: BoxKind, parts: Sequence[Box]) -> Box:
    """One box for several. Its parts stay its cells until it is known which boxes are open."""
    counts = states.added(part.counts for part in parts)
    firsts = [part.first_failed for part in parts if part.first_failed is not None]
    return Box(
        key=key,
        kind=kind,
        label=_common_label(parts),
        detail="",
        status=states.most_urgent(part.status for part in parts),
        node_kind="",
        index=None,
        members=tuple(sorted(index for part in parts for index in part.members)),
        counts=counts,
        failed=sum(part.failed for part in parts),
        first_failed=min(firsts, default=None),
        cells=tuple(parts),
    )


def _common_label(parts: Sequence[Box]) -> str:
    """What the names have in common: that of the task, or how they begin."""
    details = {part.detail for part in parts if part.detail and part.status != states.FAILED}
    if len(details) == 1:
        return details.pop()
    first, last = min(part.label for part in parts), max(part.label for part in parts)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    start = first[:same].rstrip("0123456789 _-:.[(#")
    return f"{start}…" if len(start) >= 3 else ""


def _unique(edges: Iterable[Edge]) -> list[Edge]:
    return sorted({(source, target) for source, target in edges if source != target})


def _with_siblings(boxes: list[Box], edges: list[Edge], wide: int) -> tuple[list[Box], list[Edge]]:
    """The boxes after many siblings became one."""
    parents: dict[int, list[int]] = {}
    children: dict[int, list[int]] = {}
    for source, target in edges:
        parents.setdefault(target, []).append(source)
        children.setdefault(source, []).append(target)
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for at in range(len(boxes)):
        shape = tuple(parents.get(at, ())), tuple(children.get(at, ()))
        alike.setdefault(shape, []).append(at)
    many = {f"siblings-{boxes[same[0]].members[0]}": same for same in alike.values() if len(same) > wide}
    return _merged(boxes, edges, many, "siblings")


def _merged(
    boxes: list[Box], edges: list[Edge], groups: Mapping[str, Sequence[int]], kind: BoxKind
) -> tuple[list[Box], list[Edge]]:
    """The boxes after each group of positions became one with that key, in the place of its first."""
    if not groups:
        return boxes, edges
    leader = {at: group[0] for group in groups.values() for at in group}
    key_of = {group[0]: key for key, group in groups.items()}
    kept: list[Box] = []
    place: dict[int, int] = {}
    for at, box in enumerate(boxes):
        if leader.get(at, at) == at:
            place[at] = len(kept)
            key = key_of.get(at)
            kept.append(box if key is None else _joined(key, kind, [boxes[one] for one in groups[key]]))
    moved = [place[leader.get(at, at)] for at in range(len(boxes))]
    return kept, _unique((moved[source], moved[target]) for source, target in edges)


def _with_levels(
    boxes: list[Box], edges: list[Edge], most_boxes: int, most_edges: int
) -> tuple[list[Box], list[Edge], int]:
    """The boxes after the widest levels became one each, as many as needed, and the number of edges left out.

    Each try folds twice as many levels as the one before, so there are few. Edges that a longer way implies are left
    out before a level is folded because of the number of edges. If there are more levels than boxes allowed, runs of
    levels become one box each.
    """
    levels = _by_level(levels_of(len(boxes), edges))
    for groups in _tries(boxes, levels, most_boxes):
        found, pairs = _merged(boxes, edges, groups, "level")
        if len(found) <= most_boxes:
            kept = pairs if len(pairs) <= most_edges else without_shortcuts(len(found), pairs)
            if len(kept) <= most_edges:
                break
    return found, kept, len(pairs) - len(kept)


def _by_level(levels: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for at, level in enumerate(levels):
        found[level].append(at)
    return found


def _tries(boxes: list[Box], levels: list[list[int]], most_boxes: int) -> Iterator[dict[str, list[int]]]:
    """Which positions may become one box: more and more levels, and in the end all that is needed."""
    names = {f"level-{number}": level for number, level in enumerate(levels) if len(level) > 1}
    widest = sorted(names, key=lambda key: len(names[key]), reverse=True)
    folding = _enough([len(names[key]) for key in widest], len(boxes) - most_boxes)
    while folding < 2 * len(widest):
        groups = {key: names[key] for key in widest[:folding]}
        yield _without_some_failed(boxes, groups, most_boxes)
        folding = max(1, folding * 2)
    run = max(1, -(-len(levels) // max(1, most_boxes)))
    runs = [list(chain.from_iterable(levels[at : at + run])) for at in range(0, len(levels), run)]
    yield {f"level-{number * run}": sorted(group) for number, group in enumerate(runs) if len(group) > 1}


def _enough(widths: Sequence[int], too_many: int) -> int:
    """How many of the widest levels must be folded to lose so many boxes."""
    for count, width in enumerate(widths):
        if too_many <= 0:
            return count
        too_many -= width - 1
    return len(widths)


def _without_some_failed(boxes: list[Box], groups: Mapping[str, list[int]], most_boxes: int) -> dict[str, list[int]]:
    """The groups without their first failed nodes: half of the room that is left is for these."""
    left = most_boxes - (len(boxes) - sum(len(group) - 1 for group in groups.values()))
    failed = sorted(at for group in groups.values() for at in group if boxes[at].failed)
    alone = set(failed[: max(0, left // 2)])
    smaller = {key: [at for at in group if at not in alone] for key, group in groups.items()}
    return {key: group for key, group in smaller.items() if len(group) > 1}


def _with_cells(boxes: Sequence[Box], opened: Collection[str]) -> tuple[Box, ...]:
    """The boxes, of which only those that are open keep their cells, as many as there is room for."""
    room = MOST_CELLS
    found = []
    for box in boxes:
        is_open = box.key in opened and room > 0
        shown, hidden = _urgent(box.cells, room if is_open else 0)
        room -= len(shown)
        cells = tuple(replace(cell, cells=()) for cell in shown)
        found.append(
            replace(box, cells=cells, hidden=states.counted(cell.status for cell in hidden) if is_open else ())
        )
    return tuple(found)


def _urgent(cells: Sequence[Box], room: int) -> tuple[Sequence[Box], Sequence[Box]]:
    """The cells that are shown and those that are not. If not all are shown, the most urgent ones are."""
    if len(cells) <= room:
        return cells, ()
    ordered = sorted(cells, key=lambda cell: (states.urgency(cell.status), cell.members))
    return ordered[:room], ordered[room:]
