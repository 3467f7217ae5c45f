"""When a worker looks again for what has expired."""

from __future__ import annotations

from horsies.core.recovery.reaper import EXPIRY_S, IDLE_S, MOST_SHARES, pause_before_look
from horsies.core.store.tasks import Outlook
from tests.each import each


def ahead(tasks_s: float | None = None, workflows_s: float | None = None, workers: int = 1) -> Outlook:
    return Outlook(None, False, False, tasks_s, workflows_s, workers)


@each(
    ("seen", "is_idle", "pause"),
    [
        (ahead(), False, EXPIRY_S),
        (ahead(workers=0), False, EXPIRY_S),
        (ahead(workers=3), False, 3 * EXPIRY_S),
        (ahead(workers=1_000), False, MOST_SHARES * EXPIRY_S),
        (ahead(), True, IDLE_S),
        (ahead(tasks_s=2.5), True, 2.5),
        (ahead(tasks_s=2.5, workflows_s=0.5), True, 0.5),
        (ahead(tasks_s=0.0, workers=8), False, 0.0),
        (ahead(tasks_s=100.0), True, IDLE_S),
    ],
)
def test_r16_a_known_deadline_is_not_missed_and_new_ones_are_looked_for_in_turn(
    seen: Outlook, is_idle: bool, pause: float
) -> None:
    assert pause_before_look(seen, is_idle=is_idle) == pause
