"""What the tasks of an app are sent with unless the sender says otherwise (D-59b): senders in other languages cannot
read it in Python's definitions. A child tells it to its worker, and the worker publishes it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from horsies.core.tasks.definition import TaskDefinition


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """What one task is sent with."""

    task_name: str
    queue_name: str
    priority: int
    task_options: str | None
    flags: str | None
    reject_bytes: int | None


class Catalogue(NamedTuple):
    """The tasks of an app by name, and its queues with their priorities."""

    tasks: tuple[TaskDefaults, ...]
    queues: Mapping[str, int]

    @property
    def names(self) -> list[str]:
        return [task.task_name for task in self.tasks]


NOTHING = Catalogue((), {})


def catalogue_of(tasks: Mapping[str, TaskDefinition[Any, Any]]) -> Catalogue:
    """That of these tasks, all of which belong to one app."""
    found = (tasks[name] for name in sorted(tasks))
    defaults = tuple(
        TaskDefaults(t.task_name, t.queue_name, t.priority, t.options_json, t.flags_json, t.sizes.reject_bytes)
        for t in found
    )
    queues = next((task.known_queues for task in tasks.values()), {})
    return Catalogue(defaults, dict(queues))


def to_wire(catalogue: Catalogue) -> dict[str, Any]:
    """As JSON for the worker."""
    return {"tasks": [astuple(task) for task in catalogue.tasks], "queues": catalogue.queues}


def from_wire(told: Any) -> Catalogue:
    """What a child has told."""
    return Catalogue(tuple(TaskDefaults(*task) for task in told["tasks"]), told["queues"]) if told else NOTHING
