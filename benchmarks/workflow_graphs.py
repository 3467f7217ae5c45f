"""The workflows that are measured. `nodes` of a shape counts all its rows, elements of a map included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from benchmarks.app import app, listing, noop
from horsies import WorkflowSpec, from_node

Spec: TypeAlias = WorkflowSpec[Any]


class Shape(NamedTuple):
    """How the specs are made, and how many nodes they have together."""

    build: Callable[[], list[Spec]]
    nodes: int


def fan_out(width: int) -> Shape:
    """One node, `width` that wait for it, and one that waits for all of those."""

    def build() -> list[Spec]:
        first = noop.node()(n=0)
        middle = [noop.node(waits_for=[first])(n=n) for n in range(width)]
        last = noop.node(waits_for=middle)(n=width)
        return [app.workflow("fan_out", [first, *middle, last], output=last, definition_key="bench.fan_out")]

    return Shape(build, width + 2)


def fan_outs(width: int) -> Shape:
    """Five of those, with `width` nodes in the middle in all."""
    one = fan_out(width // 5)
    return Shape(lambda: [spec for _ in range(5) for spec in one.build()], 5 * one.nodes)


def roots(width: int) -> Shape:
    """`width` nodes that wait for nothing, and one that waits for all of them: a start writes each with its task."""

    def build() -> list[Spec]:
        first = [noop.node()(n=n) for n in range(width)]
        last = noop.node(waits_for=first)(n=width)
        return [app.workflow("roots", [*first, last], output=last, definition_key="bench.roots")]

    return Shape(build, width + 1)


def chain(length: int) -> Shape:
    """Each node waits for the one before it."""

    def build() -> list[Spec]:
        nodes = [noop.node()(n=0)]
        for n in range(1, length):
            nodes.append(noop.node(waits_for=[nodes[-1]])(n=n))
        return [app.workflow("chain", nodes, output=nodes[-1], definition_key="bench.chain")]

    return Shape(build, length)


def diamonds(count: int) -> Shape:
    """So many workflows of four nodes: one, two that wait for it, one that waits for both."""

    def build() -> list[Spec]:
        top = noop.node()(n=0)
        left, right = (noop.node(waits_for=[top])(n=n) for n in (1, 2))
        bottom = noop.node(waits_for=[left, right])(n=3)
        spec = app.workflow("diamond", [top, left, right, bottom], output=bottom, definition_key="bench.diamond")
        return [spec] * count

    return Shape(build, 4 * count)


def mapped(width: int) -> Shape:
    """A list of `width` numbers, a task for each, and a node that waits for all of them."""

    def build() -> list[Spec]:
        source = listing.node()(n=width)
        over = noop.map_node(over=from_node(source))()
        last = noop.node(waits_for=[over])(n=width)
        return [app.workflow("mapped", [source, over, last], output=last, definition_key="bench.mapped")]

    return Shape(build, width + 3)


SHAPES: dict[str, Callable[[int], Shape]] = {
    "fan_out": fan_out,
    "fan_outs": fan_outs,
    "roots": roots,
    "chain": chain,
    "diamonds": diamonds,
    "mapped": mapped,
}
