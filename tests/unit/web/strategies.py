"""Graphs, also impossible ones, and texts that want to be more than text."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from horsies.web.svg.folding import Edge, GraphNode
from horsies.web.svg.states import URGENCY

STATUSES = ("PENDING", "READY", "ENQUEUED", "RUNNING", "COMPLETED", "FAILED", "SKIPPED")

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onload='alert(1)",
    "]]><svg/onload=alert(1)>",
    "</title></svg><script src=//evil.example.com></script>",
    "javascript:alert(1)",
    "&lt;script&gt; &#x3c;script&#x3e; &amp;",
    "\x1b[31mred\x1b[0m \x9b1m",
    "\u202eevil\u202c \u2066x\u2069 \u200f",
    "\x00\x01\x08\x0b\x0c\x7f\ufffe\uffff\ufdd0",
    "\ud800 alone",
    "line\nbreak\ttab\r\u2028next",
    "👩‍👩‍👧‍👦 émoji 漢字 עברית فارسی",
    "Z" + "\u0301\u0489" * 200,
    "\ufdfd" * 50,
    "W" * 2_000_000,
    "<" * 100_000,
    "",
    "style=color:red",
    "x" * 40 + "&" * 40,
)


few = settings(max_examples=25, deadline=None)  # a graph is dear to draw


@st.composite
def graphs(draw: st.DrawFn, most: int = 24) -> tuple[list[GraphNode], list[Edge]]:
    """Nodes and edges as rows may say it: circles, loops, absent nodes, the same twice, maps within maps."""
    count = draw(st.integers(0, most))
    place = st.integers(-2, count + 2)
    nodes = [
        GraphNode(
            index=draw(place) if draw(st.booleans()) else at,
            label=draw(st.sampled_from(("load", f"step_{at}", "resize[3]", "<b>", "\u202e"))),
            status=draw(st.sampled_from((*STATUSES, "ODD", ""))),
            detail=draw(st.sampled_from(("", "app.load", "TIMEOUT"))),
            kind=draw(st.sampled_from(("TASK", "MAP", "ELEMENT", "SUBWORKFLOW", "?"))),
            map_index=draw(st.none() | st.none() | place),
        )
        for at in range(count)
    ]
    edges = draw(st.lists(st.tuples(place, place), max_size=3 * most))
    return nodes, edges


@st.composite
def dags(draw: st.DrawFn, most: int = 40) -> tuple[int, list[Edge]]:
    """A number of nodes and edges without circles."""
    count = draw(st.integers(1, most))
    place = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(place, place), max_size=3 * most))
    return count, sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})


def a_node(index: int, status: str = "COMPLETED", **more: object) -> GraphNode:
    return GraphNode(**{"index": index, "label": f"step_{index}", "status": status, "detail": "app.work", **more})  # type: ignore[arg-type]


def random_dag(count: int, degree: int, window: int, seed: int = 1) -> tuple[list[GraphNode], list[Edge]]:
    """A large graph: each node waits for up to `degree` of the `window` nodes before it."""
    dice = random.Random(seed)
    nodes = [a_node(index, dice.choices(URGENCY, [2, 0, 0, 0, 10, 0, 0, 0, 20, 60, 8])[0]) for index in range(count)]
    edges = [
        (dice.randint(max(0, index - window), index - 1), index)
        for index in range(1, count)
        for _ in range(dice.randint(0, degree))
    ]
    return nodes, edges


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python it executes: what it costs, whatever else the machine does."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
