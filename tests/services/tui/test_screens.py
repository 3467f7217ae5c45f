"""The screens of the terminal dashboard as text (M-97), from values that never change, compared with the files in
`screens/`. After a wanted change, HORSIES_WRITE_SCREENS=1 writes them anew; read the difference before committing it.
"""

from __future__ import annotations

import os

import pytest

from horsies.core.models.monitoring.cluster import Snapshot
from horsies.core.types.status import TaskStatus
from tests.services.tui.support import Viewer, watching
from tests.support import eventually
from tests.tui_support import (
    DEAD,
    SCREENS,
    FixedSource,
    a_dead_worker,
    a_detail,
    a_queue,
    a_snapshot,
    a_still_clock,
    a_worker,
)

VARIABLE = "HORSIES_WRITE_SCREENS"

# By name: the size, and the keys that lead there.
WANTED: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {
    "dashboard": ((80, 24), ()),
    "dashboard-wide": ((120, 32), ()),
    "dashboard-narrow": ((40, 15), ()),
    "dashboard-trouble": ((80, 24), ()),
    "queue": ((80, 24), ("end", "enter")),
    "workers": ((80, 24), ("2",)),
    "workers-6h": ((100, 40), ("2", "right_square_bracket", "right_square_bracket", "down")),
    "worker": ((80, 40), ("2", "enter")),
    "tasks": ((80, 24), ("3",)),
    "tasks-open": ((80, 24), ("3", "enter", "down")),
    "tasks-wide": ((120, 24), ("3", "enter", "down")),
    "tasks-none": ((80, 12), ("3", "n")),
    "task": ((80, 40), ("3", "enter", "down", "enter")),
    "task-waiting": ((80, 40), ("3", "enter", "down", "enter")),
    "workflows": ((80, 24), ("4",)),
    "workflow": ((80, 30), ("4", "enter", "down", "enter")),
    "node": ((80, 40), ("4", "enter", "enter")),
    "maintenance": ((80, 30), ("5",)),
    "help": ((80, 40), ("question_mark",)),
    "search": ((80, 12), ("slash", "m", "a", "i", "l")),
    "searched": ((80, 24), ("slash", "m", "a", "i", "l", "enter")),
}


def trouble() -> Snapshot:
    busy = a_worker(tasks_running=4)
    alone = a_queue("reports", oldest_due_seconds=4_000.0, live_workers=0, running=0, claimed=0)
    return a_snapshot(workers=(busy, a_dead_worker()), queues=(a_queue(oldest_due_seconds=90.0), alone))


SOURCES = {
    "dashboard-trouble": lambda: FixedSource(trouble(), {DEAD: 2}),
    "task-waiting": lambda: FixedSource(
        the_task=a_detail(status=TaskStatus.PENDING, result=None, error_code=None, ended_at=None, attempts=())
    ),
    "maintenance": lambda: FixedSource(the_held={DEAD: 2}),
}


@pytest.mark.parametrize("name", WANTED)
async def test_m97_the_screen_is_as_it_was(name: str) -> None:
    size, keys = WANTED[name]
    source = SOURCES.get(name, FixedSource)()
    async with watching(source=source, size=size, clock=a_still_clock()) as viewer:
        for key in keys:
            await _settled(viewer)
            await viewer.press(key)
        await _settled(viewer)
        shown = viewer.screen.rstrip() + "\n"
    file = SCREENS / f"{name}.txt"
    if os.environ.get(VARIABLE):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


async def _settled(viewer: Viewer) -> None:
    """Everything that is in front has been asked and drawn."""
    await eventually(lambda: all(poll.answered_at is not None for poll in viewer.app.desk.polls()))
    viewer.app.draw()
    await viewer.pilot.pause()


def test_m97_no_screen_is_forgotten() -> None:
    assert sorted(file.stem for file in SCREENS.glob("*.txt")) == sorted(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_m97_screens_fit(name: str) -> None:
    lines = (SCREENS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    (width, height), _ = WANTED[name]
    assert len(lines) <= height and max(map(len, lines)) <= width
