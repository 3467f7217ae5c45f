"""How a worker with a scheduler gets the payloads of its schedules: code of the app encodes the arguments, so the
helper child does it (W-01).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.scheduler.payloads import PreparerFailed, Wanted
from horsies.core.types.result import Result
from horsies.core.worker.helper_child import HelperChild, HelperFailed
from horsies.core.worker.schedule_wire import PrepareRequest, handler_of, payloads_of

PATIENCE_S = 60.0  # for its turn, and for the start of a helper that is not there


class HelperPreparer:
    """A `Preparer`."""

    def __init__(self, helper: HelperChild) -> None:
        self._helper = helper

    async def prepare(self, wanted: Sequence[Wanted], limit_s: float) -> list[Result[TaskSendPayload, str]]:
        try:
            answer = await self._helper.ask(PrepareRequest(tuple(wanted)), PATIENCE_S, limit_s)
            return payloads_of(answer, len(wanted))
        except (HelperFailed, ValueError, KeyError, TypeError, RecursionError) as problem:
            if self._helper.is_closed:  # the worker stops: there is nothing to complain about
                await asyncio.Event().wait()
            why = f"its arguments cannot be encoded: {problem}"
            if not isinstance(problem, HelperFailed):
                raise PreparerFailed(why) from problem
            culprits = (place for place, one in enumerate(wanted) if handler_of(one) == problem.handler)
            raise PreparerFailed(why, next(culprits, None), is_about_one=problem.handler is not None) from problem
