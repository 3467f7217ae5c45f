"""The workflow definitions of this process by their key (F-06), and the one that is being built.

A class registers itself when it is defined, before there is an app; so there is one registry for the process. It holds
classes weakly. If the same lines run again (a module that is reloaded, or imported under a second name), they replace
what they made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from horsies.core.errors import ErrorCode, WorkflowValidationError

if TYPE_CHECKING:
    from horsies.core.models.workflow.definition import WorkflowDefinition

    Definition: TypeAlias = type[WorkflowDefinition[Any]]

MAX_KEY_LENGTH = 255

_definitions: WeakValueDictionary[str, Definition] = WeakValueDictionary()
_building: ContextVar[str | None] = ContextVar("horsies_definition_key", default=None)


def find(key: str) -> Definition | None:
    """The definition with this key."""
    return _definitions.get(key)


def definitions() -> list[Definition]:
    """All registered definitions."""
    return [definition for _, definition in sorted(_definitions.items())]


def register(definition: Definition) -> None:
    """Register a definition by its key; HRS-017 if another one has it."""
    key = definition.definition_key
    known = _definitions.get(key)
    if known is not None and known is not definition and not _is_same_source(known, definition):
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


def _is_same_source(known: Definition, new: Definition) -> bool:
    return (known.location, known.__qualname__) == (new.location, new.__qualname__)
