"""Whether a child is alive: it has reported recently, or it uses the processor (W-01).

C code may hold the interpreter for minutes, so that no thread of the child can report. A child that exists but is
silent and idle (stopped, or stuck in C code that waits) does not count as alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

import psutil

from horsies.core.worker.pool import Child


class VitalSigns:
    """Remembers for each child how much processor time it had used at the last check."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._used: dict[int, float] = {}

    def look(self, children: Iterable[Child]) -> set[int]:
        """The pids of the children with tasks that are alive."""
        alive: set[int] = set()
        used: dict[int, float] = {}
        for child in children:
            spent = _processor_time(child.pid)
            if spent is None or child.is_dead or child.is_killed:
                continue
            # Noted also while it is heard of: else the first silent look would have nothing to compare with.
            used[child.pid] = spent
            if monotonic() - child.last_heard < self._silent_s or spent > self._used.get(child.pid, spent):
                alive.add(child.pid)
        self._used = used  # the others are forgotten: a pid may come back as somebody else's
        return alive


def _processor_time(pid: int) -> float | None:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)
