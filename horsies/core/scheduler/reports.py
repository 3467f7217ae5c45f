"""What a scheduler logs about its schedules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from horsies.core import logs
from horsies.core.scheduler.board import Entry
from horsies.core.scheduler.firing import Pass
from horsies.core.scheduler.plan import Begin, Restart

log = logging.getLogger("horsies.scheduler")

NAMES = 10
MANY_MISSES = 16


def report(entries: Sequence[Entry], done: Pass) -> None:
    for entry in entries:
        step = done.steps.get(entry.name)
        if isinstance(step, Restart):
            log.warning(
                "schedule %r has another pattern or time zone than before: its next run is %s, what was missed is "
                "dropped", entry.name, _shown(step.next_run_at),
            )  # fmt: skip
        elif isinstance(step, Begin):
            log.info("new schedule %r: its first run is %s", entry.name, _shown(step.next_run_at))
        if step is not None and step.next_run_at is None:
            log.error("schedule %r has no run within eight years: it will not run again", entry.name)
    fired = {name: count for name, count in done.sent.items() if count}
    if fired:
        names = sorted(fired)
        shown = ", ".join(names[:NAMES]) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")
        log.info("%s sent for %s", logs.counted(sum(fired.values()), "task"), shown)


def complain(entry: Entry, why: str) -> None:
    """It could not be sent, and is tried again and again."""
    entry.failures += 1
    if logs.is_worth_a_line(entry.failures):
        tries = f" ({entry.failures} times in a row)" if entry.failures > 1 else ""
        log.error("schedule %r could not be sent and will be retried: %s%s", entry.name, why, tries)


def note_missed(entry: Entry) -> None:
    """Another process holds the lock, which is reported only if it continues."""
    entry.misses += 1
    if entry.misses >= MANY_MISSES and logs.is_worth_a_line(entry.misses):
        log.warning(
            "schedule %r is due, but another process has kept it locked during the last %d checks", entry.name,
            entry.misses,
        )  # fmt: skip


def _shown(at: datetime | None) -> str:
    return "never" if at is None else at.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
