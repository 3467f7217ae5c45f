"""The picture of a workflow's graph, made of a layout.

Each box has its key as its id (`node-17`, `map-3`, `siblings-4`, `level-2`), the class of its state, a sign of the
state, and a tooltip with the whole text. A box that stands for many nodes shows how many are in each state, with a bar,
and which node failed first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from horsies.web.svg import states
from horsies.web.svg.folding import Box
from horsies.web.svg.layout import CELL, SMALL_CELL, EdgePath, GraphLayout, PlacedBox, Spot
from horsies.web.svg.markup import Svg, label, number, picture, relative, tag, text

STRIPE = 26.0  # the coloured part of a box, which holds the sign
NAME_SIZE = 12.0
DETAIL_SIZE = 10.5
BOLD = 1.1  # how much wider a bold name is
HEAD = 7.0  # of an arrow

_KINDS = {"MAP": "map", "SUBWORKFLOW": "child workflow", "ELEMENT": "element"}


def _no_link(_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class GraphLinks:
    """Where the parts of a graph lead. An address that is not relative is left out.

    `node` gets the index of a node. `unfold` and `refold` get the key of a box that stands for many.
    """

    node: Callable[[int], str | None] = _no_link
    unfold: Callable[[str], str | None] = _no_link
    refold: Callable[[str], str | None] = _no_link


def graph_svg(layout: GraphLayout, *, title: str, links: GraphLinks | None = None) -> Svg:
    """The picture of a layout."""
    used = links or GraphLinks()
    size = {"viewBox": f"0 0 {number(layout.width)} {number(layout.height)}"}
    frame = {"class": f"graph graph-{layout.direction}", **size, "width": layout.width, "height": layout.height}
    if not layout.boxes:
        return _nothing(title)
    boxes = Svg("".join(_placed(placed, used) for placed in layout.boxes))
    parts = (_edges(layout), tag("g", {"class": "boxes"}, boxes))
    return picture({**frame, "font-size": NAME_SIZE}, title, described(layout), *parts, has_links="<a " in boxes)


def described(layout: GraphLayout) -> str:
    """What the picture shows, in words."""
    graph = layout.graph
    counts = states.added(box.counts for box in graph.boxes)
    failed = [box.first_failed for box in graph.boxes if box.first_failed is not None]
    found = f"{_count(graph.nodes, 'node')}: {states.in_words(counts)}."
    if failed:
        found += f" The first failed node is node {min(failed)}."
    if len(graph.boxes) < graph.nodes:
        found += f" Drawn as {_count(len(graph.boxes), 'box', 'boxes')}."
    if graph.implied:
        found += f" Not drawn: {_count(graph.implied, 'edge')} that longer ways imply."
    return found


def legend_svg(statuses: Iterable[str]) -> Svg:
    """The signs of states and their names, on one line."""
    parts, x = [], 2.0
    shown = sorted(set(statuses), key=lambda status: (states.urgency(status), status))
    for status in shown:
        mark = tag("rect", {"class": "frame", "x": x, "y": 2.0, "width": 16.0, "height": 16.0, "rx": 3})
        word = status.lower()
        name = label(word, {"x": x + 22, "y": 14.0, "class": "detail"}, 80, DETAIL_SIZE)
        parts.append(
            tag("g", {"class": f"cell {states.status_class(status)}"}, mark, states.sign(status, x + 8, 10), name)
        )
        x += 34.0 + 6.2 * min(len(word), 13)
    frame = {"class": "legend", "viewBox": f"0 0 {number(x)} 20", "width": x, "height": 20.0, "font-size": DETAIL_SIZE}
    return picture(frame, "Legend", "The signs of states: " + ", ".join(map(str.lower, shown)), *parts)


def _nothing(title: str) -> Svg:
    words = tag("text", {"class": "no-data", "x": 160, "y": 34, "text-anchor": "middle"}, text("no nodes"))
    frame = {"class": "graph", "viewBox": "0 0 320 60", "width": 320, "height": 60, "font-size": NAME_SIZE}
    return picture(frame, title, "This workflow has no nodes.", words)


def _edges(layout: GraphLayout) -> Svg:
    lines = [_line(layout, way) for way in layout.ways]
    heads = "".join(_head(way.spots[-1], layout.direction) for way in layout.ways)
    found = [*lines, *([tag("path", {"class": "heads", "d": heads})] if heads else [])]
    return tag("g", {"class": "edges"}, *found, Svg(""))


def _line(layout: GraphLayout, way: EdgePath) -> Svg:
    source, target = layout.boxes[way.source].box, layout.boxes[way.target].box
    kinds = ["edge"]
    if way.is_back:
        kinds.append("edge-back")
    if "level" in (source.kind, target.kind):
        kinds.append("edge-some")  # it leads from or to some of the nodes of that box
    elif source.kind == "node" and source.failed:
        kinds.append("edge-failed")
    names = {"data-from": source.key, "data-to": target.key}
    return tag("path", {"class": " ".join(kinds), "d": _curve(way.spots, layout.direction), **names})


def _curve(spots: tuple[Spot, ...], direction: str) -> str:
    """Straight where two spots are in line, else bent so that it starts and ends in the direction of the layout."""
    right = direction == "right"
    last_x, last_y = spots[-1]
    end = (last_x - HEAD + 1, last_y) if right else (last_x, last_y - HEAD + 1)
    points = [*spots[:-1], end]
    parts = [f"M{_point(*points[0])}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        if (y1 == y2 and x2 >= x1) if right else (x1 == x2 and y2 >= y1):
            parts.append(f"L{_point(x2, y2)}")
            continue
        reach = max(abs(x2 - x1) if right else abs(y2 - y1), 24.0) / 2
        before = (x1 + reach, y1) if right else (x1, y1 + reach)
        after = (x2 - reach, y2) if right else (x2, y2 - reach)
        parts.append(f"C{_point(*before)} {_point(*after)} {_point(x2, y2)}")
    return "".join(parts)


def _head(spot: Spot, direction: str) -> str:
    x, y = spot
    back, side = number(-HEAD), number(HEAD / 2)
    shape = f"l{back} -{side}v{number(HEAD)}z" if direction == "right" else f"l-{side} {back}h{number(HEAD)}z"
    return f"M{_point(x, y)}{shape}"


def _point(x: float, y: float) -> str:
    return f"{number(x)} {number(y)}"


def _placed(placed: PlacedBox, links: GraphLinks) -> Svg:
    return _node(placed, links) if placed.box.kind == "node" else _group(placed, links)


def _node(placed: PlacedBox, links: GraphLinks) -> Svg:
    box, x, y = placed.box, placed.x, placed.y
    room = placed.width - STRIPE - 16
    parts = [
        tag("title", {}, text(_tooltip(box))),
        _rect("frame", x, y, placed.width, placed.height, rx=6.0),
        *(
            [_rect("inner", x + 3, y + 3, placed.width - 6, placed.height - 6, rx=4.0)]
            if box.node_kind == "SUBWORKFLOW"
            else []
        ),
        _stripe(x, y, placed.height),
        states.sign(box.status, x + STRIPE / 2, y + placed.height / 2),
        label(
            box.label,
            {"class": "name", "x": x + STRIPE + 8, "y": y + (19 if box.detail else 26)},
            room,
            NAME_SIZE * BOLD,
        ),
    ]
    if box.detail:
        spot = {"class": "detail", "x": x + STRIPE + 8, "y": y + 34, "font-size": DETAIL_SIZE}
        parts.append(label(box.detail, spot, room, DETAIL_SIZE))
    return tag("g", _named(box, "node"), _linked(links.node(box.members[0]), *parts))


def _group(placed: PlacedBox, links: GraphLinks) -> Svg:
    """A box for many nodes: a stack if it is folded, a frame around cells if it is open."""
    box, x, y = placed.box, placed.x, placed.y
    head = placed.height if not box.is_open else 50.0
    toggle = links.refold(box.key) if box.is_open else links.unfold(box.key)
    verb = "" if relative(toggle) is None else (" – fold" if box.is_open else " – unfold")
    room = placed.width - STRIPE - 16
    face = [
        tag("title", {}, text(_tooltip(box) + verb)),
        _rect("frame", x, y, placed.width, placed.height, rx=6.0),
        _stripe(x, y, head, is_header=box.is_open),
        states.sign(box.status, x + STRIPE / 2, y + head / 2),
        _words("detail", x + STRIPE + 8, y + 33, states.in_words(box.counts), room),
    ]
    behind = () if box.is_open else (_rect("behind", x + 4, y + 4, placed.width, placed.height, rx=6.0),)
    bar = _bar(box, x + STRIPE + 8, y + (52.0 if box.failed else 44.0), room)
    return tag(
        "g",
        _named(box, "group"),
        *behind,
        _linked(toggle, *face),
        _name_of_group(box, x + STRIPE + 8, y + 17, room, links),
        bar,
        *_first_failed(box, x + STRIPE + 8, y + 46, room, links),
        *(_cell(cell, links) for cell in placed.cells),
        *_hidden(placed),
    )


def _name_of_group(box: Box, x: float, y: float, room: float, links: GraphLinks) -> Svg:
    many = len(box.members) - (box.index is not None)
    name = f"{many:,} × {box.label}" if box.label else _count(many, "node")
    written = label(name, {"class": "name", "x": x, "y": y}, room, NAME_SIZE * BOLD)
    return written if box.index is None else _linked(links.node(box.index), written)


def _first_failed(box: Box, x: float, y: float, room: float, links: GraphLinks) -> tuple[Svg, ...]:
    if box.first_failed is None:
        return ()
    words = f"first failed: node {box.first_failed}"
    written = label(words, {"class": "first-failed", "x": x, "y": y, "font-size": DETAIL_SIZE}, room, DETAIL_SIZE)
    return (_linked(links.node(box.first_failed), written),)


def _bar(box: Box, x: float, y: float, width: float) -> Svg:
    """The states of the members as parts of a line; each part can be seen, however small it is."""
    total = sum(count for _, count in box.counts) or 1
    least = min(3.0, width / max(1, len(box.counts)))
    left = width - least * len(box.counts)
    parts, at = [], x
    for status, count in box.counts:
        part = least + left * count / total
        parts.append(_rect(f"part {states.status_class(status)}", at, y, part, 4.0))
        at += part
    return tag("g", {"class": "bar"}, *parts, Svg(""))


def _cell(placed: PlacedBox, links: GraphLinks) -> Svg:
    box, x, y = placed.box, placed.x, placed.y
    parts = [
        tag("title", {}, text(_tooltip(box))),
        _rect("frame", x, y, placed.width, placed.height, rx=3.0),
        states.sign(box.status, x + (placed.width / 2 if placed.width == SMALL_CELL[0] else 12), y + placed.height / 2),
    ]
    if placed.width == CELL[0]:
        parts.append(
            label(box.label or _count(len(box.members), "node"), {"x": x + 24, "y": y + 16}, CELL[0] - 30, NAME_SIZE)
        )
    index = next(index for index in (box.index, box.first_failed, box.members[0]) if index is not None)
    return tag("g", _named(box, "cell"), _linked(links.node(index), *parts))


def _hidden(placed: PlacedBox) -> tuple[Svg, ...]:
    if not placed.box.hidden:
        return ()
    words = f"not shown: {states.in_words(placed.box.hidden)}"
    return (_words("detail", placed.x + 10, placed.y + placed.height - 4, words, placed.width - 20),)


def _named(box: Box, kind: str) -> dict[str, str]:
    node_kind = f" kind-{box.node_kind.lower()}" if box.node_kind in _KINDS else ""
    return {"id": box.key, "class": f"{kind} {states.status_class(box.status)}{node_kind}"}


def _tooltip(box: Box) -> str:
    kind = _KINDS.get(box.node_kind)
    if box.kind == "node":
        extra = ", ".join(part for part in (kind, box.note) if part)
        return f"{box.label[:120]}: {box.status.lower() or 'unknown'} (node {box.index}{', ' if extra else ''}{extra})"
    found = f"{_count(len(box.members), 'node')} {box.label[:120]}: {states.in_words(box.counts)}"
    return found if box.first_failed is None else f"{found}; first failed: node {box.first_failed}"


def _linked(url: str | None, *parts: Svg) -> Svg:
    address = relative(url)
    return Svg("".join(parts)) if address is None else tag("a", {"href": address}, *parts)


def _rect(kind: str, x: float, y: float, width: float, height: float, rx: float | None = None) -> Svg:
    return tag("rect", {"class": kind, "x": x, "y": y, "width": width, "height": height, "rx": rx})


def _stripe(x: float, y: float, height: float, *, is_header: bool = False) -> Svg:
    """The left part of a box, with the round corners of its frame. In an open box it does not reach the bottom."""
    top = f"M{_point(x + STRIPE, y)}h-{number(STRIPE - 6)}a6 6 0 0 0 -6 6v{number(height - 12)}"
    bottom = f"v6h{number(STRIPE)}z" if is_header else f"a6 6 0 0 0 6 6h{number(STRIPE - 6)}z"
    return tag("path", {"class": "stripe", "d": top + bottom})


def _words(kind: str, x: float, y: float, words: str, room: float) -> Svg:
    return label(words, {"class": kind, "x": x, "y": y, "font-size": DETAIL_SIZE}, room, DETAIL_SIZE)


def _count(many: int, noun: str, nouns: str | None = None) -> str:
    return f"{many:,} {noun if many == 1 else nouns or noun + 's'}"
