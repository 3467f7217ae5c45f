"""Arguments, results and options as trees that a page folds: objects and lists with their sizes, and leaves with their
types. Pure and bounded: whatever a row contains, at most so many nodes, characters and levels are shown, and the page
says what it leaves out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from horsies.core.models.tasks import BUILTIN_KEY
from horsies.core.text import visible_lines

LARGEST_PARSED = 1 << 20  # characters; a longer text is shown as it is
LONGEST_LEAF = 2_000
LONGEST_KEY = 200
MOST_NODES = 1_500
MOST_MEMBERS = 200  # of one object or list
DEEPEST = 12
OPEN_NODES = 30  # a payload of so few nodes is shown open

Kind: TypeAlias = Literal["object", "list", "text", "number", "word", "raw"]


@dataclass(frozen=True, slots=True)
class PayloadNode:
    """A value. `key` is its name or place in what contains it; `size` is how many members it has, or characters; `more`
    is how many of these are not shown."""

    kind: Kind
    key: str | None = None
    text: str = ""
    size: int = 0
    more: int = 0
    members: tuple[PayloadNode, ...] = ()
    is_open: bool = False

    @property
    def is_branch(self) -> bool:
        return self.kind in ("object", "list")

    def walk(self) -> Iterator[PayloadNode]:
        """This node and all below it."""
        yield self
        for member in self.members:
            yield from member.walk()


@dataclass
class _Budget:
    left: int = field(default=MOST_NODES)


def tree(text: str | None) -> PayloadNode | None:
    """What a JSON text says; a text that is no JSON, or a very long one, is shown as it is. None if there is none."""
    if text is None:
        return None
    if len(text) > LARGEST_PARSED:
        return _raw(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _raw(text)
    return tree_of(value)


def tree_of(value: Any) -> PayloadNode:
    """The tree of a value that came from JSON."""
    root = _node(value, None, _Budget(), 0)
    return _opened(root) if sum(1 for _ in root.walk()) <= OPEN_NODES else _opened(root, 1)


def _node(value: Any, key: str | None, budget: _Budget, depth: int) -> PayloadNode:
    budget.left -= 1
    if isinstance(value, Mapping) and value.keys() == {BUILTIN_KEY}:
        value = value[BUILTIN_KEY]  # how built-in codes are marked in a row is nobody's concern
    if isinstance(value, Mapping):
        return _branch("object", value.items(), len(value), key, budget, depth)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _branch("list", enumerate(value), len(value), key, budget, depth)
    if value is None or isinstance(value, bool):
        return PayloadNode("word", key, json.dumps(value))
    if isinstance(value, int | float):
        return PayloadNode("number", key, _number(value))
    return _leaf("text", str(value), key)


def _branch(kind: Kind, members: Any, size: int, key: str | None, budget: _Budget, depth: int) -> PayloadNode:
    shown: list[PayloadNode] = []
    for name, value in members:
        if budget.left <= 0 or len(shown) == MOST_MEMBERS or depth == DEEPEST:
            break
        shown.append(_node(value, _key(name), budget, depth + 1))
    return PayloadNode(kind, key, size=size, more=size - len(shown), members=tuple(shown))


def _key(name: Any) -> str:
    text = str(name)
    return visible_lines(text[:LONGEST_KEY]).replace("\n", "\\n") + ("…" if len(text) > LONGEST_KEY else "")


def _number(value: float) -> str:
    """A number with very many digits cannot even be written by Python."""
    try:
        text = json.dumps(value)
    except ValueError:
        return "a very large number"
    return text if len(text) <= LONGEST_KEY else f"{text[:LONGEST_KEY]}…"


def _leaf(kind: Kind, text: str, key: str | None = None) -> PayloadNode:
    shown = visible_lines(text[:LONGEST_LEAF])
    return PayloadNode(kind, key, shown, size=len(text), more=max(0, len(text) - LONGEST_LEAF))


def _raw(text: str) -> PayloadNode:
    return _leaf("raw", text)


def _opened(node: PayloadNode, levels: int | None = None) -> PayloadNode:
    """The same with branches open: all of them, or those of the first levels."""
    if not node.is_branch or levels == 0:
        return node
    below = None if levels is None else levels - 1
    members = tuple(_opened(member, below) for member in node.members)
    return PayloadNode(node.kind, node.key, node.text, node.size, node.more, members, is_open=True)
