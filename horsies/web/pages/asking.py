"""What a dialog is (M-91): sentences about what would happen, and the form that makes it happen; and how a dialog reads
what it is about from its address."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from horsies.web.answers import Refusal
from horsies.web.pages.frame import Viewer

MOST_NAMED = 10
FieldType: TypeAlias = Literal["text", "number", "flag", "json"]


@dataclass(frozen=True, slots=True)
class FormField:
    """A value of the request; `type` says what it becomes in its JSON body. `options` are values to
    choose from, each with words for it; `otherwise` are those for any other value."""

    name: str
    value: Any = ""
    label: str = ""
    type: FieldType = "text"
    is_hidden: bool = False
    is_required: bool = False
    options: Sequence[tuple[str, str]] = ()
    otherwise: str = ""


@dataclass(frozen=True, slots=True)
class Dialog:
    """What would happen, and the request that makes it happen; without `api` nothing can be done. What is said after
    that may depend on the `status` in the answer. `link` is the address to which the `task_id` in the answer is
    added."""

    title: str
    sentences: Sequence[str]
    api: str = ""
    confirm: str = "Do it"
    said: str = "Done."
    fields: Sequence[FormField] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    more: int = 0
    is_dangerous: bool = False
    said_by_status: Mapping[str, str] = field(default_factory=dict)
    link: str = ""


DialogMaker: TypeAlias = Callable[[Viewer], Awaitable[Dialog]]


def values(viewer: Viewer, name: str) -> list[str]:
    """A parameter exactly as it is given, because something is done to what it names: a name may end with a space, or
    have a line break in it. Empty values are left out."""
    return [value for value in dict.fromkeys(viewer.request.query_params.getlist(name)) if value]


def value(viewer: Viewer, name: str) -> str:
    if len(given := values(viewer, name)) != 1:
        raise Refusal(422, "INVALID_ARGUMENT", f"{name} must be given once")
    return given[0]


def listed(name: str, given: Sequence[str]) -> FormField:
    """These values and no others, whatever is in them."""
    return FormField(name, json.dumps(given), type="json", is_hidden=True)
