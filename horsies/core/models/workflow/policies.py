"""When a workflow counts as a success although a node failed (F-42).

Nodes are given as objects, by their key, or by their id, because the body of an inner `class Meta` does not see the
names of the class around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from horsies.core.models.workflow.nodes import Node, NodeKey

    NodeRef: TypeAlias = Node[Any] | NodeKey[Any] | str


@dataclass(frozen=True, slots=True)
class SuccessCase:
    """One way to succeed: all of these nodes have completed."""

    required: Iterable[NodeRef]

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", _listed(self.required))


@dataclass(frozen=True, slots=True)
class SuccessPolicy:
    """The workflow is COMPLETED if one of the cases holds, checked in order; optional nodes may fail."""

    cases: Iterable[SuccessCase]
    optional: Iterable[NodeRef] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", tuple(self.cases))
        object.__setattr__(self, "optional", _listed(self.optional))


def _listed(nodes: Iterable[NodeRef]) -> tuple[NodeRef, ...]:
    # A text is iterable too, and its letters are not what is meant.
    return (nodes,) if isinstance(nodes, str) else tuple(nodes)
