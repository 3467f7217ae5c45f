"""What the log says about ended tasks: a line for each that an operator may care about, and a summary of the rest.

With thousands of tasks per second nobody reads a line per task: at most `LINES` failures per period get their own line,
and the others are in the numbers of the summary.

What a worker publishes about itself: snapshots and answers to pings.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from time import monotonic
from typing import Any

import psutil

from horsies.core import logs
from horsies.core.db.pool import Pool
from horsies.core.store import workers
from horsies.core.tasks.moves import Complete, Expire, Fail, Move, Retry
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker.children import Children
from horsies.core.worker.config import Identity
from horsies.core.worker.in_hand import HeldTask, InHand, Phase, log_fields

log = logging.getLogger("horsies.worker")

PERIOD_S = 5.0

LINES = 10


class OutcomeLog:
    """Counts ended tasks; `summarize` is called every `PERIOD_S`."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._counts: Counter[str] = Counter()
        self._lines = 0
        self.total: Counter[str] = Counter()
        self.aborts: Counter[str] = Counter()  # L-26: by the name of the abort

    def note(self, held: HeldTask, move: Move) -> None:
        verb = _VERBS.get(type(move), "handed back")
        self._counts[verb] += 1
        self.total[verb] += 1
        if isinstance(move, Fail):
            self._line("task failed", held, move)
        elif isinstance(move, Retry):
            self._line(f"task failed and will be retried in {move.delay_s:.0f} s", held, move.otherwise)
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("task %s", verb, extra={"horsies": self._fields(held)})

    def summarize(self) -> None:
        if self._counts:
            text = ", ".join(f"{count} {verb}" for verb, count in self._counts.most_common())
            log.info("last %g s: %s", PERIOD_S, text, extra={"horsies": {"worker": self._worker_id}})
        self._counts.clear()
        self._lines = 0

    def in_all(self) -> str:
        """The totals of all its tasks, in words."""
        return ", ".join(f"{count} {verb}" for verb, count in self.total.most_common()) or "no task"

    def _line(self, event: str, held: HeldTask, fail: Fail) -> None:
        self._lines += 1
        crashed = fail.outcome is TaskAttemptOutcome.WORKER_FAILURE
        level = logging.ERROR if crashed else logging.WARNING
        if self._lines > LINES and not crashed:
            level = logging.DEBUG
        reason = (fail.failed_reason or fail.error_message or "").removeprefix(f"task {held.row.task_name!r} ")
        logs.log_failure(log, level, event, self._fields(held), code=fail.error_code, reason=reason)
        if log.isEnabledFor(logging.DEBUG) and (trace := traceback_in(fail.result)):
            log.debug("it failed at:\n%s", trace, extra={"horsies": self._fields(held)})

    def _fields(self, held: HeldTask) -> dict[str, object]:
        return {**log_fields(held), "worker": self._worker_id}


def traceback_in(result: str) -> str | None:
    """The traceback in the stored error, if there is one."""
    try:
        found = json.loads(result)["err"]["exception"]["traceback"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


_VERBS: dict[type, str] = {Complete: "completed", Fail: "failed", Retry: "retried", Expire: "expired"}


class Snapshots:
    """A service calls `snapshot` (W-71) at its interval."""

    def __init__(self, pool: Pool, me: Identity, settings: Mapping[str, Any], hand: InHand, children: Children) -> None:
        self._pool = pool
        self._me = me
        self._settings = settings
        self._hand = hand
        self._children = children
        self._born = monotonic()
        self._process = psutil.Process(me.pid)

    async def snapshot(self) -> None:
        """Append one row about this worker."""
        claimed = self._hand.count(Phase.CLAIMED, Phase.STARTING)
        row = {
            **self._settings,
            "worker_id": self._me.worker_id,
            "hostname": self._me.hostname,
            "pid": self._me.pid,
            "tasks_running": len(self._hand) - claimed,
            "tasks_claimed": claimed,
            "memory_usage_mb": self._process.memory_info().rss / 2**20,
            "memory_percent": self._process.memory_percent(),
            "cpu_percent": self._process.cpu_percent(),
            "children_memory_mb": sum(child.rss_mb for child in self._children.children),
            "age": monotonic() - self._born,
        }
        async with self._pool.connection() as conn:
            await workers.snapshot(conn, row)

    def answer_to(self, payload: str) -> str | None:
        """The answer to a ping, or None if it is not for this worker."""
        try:
            ping = json.loads(payload)
            target, nonce = ping.get("target"), ping["id"]
        except (ValueError, KeyError, AttributeError):
            return None
        if target not in (None, self._me.worker_id):
            return None
        pong = {"id": nonce, "worker_id": self._me.worker_id, "hostname": self._me.hostname, "pid": self._me.pid}
        return json.dumps(pong)
