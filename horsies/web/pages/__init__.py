"""The screens. Each module of this package has a list `SCREENS`, and the lists are put together here; `app.py` makes
routes of them, which only those reach who may look.
"""

from horsies.web.pages import (
    audit,
    dialogs,
    failures,
    find,
    overview,
    queues,
    schedules,
    task,
    tasks,
    workers,
    workflows,
)
from horsies.web.screens import Screen

SCREENS: tuple[Screen, ...] = (
    *overview.SCREENS,
    *tasks.SCREENS,
    *find.SCREENS,
    *task.SCREENS,
    *failures.SCREENS,
    *queues.SCREENS,
    *workflows.SCREENS,
    *workers.SCREENS,
    *schedules.SCREENS,
    *audit.SCREENS,
    *dialogs.SCREENS,
)
