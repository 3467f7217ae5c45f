"""Imported by the children of a worker that is to die while one of them runs a task (X-14): the moments around the
function of a task, as hooks of the app. Nobody else imports it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

from horsies.core.app import Horsies
from horsies.testing.moments import VARIABLE, Doom, Moment


def _await_doom(app: Horsies, doom: Doom) -> None:
    def die(ctx: Any, *_: Any) -> None:
        if doom.strikes(ctx.task_name):
            if doom.moment.is_end_of_worker:
                os.kill(doom.supervisor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def die_inside(ctx: Any) -> Iterator[None]:
        try:
            yield
        finally:
            die(ctx)

    match doom.moment:
        case Moment.WORKER_KILLED:
            app.before_task(die)
        case Moment.CHILD_KILLED:
            app.around_task(die_inside)
        case Moment.RETURNED:
            app.after_task(die)


_app = Horsies.current()
if _app is not None and VARIABLE in os.environ:
    _await_doom(_app, Doom.from_json(os.environ[VARIABLE]))
