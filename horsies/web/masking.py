"""What a dashboard does not show (M-93). Arguments, results, options and error texts of an answer are hidden
altogether, or masked: by the names of arguments and fields, or by a function of the user.

Pure. It walks through the values of an answer and knows payloads by the names of their fields, so that it also finds
them in answers that it has never heard of. When in doubt it hides: a text that is no JSON, positional arguments whose
names are not known, a function that fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from horsies.core.models.monitoring.cluster import ScheduleStateInfo
from horsies.core.models.notes import TaskProgress
from horsies.web.config import MaskFunction

T = TypeVar("T")
PositionalNames: TypeAlias = Callable[[str], Sequence[str] | None]

MASK = "***"
JSON_TEXTS = ("kwargs", "task_kwargs", "args", "result", "task_options", "error", "sub_workflow_summary")
PLAIN_TEXTS = ("failed_reason", "error_message")
FINGERPRINTS = ("enqueue_sha",)  # a short argument can be guessed from it
# What a schedule stores besides arguments.
OF_SCHEDULES = (
    "name",
    "task_name",
    "pattern",
    "queue_name",
    "enabled",
    "timezone",
    "catch_up_missed",
    "max_catch_up_runs",
)
_SHORTEST_SECRET = 4


def unknown_names(task_name: str) -> Sequence[str] | None:
    """Without an app nobody knows what positional arguments are called."""
    return None


@dataclass(frozen=True, slots=True)
class Masking:
    """What is not shown. `positional` says what the positional arguments of a task are called."""

    hides_all: bool = False
    names: frozenset[str] = frozenset()
    function: MaskFunction | None = None
    positional: PositionalNames = unknown_names

    @classmethod
    def of(
        cls,
        mask: MaskFunction | Collection[str] | None,
        *,
        hides_all: bool = False,
        positional: PositionalNames = unknown_names,
    ) -> Masking:
        if mask is None or callable(mask):
            return cls(hides_all, function=mask, positional=positional)
        return cls(hides_all, frozenset(name.lower() for name in mask), positional=positional)

    @property
    def is_off(self) -> bool:
        return not self.hides_all and not self.names and self.function is None

    def applied_to(self, answer: T) -> T:
        """The same answer without what is not shown."""
        if self.is_off:
            return answer
        shown: T = self._walk(answer, None)
        return shown

    def _walk(self, value: Any, task_name: str | None) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._walk(one, task_name) for one in value)
        if isinstance(value, TaskProgress):
            return replace(value, message=self._plain("progress", value.message, task_name))
        if isinstance(value, ScheduleStateInfo):
            return replace(value, definition=self._definition(value.definition))
        if is_dataclass(value) and not isinstance(value, type):
            return self._record(value, task_name)
        return value

    def _record(self, record: Any, task_name: str | None) -> Any:
        """The values that were masked may stand in other texts of the record again, so these are searched for them."""
        named = {field.name: getattr(record, field.name) for field in fields(record)}
        task_name = named.get("task_name") or task_name
        secrets: list[str] = []
        shown: dict[str, Any] = {}
        for name, value in named.items():
            if name in JSON_TEXTS:
                shown[name] = self._json(name, value, task_name, secrets)
            elif name in PLAIN_TEXTS:
                shown[name] = self._plain(name, value, task_name)
            else:
                shown[name] = None if name in FINGERPRINTS else self._walk(value, task_name)
        found = replace(record, **shown)
        return _without(found, secrets) if secrets else found

    def _json(self, name: str, text: Any, task_name: str | None, secrets: list[str]) -> Any:
        """A field that has JSON as a text."""
        if not isinstance(text, str):
            return text
        if self.hides_all:
            return json.dumps(MASK)
        try:
            return json.dumps(self._value(name, json.loads(text), task_name, secrets), ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            return json.dumps(MASK)

    def _value(self, name: str, value: Any, task_name: str | None, secrets: list[str]) -> Any:
        if self.function is not None:
            return self._by_function(name, value, task_name)
        if name == "args":
            value = self._positional(value, task_name, secrets)
        return self._by_name(value, secrets)

    def _plain(self, name: str, text: Any, task_name: str | None) -> Any:
        if not isinstance(text, str):
            return text
        if self.hides_all:
            return MASK
        shown = self._by_function(name, text, task_name) if self.function is not None else text
        return shown if shown is None or isinstance(shown, str) else MASK

    def _definition(self, definition: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What a schedule stores: when it sends which task, and with which arguments."""
        if definition is None:
            return None
        task_name = definition.get("task_name")
        task_name = task_name if isinstance(task_name, str) else None
        shown = {}
        for name, value in definition.items():
            if name in OF_SCHEDULES:
                shown[name] = value
            else:
                shown[name] = MASK if self.hides_all else self._value(name, value, task_name, [])
        return shown

    def _by_function(self, name: str, value: Any, task_name: str | None) -> Any:
        assert self.function is not None
        try:
            shown = self.function(task_name, name, value)
            json.dumps(shown)
            return shown
        except Exception:  # it is the user's; what it could not judge is not shown
            return MASK

    def _by_name(self, value: Any, secrets: list[str]) -> Any:
        """The values of masked keys, however deep, are replaced and remembered."""
        if isinstance(value, list):
            return [self._by_name(one, secrets) for one in value]
        if not isinstance(value, dict):
            return value
        shown = {}
        for name, one in value.items():
            if name.lower() in self.names:
                _remember(one, secrets)
                shown[name] = MASK if one is not None else None
            else:
                shown[name] = self._by_name(one, secrets)
        return shown

    def _positional(self, values: Any, task_name: str | None, secrets: list[str]) -> Any:
        if not isinstance(values, list):
            return values
        known = None if task_name is None else self.positional(task_name)
        shown = []
        for place, value in enumerate(values):
            is_masked = known is None or place >= len(known) or known[place].lower() in self.names
            if is_masked:
                _remember(value, secrets)
            shown.append(MASK if is_masked else value)
        return shown


def _remember(value: Any, secrets: list[str]) -> None:
    """Every text and number of a masked value that is long enough to be told from others."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _remember(one, secrets)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) >= _SHORTEST_SECRET:
        secrets.append(str(value))


def _without(value: Any, secrets: Collection[str]) -> Any:
    """The same records with the secrets masked in their texts."""
    if isinstance(value, tuple):
        return tuple(_without(one, secrets) for one in value)
    if isinstance(value, str):
        for secret in sorted(secrets, key=len, reverse=True):
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, list):
        return [_without(one, secrets) for one in value]
    if isinstance(value, dict):
        return {_without(name, secrets): _without(one, secrets) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _field(field.name, value, secrets) for field in fields(value)})
    return value


def _field(name: str, record: Any, secrets: Collection[str]) -> Any:
    value = getattr(record, name)
    if name in PLAIN_TEXTS or (name == "message" and isinstance(record, TaskProgress)):
        return _without(value, secrets)
    if name in JSON_TEXTS and isinstance(value, str):
        return json.dumps(_without(json.loads(value), secrets), ensure_ascii=False)
    return _without(value, secrets) if isinstance(value, tuple) or is_dataclass(value) else value
