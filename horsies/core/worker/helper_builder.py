"""How a worker plans a child workflow: `build_with` is user code, so the helper child calls it (F-60)."""

from __future__ import annotations

import logging

from horsies.core.worker.build_wire import plan_of
from horsies.core.worker.helper_child import HelperChild, HelperFailed
from horsies.core.workflows.definitions import BuildFailed, BuildRequest
from horsies.core.workflows.plan import WorkflowPlan

log = logging.getLogger("horsies.worker")

PATIENCE_S = 60.0  # for its turn, and for the start of a helper that is not there


class HelperBuilder:
    """A `Builder`. If the helper hangs or dies in a `build_with`, there is no plan: another try would do the same and
    take the helper away from all others each time. If there was no helper to ask, the node waits for the next try."""

    def __init__(self, helper: HelperChild) -> None:
        self._helper = helper

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        try:
            return plan_of(await self._helper.ask(request, PATIENCE_S))
        except HelperFailed as problem:
            if problem.handler is None or self._helper.is_closed:  # one that dies with its worker says nothing
                raise
            raise _failed(request, str(problem)) from None
        except (ValueError, KeyError, TypeError) as problem:  # build_with has broken its own process
            raise _failed(request, f"an answer that cannot be read: {problem!r}") from None


def _failed(request: BuildRequest, why: str) -> BuildFailed:
    log.error("build_with of the workflow %r failed: %s", request.definition_key, why)
    return BuildFailed(f"build_with of the workflow {request.definition_key!r}: {why}")
