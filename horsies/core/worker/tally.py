"""What the log says about ended tasks: a line for each that an operator may care about, and a summary of the rest.

With thousands of tasks per second nobody reads a line per task: at most `LINES` failures per period get their own line,
and the others are in the numbers of the summary.
"""

from __future__ import annotations

import json
import logging
from collections import Counter

from horsies.core import logs
from horsies.core.lifecycle.moves import Complete, Expire, Fail, Move, Retry
from horsies.core.types.status import TaskAttemptOutcome
from horsies.core.worker.dispatcher import log_fields
from horsies.core.worker.hand import Held

log = logging.getLogger("horsies.worker")

PERIOD_S = 5.0
LINES = 10


class Tally:
    """Counts ended tasks; `summarize` is called every `PERIOD_S`."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._counts: Counter[str] = Counter()
        self._lines = 0
        self.total: Counter[str] = Counter()
        self.aborts: Counter[str] = Counter()  # L-26: by the name of the abort

    def note(self, held: Held, move: Move) -> None:
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

    def _line(self, event: str, held: Held, fail: Fail) -> None:
        self._lines += 1
        crashed = fail.outcome is TaskAttemptOutcome.WORKER_FAILURE
        level = logging.ERROR if crashed else logging.WARNING
        if self._lines > LINES and not crashed:
            level = logging.DEBUG
        reason = (fail.failed_reason or fail.error_message or "").removeprefix(f"task {held.row.task_name!r} ")
        logs.log_failure(log, level, event, self._fields(held), code=fail.error_code, reason=reason)
        if log.isEnabledFor(logging.DEBUG) and (trace := traceback_in(fail.result)):
            log.debug("it failed at:\n%s", trace, extra={"horsies": self._fields(held)})

    def _fields(self, held: Held) -> dict[str, object]:
        return {**log_fields(held), "worker": self._worker_id}


def traceback_in(result: str) -> str | None:
    """The traceback in the stored error, if there is one."""
    try:
        found = json.loads(result)["err"]["exception"]["traceback"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else None


_VERBS: dict[type, str] = {Complete: "completed", Fail: "failed", Retry: "retried", Expire: "expired"}
