"""What is not shown to those who look from outside (M-93): people at the dashboard, and coding agents (X-41).
Arguments, results, options and error texts of an answer are hidden altogether, or masked: by the names of arguments
and fields, or by a function of the user.

Pure. It walks through the values of an answer and knows payloads by the names of their fields, so that it also finds
them in answers that it has never heard of. When in doubt it hides: a text that is no JSON, positional arguments whose
names are not known, a function that fails, and what a task said where its arguments are not at hand, so that nobody
knows which values must not be in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeAlias, TypeVar

from horsies.core.errors import HorsiesError
from horsies.core.models.monitoring.cluster import ScheduleStateInfo
from horsies.core.models.notes import TaskLogLine, TaskProgress

T = TypeVar("T")
# Called with the name of the task (None if it is not known), the field (`kwargs`, `result`, …) and its value; returns
# what is shown instead.
MaskFunction: TypeAlias = Callable[[str | None, str, Any], Any]
PositionalNames: TypeAlias = Callable[[str], Sequence[str] | None]

MASK = "***"
JSON_TEXTS = ("kwargs", "task_kwargs", "args", "result", "task_options", "error", "sub_workflow_summary")
PLAIN_TEXTS = ("failed_reason", "error_message", "idempotency_key")
SAID = (("message", TaskProgress), ("text", TaskLogLine))
ARGUMENTS: Mapping[str, type] = {"args": list, "kwargs": dict, "task_kwargs": dict}
ERRORS = frozenset({"err", "error_summary"})  # in a result, or in the summary of a child workflow
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
MOST_WORK = 100_000_000  # characters times secrets, of one task: some tenths of a second
_SHORTEST_SECRET = 4


def unknown_names(task_name: str) -> Sequence[str] | None:
    """Without an app nobody knows what positional arguments are called."""
    return None


def names_known_to(tasks: Mapping[str, Any]) -> PositionalNames:
    """What the positional arguments of these tasks of an app are called. Arguments of an older signature may be others,
    so those of a task that accepts them have no names."""

    def names(task_name: str) -> Sequence[str] | None:
        task = tasks.get(task_name)
        if task is None or task.accepts:
            return unknown_names(task_name)
        try:
            known: Sequence[str] = task.codec.signature.positional
        except HorsiesError:  # an annotation that cannot be resolved
            return None
        return known

    return names


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
        shown: T = self._walk(answer, None, None)
        return shown

    def _walk(self, value: Any, task_name: str | None, call: _Call | None) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(self._walk(one, task_name, call) for one in value)
        if isinstance(value, TaskProgress):
            return replace(value, message=self._plain("progress", value.message, task_name, call))
        if isinstance(value, TaskLogLine):
            return replace(value, text=self._plain("logs", value.text, task_name, call) or "")
        if isinstance(value, ScheduleStateInfo):
            return replace(value, definition=self._definition(value.definition))
        if is_dataclass(value) and not isinstance(value, type):
            return self._record(value, task_name, call)
        return value

    def _record(self, record: Any, task_name: str | None, call: _Call | None) -> Any:
        """A record. The values that are masked in the arguments of a call may stand in everything else that is told of
        it, so all of that is searched for them."""
        named = {one.name: getattr(record, one.name) for one in fields(record)}
        task_name = named.get("task_name") or task_name
        if self.names and call is None and ("kwargs" in named or named.get("task") is not None):
            call = _Call()
            return call.without_secrets(self._fields(record, named, task_name, call))
        return self._fields(record, named, task_name, call)

    def _fields(self, record: Any, named: Mapping[str, Any], task_name: str | None, call: _Call | None) -> Any:
        shown: dict[str, Any] = {}
        for name, value in named.items():
            if name in JSON_TEXTS:
                shown[name] = self._json(name, value, task_name, call)
            elif name in PLAIN_TEXTS:
                shown[name] = self._plain(name, value, task_name, call)
            else:
                shown[name] = None if name in FINGERPRINTS else self._walk(value, task_name, call)
        return replace(record, **shown)

    def _json(self, name: str, text: Any, task_name: str | None, call: _Call | None) -> Any:
        """A field that has JSON as a text."""
        if not isinstance(text, str):
            return text
        if self.hides_all:
            return json.dumps(MASK)
        try:
            value = self._value(name, json.loads(text), task_name, call or _Call())
            if self.names and call is None:
                value = without_errors(name, value)
            return json.dumps(value, ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            if call is not None and name in ARGUMENTS:
                call.is_known = False
            return json.dumps(MASK)

    def _value(self, name: str, value: Any, task_name: str | None, call: _Call) -> Any:
        if self.function is not None:
            return self._by_function(name, value, task_name)
        if value is not None and not isinstance(value, ARGUMENTS.get(name, object)):
            call.is_known = False
            return MASK
        if name == "args" and value is not None:
            value = self._positional(value, task_name, call.secrets)
        return self._by_name(value, call.secrets)

    def _plain(self, name: str, text: Any, task_name: str | None, call: _Call | None) -> Any:
        if not isinstance(text, str):
            return text
        if self.hides_all or (self.names and call is None):
            return MASK
        shown = self._by_function(name, text, task_name) if self.function is not None else text
        return shown if shown is None or isinstance(shown, str) else MASK

    def _definition(self, definition: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """What a schedule stores: when it sends which task, and with which arguments."""
        if definition is None:
            return None
        task_name = definition.get("task_name")
        task_name = task_name if isinstance(task_name, str) else None
        call = _Call()
        payloads = {name: value for name, value in definition.items() if name not in OF_SCHEDULES}
        try:
            shown = {name: self._value(name, value, task_name, call) for name, value in payloads.items()}
            shown = call.searched(shown)
        except RecursionError:
            call.is_known = False
        if self.hides_all or not call.is_known:
            shown = dict.fromkeys(payloads, MASK)
        return {name: shown.get(name, value) for name, value in definition.items()}

    def _by_function(self, name: str, value: Any, task_name: str | None) -> Any:
        assert self.function is not None
        try:
            shown = self.function(task_name, name, value)
            json.dumps(shown)
            return shown
        except Exception:  # it is the user's; what it could not judge is not shown
            return MASK

    def _by_name(self, value: Any, secrets: set[str]) -> Any:
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

    def _positional(self, values: Any, task_name: str | None, secrets: set[str]) -> Any:
        known = None if task_name is None else self.positional(task_name)
        shown = []
        for place, value in enumerate(values):
            is_masked = known is None or place >= len(known) or known[place].lower() in self.names
            if is_masked:
                _remember(value, secrets)
            shown.append(MASK if is_masked else value)
        return shown


@dataclass(slots=True)
class _Call:
    """The arguments of a task, as far as others must not see them: the values that were masked, and whether the
    arguments could be read at all."""

    secrets: set[str] = field(default_factory=set)
    is_known: bool = True
    work: int = MOST_WORK
    forms: Sequence[str] | None = None

    def without_secrets(self, value: Any) -> Any:
        """The same records with the secrets masked in their texts; without the texts if the arguments are not known."""
        if isinstance(value, tuple | list):
            return type(value)(self.without_secrets(one) for one in value)
        if is_dataclass(value) and not isinstance(value, type):
            changed = {one.name: self._field(one.name, value) for one in fields(value)}
            return replace(value, **changed)
        return value

    def searched(self, value: Any) -> Any:
        """A value of JSON without the secrets in its texts."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.searched(one) for one in value]
        if isinstance(value, dict):
            return {self.searched(name): self.searched(one) for name, one in value.items()}
        return value

    def _text(self, text: str) -> str:
        """Very many secrets in very long texts would take long; what cannot be searched in time is not shown."""
        self.work -= len(self.secrets) * (len(text) + 100)
        if self.work < 0:
            return MASK
        for form in self._forms():
            text = text.replace(form, MASK)
        return text

    def _forms(self) -> Sequence[str]:
        """The secrets as they may stand in a text, the longest first."""
        if self.forms is None:
            found = {form for secret in self.secrets for form in forms_of(secret)}
            self.forms = sorted(found, key=len, reverse=True)
        return self.forms

    def _field(self, name: str, record: Any) -> Any:
        value = getattr(record, name)
        if name in JSON_TEXTS and isinstance(value, str):
            return self._json(name, value)
        if name in PLAIN_TEXTS or (name, type(record)) in SAID:
            return self.searched(value) if self.is_known or value is None else MASK
        return self.without_secrets(value)

    def _json(self, name: str, text: str) -> str:
        if name in ARGUMENTS and not self.is_known:
            return json.dumps(MASK)  # an argument may repeat what stands in the one that cannot be read
        try:
            value = json.loads(text)
            value = self.searched(value) if self.is_known else without_errors(name, value)
            return json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return json.dumps(MASK)


def forms_of(secret: str) -> set[str]:
    """A text as it is, and as it is written in Python and in JSON."""
    quoted = (repr(secret), ascii(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False))
    return {secret, *(one[1:-1] for one in quoted)}


def without_errors(name: str, value: Any) -> Any:
    """A payload without what a task said about its failure."""
    if name == "error":
        return MASK
    if isinstance(value, list):
        return [without_errors(name, one) for one in value]
    if isinstance(value, dict):
        return {key: MASK if key in ERRORS and one else without_errors("", one) for key, one in value.items()}
    return value


def _remember(value: Any, secrets: set[str]) -> None:
    """Every text and number of a masked value that is long enough to be told from others."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _remember(one, secrets)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and len(str(value)) >= _SHORTEST_SECRET:
        secrets.add(str(value))
