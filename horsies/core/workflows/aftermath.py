"""The follow-up work of a step of the engine, after its commit."""

from __future__ import annotations

from dataclasses import dataclass, field

from horsies.core.workflows.settling import Key


@dataclass(slots=True)
class Aftermath:
    """What must be done after the commit, and how much was done."""

    to_build: list[Key] = field(default_factory=list)  # sub-workflow nodes that are READY
    ended: list[str] = field(default_factory=list)  # workflows that ended and have a parent
    # Workflows with READY nodes that are not enqueued yet, and how many of them the next step tries (None: `MOST`).
    more: dict[str, int | None] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)  # ended tasks that were too much for one step: of which workflow
    left_children: list[str] = field(default_factory=list)
    nodes: int = 0
    workflows: int = 0
