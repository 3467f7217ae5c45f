"""Which queues a task could go to, and who would run it there: for the dialogs that move tasks or send them again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from horsies import monitoring
from horsies.core.models.monitoring.cluster import Snapshot, WorkerStateInfo
from horsies.core.text import counted, visible
from horsies.web.format import cell
from horsies.web.pages.frame import Viewer

MOST_OFFERED = 200
LONGEST_NAME = 300
MOST_NAMED = 3
UNSERVED = "no live worker serves it"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """A queue with its live workers: how many there are, how many of them know the tasks that could go there, and how
    many do not say what they know."""

    name: str
    live: int
    knowing: int
    silent: int = 0

    @property
    def is_good(self) -> bool:
        return self.knowing + self.silent > 0

    def words(self, what: str) -> str:
        """Who would run the tasks there; `what` names them."""
        if not self.live:
            return UNSERVED
        workers = counted(self.live, "live worker")
        if self.silent:
            return f"{workers}, which may know {what}"
        if self.live == 1:
            return f"{workers}, which {'knows' if self.knowing else 'does not know'} {what}"
        if self.knowing in (0, self.live):
            return f"{workers}, {'which know' if self.knowing else 'none knows'} {what}"
        return f"{workers}, {self.knowing} of them know{'s' if self.knowing == 1 else ''} {what}"


def choices_of(snapshot: Snapshot, names: Collection[str]) -> list[QueueChoice]:
    """All queues that are known, those first whose workers know all of these tasks."""
    live = [worker for worker in snapshot.workers if worker.is_live and not worker.is_draining]
    known = {queue.name for queue in snapshot.queues} | {queue for worker in live for queue in worker.queues}
    choices = [_choice(name, [worker for worker in live if name in worker.queues], names) for name in sorted(known)]
    return sorted(choices, key=lambda choice: (not choice.knowing, not choice.is_good, not choice.live))


def _choice(name: str, serving: Sequence[WorkerStateInfo], names: Collection[str]) -> QueueChoice:
    said = [worker.task_names for worker in serving if worker.task_names is not None]
    return QueueChoice(name, len(serving), sum(set(names) <= set(one) for one in said), len(serving) - len(said))


def options_of(choices: Sequence[QueueChoice], names: Collection[str]) -> list[tuple[str, str]]:
    """The queues for a form, and who would run the tasks there. What is chosen is what is asked for, so names that
    cannot be shown as they are are not offered."""
    shown = [choice for choice in choices if cell(choice.name, LONGEST_NAME) == choice.name]
    return [(choice.name, choice.words(_what(names))) for choice in shown[:MOST_OFFERED]]


async def queue_options(viewer: Viewer, ids: Sequence[str]) -> list[tuple[str, str]]:
    """Where these tasks could be moved to."""
    names = {task.task_name for task in await viewer.read(monitoring.get_task_summaries, ids)}
    return options_of(choices_of(await viewer.read(monitoring.take_snapshot), names), names)


async def unserved_warning(viewer: Viewer, queue: str, task_name: str) -> list[str]:
    """What to know before a task is sent to this queue: nothing if a live worker there would run it."""
    choices = choices_of(await viewer.read(monitoring.take_snapshot), {task_name})
    return warning_of(choices, queue, task_name)


def warning_of(choices: Sequence[QueueChoice], queue: str, task_name: str) -> list[str]:
    here = next((choice for choice in choices if choice.name == queue), QueueChoice(queue, 0, 0))
    if here.is_good:
        return []
    served = "knows this task" if here.live else f"serves the queue {visible(queue)}"
    others = [cell(choice.name, 60) for choice in choices if choice.is_good][:MOST_NAMED]
    what = f" Move it then to a queue that is served: {', '.join(others)}." if others else ""
    return [f"No live worker {'of its queue ' if here.live else ''}{served}: the new task would wait.{what}"]


def _what(names: Collection[str]) -> str:
    return cell(next(iter(names)), 60) if len(names) == 1 else "all of these tasks"
