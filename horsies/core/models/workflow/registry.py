"""The workflow definitions of this process: how they are found by their key (F-06), the parameters of their
`build_with`, and how that is called when a sub-workflow node is ready (F-60).

A class registers itself when it is defined, before there is an app; so there is one registry for the process. It holds
classes weakly. If the same lines run again (a module that is reloaded, or imported under a second name), they replace
what they made.

`build_with` is user code. A worker lets its helper child call it (`worker/helper_calls.py`); a program that starts or
resumes a workflow calls it itself (`LocalBuilder`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from horsies.core.codec import arguments
from horsies.core.errors import ErrorCode, HorsiesError, WorkflowValidationError
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.models.workflow.plan import WorkflowPlan

if TYPE_CHECKING:
    from typing import TypeAlias

    from horsies.core.models.workflow.definition import WorkflowDefinition


class InputError(ValueError):
    """The node cannot be called: it fails with WORKFLOW_ENQUEUE_FAILED (F-72)."""


if TYPE_CHECKING:
    Definition: TypeAlias = type[WorkflowDefinition[Any]]

MAX_DEPTH = 32  # the greatest depth of a workflow in its tree; the top has 0 (F-65)

_definitions: WeakValueDictionary[str, Definition] = WeakValueDictionary()

_building: ContextVar[str | None] = ContextVar("horsies_definition_key", default=None)

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})

# A workflow may hold a thousand nodes of one definition, and building a codec takes a while.
_codecs: WeakKeyDictionary[type[Any], arguments.ArgumentsCodec] = WeakKeyDictionary()


def find(key: str) -> Definition | None:
    """The definition with this key."""
    return _definitions.get(key)


def register(definition: Definition) -> None:
    """Register a definition by its key; HRS-017 if another one has it."""
    key = definition.definition_key
    known = _definitions.get(key)
    here = definition.location, definition.__qualname__
    if known is not None and (known.location, known.__qualname__) != here:
        error = WorkflowValidationError(
            f"workflow {definition.__qualname__}: a definition with the key {key!r} exists already",
            code=ErrorCode.WORKFLOW_DUPLICATE_DEFINITION_KEY,
            location=definition.location,
            help_text="give one of them another definition_key",
        )
        raise error.with_note(f"the first one is {known.__qualname__} at {known.location}")
    _definitions[key] = definition


@contextmanager
def building(key: str | None) -> Iterator[None]:
    """Active while `build_with` of a definition runs: specs built during that time have its key (F-05)."""
    token = _building.set(key)
    try:
        yield
    finally:
        _building.reset(token)


def key_of_build() -> str | None:
    """The key of the definition that is being built."""
    return _building.get()


def parameters_of(definition: type[WorkflowDefinition[Any]]) -> arguments.ArgumentsCodec:
    """The codec of its parameters. It raises what the user's annotations raise, and ValueError if there is no first
    parameter for the app."""
    codec = _codecs.get(definition)
    if codec is None:
        codec = _codecs[definition] = arguments.ArgumentsCodec(signature_of(definition))
    return codec


def prepare(definition: type[WorkflowDefinition[Any]], local_names: Mapping[str, Any]) -> None:
    """Read the parameters now, while these names exist. A failure is reported when they are needed."""
    with suppress(Exception):
        _codecs[definition] = arguments.ArgumentsCodec(signature_of(definition, local_names))


def signature_of(
    definition: type[WorkflowDefinition[Any]], local_names: Mapping[str, Any] = _NO_NAMES
) -> arguments.Signature:
    """The signature of `build_with` without the app."""
    # These two names are often imported for type checkers only, and do not matter here; the second takes brackets.
    names = {**local_names, "Horsies": object, "WorkflowSpec": list}
    signature = arguments.read(definition.build_with, names)
    if not signature.positional:
        if signature.var_positional is None:
            raise ValueError("build_with must take the app as its first argument")
        return signature
    first = signature.positional[0]
    return replace(
        signature,
        positional=signature.positional[1:],
        positional_only=max(0, signature.positional_only - 1),
        keyword=signature.keyword - {first},
        required=signature.required - {first},
        kinds={name: kind for name, kind in signature.kinds.items() if name != first},
        _fits=set(),
    )


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """`injected`: for each parameter of `args_from`, the JSON of what it takes (F-33)."""

    definition_key: str
    kwargs_json: str | None
    injected: Mapping[str, str]
    depth: int = 1  # of the child in its tree (F-65)


class BuildFailed(Exception):
    """There is no plan, and there will be none: the node fails with `code`. (Any other exception, as when the helper
    child died, leaves the node READY, and it is tried again.)"""

    def __init__(self, message: str, code: OperationalErrorCode = OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED) -> None:
        super().__init__(message)
        self.code = code


class NotBuiltHere(Exception):
    """This program does not know the definition. Workers may know it, so the node stays READY for them."""


class Builder(Protocol):
    """Calls `build_with` of a definition, in some process."""

    async def build(self, request: BuildRequest) -> WorkflowPlan: ...


class LocalBuilder:
    """A `Builder` that calls `build_with` in a thread, so that the event loop continues."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def build(self, request: BuildRequest) -> WorkflowPlan:
        return await asyncio.to_thread(build_plan, self._app, request)


def build_plan(app: Any, request: BuildRequest) -> WorkflowPlan:
    """The plan of a child workflow, with those of its own children without dependencies. `BuildFailed`: there is none,
    in any process."""
    key = request.definition_key
    if request.depth > MAX_DEPTH:
        raise BuildFailed(f"workflow {key!r} is nested more than {MAX_DEPTH} levels deep")
    definition = find(key)
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


def with_members(kwargs: str | None, members: Mapping[str, str]) -> str | None:
    """A JSON object with further members, whose values are JSON texts."""
    if not members:
        return kwargs
    more = ",".join(f"{json.dumps(name)}:{value}" for name, value in members.items())
    given = (kwargs or "{}").strip()
    if not (given.startswith("{") and given.endswith("}")):
        raise InputError("its stored arguments are not a JSON object")
    inner = given[1:-1].strip()
    return f"{{{inner},{more}}}" if inner else f"{{{more}}}"
