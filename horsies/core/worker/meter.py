"""Counts what a worker does, from the events of its pipeline, once for each batch, while metrics are on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from horsies.core.lifecycle.moves import Complete, Expire, Fail, Move, Requeue, Retry
from horsies.core.monitoring.counts import WorkerCounts
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker.finalizer import Ending
from horsies.core.worker.hand import Held

_OUTCOMES: dict[type, str] = {Complete: "completed", Fail: "failed", Retry: "retried", Expire: "expired"}
HANDED_BACK, LOST = "handed_back", "lost"


class Meter:
    """A listener for `events.subscribe`; `counts` has the totals."""

    def __init__(self) -> None:
        self.counts = WorkerCounts()
        self.ahead_s = 0.0  # how far the database's clock is ahead of ours: it is the one that says when a task was due

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        counts = self.counts
        match event:
            case "tasks.claimed":
                counts.claim.note(len(facts["rows"]), facts["seconds"])
            case "tasks.started":
                counts.start.note(len(facts["batch"]), facts["seconds"])
                self._started(facts["batch"])
            case "tasks.finalized":
                counts.finalize.note(len(facts["endings"]), facts["seconds"])
                self._finalized(facts["endings"], facts["moved"])
            case "tasks.recovered":
                for kind, count in facts["kinds"].items():
                    counts.recovered[_OUTCOMES.get(kind, "requeued")] += count
            case "tasks.expired":
                counts.expired += facts["count"]
            case "workers.swept":
                counts.sweeps += 1
                counts.swept_workers += facts["workers"]
            case "child.ended":
                counts.child_ends["expected" if facts["expected"] else "unexpected"] += 1

    def _started(self, batch: Sequence[Held]) -> None:
        """How long they have waited. Only the first start of each counts, because a retry would include the earlier
        runs."""
        now = datetime.now(UTC).timestamp() + self.ahead_s
        notes: dict[str, Callable[[float], None]] = {}
        for held in batch:
            row = held.row
            if not row.retry_count and not row.start_failures:
                note = notes.get(row.queue_name)
                if note is None:
                    note = notes[row.queue_name] = self.counts.waits(row.queue_name).note
                note(now - row.enqueued_at.timestamp())

    def _finalized(self, endings: Sequence[Ending], moved: Mapping[str, type]) -> None:
        ends: Counter[tuple[str, str, type | None]] = Counter()
        notes: dict[str, Callable[[float], None]] = {}
        for ending in endings:
            held = ending.held
            row, kind = held.row, moved.get(held.id)
            ends[row.queue_name, row.task_name, kind] += 1
            if kind is not Complete and kind is not None and _is_crash(ending.move):
                self.counts.crashed += 1
            if held.started is not None and held.settling_since is not None and kind is not Requeue:
                note = notes.get(row.task_name)
                if note is None:
                    note = notes[row.task_name] = self.counts.runs(row.task_name).note
                note(held.settling_since - held.started)
        for (queue, task, kind), count in ends.items():
            self.counts.end(queue, task, LOST if kind is None else _OUTCOMES.get(kind, HANDED_BACK), count)


def _is_crash(move: Move) -> bool:
    end = move.otherwise if isinstance(move, Retry) else move
    return isinstance(end, Fail) and end.outcome is TaskAttemptOutcome.WORKER_FAILURE
