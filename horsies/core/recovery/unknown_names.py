"""Ends waiting tasks whose name no live worker has known for `unknown_task_grace_ms` (O-31).

Only a worker that does not know a name looks for its tasks, and only in its own queues. It reads the oldest part of
the line, in small steps; what it has not reached when its time is over, the next pass continues with. The database
decides about each task in the statement that ends it: a worker that knows the name may have come in the meantime.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic

from horsies.core import events
from horsies.core.db import Connection, Connections, by_halves, describe, is_about_content
from horsies.core.recovery import apply
from horsies.core.sql import texts
from horsies.core.store import names as store
from horsies.core.store.names import Known, Level, OrphanedName, Place, UnknownTask

log = logging.getLogger("horsies.recovery")

MOST_STEPS = 20  # of one pass in which nothing was ended
OLD = timedelta(days=2)  # what nobody has needed for so long is deleted, or for twice the grace
PRUNED = 500


class UnknownNames:
    """`known` says which names this worker, `me`, knows."""

    def __init__(
        self,
        pool: Connections,
        queues: Sequence[str],
        grace: timedelta,
        known: Callable[[], Known],
        on_ended: apply.OnEnded = apply.nobody,
        me: str = "",
    ) -> None:
        self._pool = pool
        self._queues = queues
        self._grace = grace
        self._known = known
        self._on_ended = on_ended
        self._me = me
        self._places: dict[Level, Place] = {}

    async def end_orphans(self, until: float) -> None:
        """One pass, until this time at most."""
        steps, known = 0, self._known()
        bound = texts(sorted(known.names))
        while steps < MOST_STEPS and monotonic() < until:
            async with self._pool.connection() as conn:
                found, more = await store.find_unknown(conn, self._queues, bound, self._grace, self._places)
            ended = await self._end(found, known.names_hash) if found else 0
            steps = 0 if ended else steps + 1
            self._places = self._places | more if more else {}
            if not more:
                break

    async def prune(self, conn: Connection) -> bool:
        """Delete some of what was noted about names and left tasks, and is not needed any more; return whether there
        may be more."""
        return await store.prune(conn, max(OLD, 2 * self._grace), PRUNED) >= PRUNED

    async def _end(self, found: Sequence[UnknownTask], names_hash: str) -> int:
        async def fail(part: Sequence[UnknownTask]) -> set[OrphanedName]:
            async with self._pool.connection() as conn:
                ended = await store.fail_unknown(conn, part, names_hash, self._grace)
            self._on_ended((task.id, task.workflow_id) for task in ended if task.workflow_id is not None)
            return ended

        def leave(task: UnknownTask, problem: Exception) -> None:
            facts = {"horsies": {"task_id": task.id, "task": task.task_name}}
            log.error("a task that nobody knows cannot be ended: %s", describe(problem), extra=facts)

        parts = await by_halves(found, fail, is_refusal=is_about_content, give_up=leave)
        ended = {task for part in parts for task in part}
        if ended:
            names = Counter((task.queue_name, task.task_name) for task in ended)
            events.emit("tasks.unknown", by=self._me, names=names)
        for name, count in Counter(task.task_name for task in ended).items():
            log.warning(
                "%d waiting tasks named %r failed, WORKER_RESOLUTION_ERROR: no live worker has known the name for %g s",
                count,
                name,
                self._grace.total_seconds(),
                extra={"horsies": {"task": name}},
            )
        return len(ended)
