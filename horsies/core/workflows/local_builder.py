"""Calls `build_with` of a definition in this process: in a program that starts or resumes a workflow, and in the helper
child of a worker.
"""

from __future__ import annotations

import asyncio
from typing import Any

from horsies.core.errors import HorsiesError
from horsies.core.workflows import registry
from horsies.core.workflows.building import MAX_DEPTH, BuildFailed, BuildRequest
from horsies.core.workflows.inputs import with_members
from horsies.core.workflows.parameters import parameters_of
from horsies.core.workflows.plan import WorkflowPlan


def build_plan(app: Any, request: BuildRequest) -> WorkflowPlan:
    """The plan of a child workflow, with those of its own children without dependencies. `BuildFailed`: there is none,
    in any process."""
    key = request.definition_key
    if request.depth > MAX_DEPTH:
        raise BuildFailed(f"workflow {key!r} is nested more than {MAX_DEPTH} levels deep")
    definition = registry.find(key)
    if definition is None:
        raise BuildFailed(f"there is no workflow definition with the key {key!r} in this process")
    try:
        given = with_members(request.kwargs_json, request.injected)
        _, params = parameters_of(definition).decode(None, given)
        spec = definition.build_with(app, **params)
        return spec.plan(app, request.depth)
    except BuildFailed:
        raise
    except HorsiesError as problem:
        code = f"[{problem.code}] " if problem.code else ""
        raise BuildFailed(f"workflow {key!r} cannot be built: {code}{problem.message}") from problem
    except Exception as problem:  # whatever the user's code raises
        raise BuildFailed(f"workflow {key!r} cannot be built: {type(problem).__name__}: {problem}") from problem


class LocalBuilder:
    """A `Builder` that calls `build_with` in a thread, so that the event loop continues."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        return await asyncio.to_thread(build_plan, self._app, request)
