"""What was sent, and the assertions about it (X-12). The records come from an inline block or from the table of tasks;
a send in a transaction that was rolled back, or is still open, is not in the table and so was not sent.

Arguments are compared as a worker sees them: encoded, decoded by the types of the task, and bound to its parameters.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from horsies.core.codec.arguments import CONTEXT
from horsies.core.codec.shapes import CodecError
from horsies.core.tasks.execute import AnyTask

AnyTaskOrName: TypeAlias = AnyTask | str
_SHOWN = 20


class SentRow(NamedTuple):
    """A send as it is stored."""

    task_id: str
    task_name: str
    queue: str
    priority: int
    args_json: str | None
    kwargs_json: str | None
    sent_at: datetime
    due_at: datetime
    good_until: datetime | None
    idempotency_key: str | None
    workflow_id: str | None


@dataclass(frozen=True, slots=True)
class SentTask:
    """One task that was sent. `arguments` are all its arguments by parameter, defaults included."""

    task_id: str
    task_name: str
    arguments: Mapping[str, Any]
    queue: str
    priority: int
    sent_at: datetime
    due_at: datetime
    good_until: datetime | None
    idempotency_key: str | None
    workflow_id: str | None

    def __str__(self) -> str:
        return f"{self.task_name}({shown(self.arguments)})"


class SentTasks:
    """`app.testing.sent`."""

    def __init__(self, rows: Callable[[], Sequence[SentRow]], known: Mapping[str, AnyTask]) -> None:
        self._rows = rows
        self._known = known

    @property
    def tasks(self) -> list[SentTask]:
        """Everything that was sent, in the order of sending."""
        return [self._read(row) for row in self._rows()]

    def of(self, task: AnyTaskOrName) -> list[SentTask]:
        """What was sent of this task."""
        name = _name(task)
        return [sent for sent in self.tasks if sent.task_name == name]

    def one(self, task: AnyTaskOrName) -> SentTask:
        """The only one that was sent of this task."""
        everything = self.tasks
        found = [sent for sent in everything if sent.task_name == _name(task)]
        if len(found) != 1:
            how = f"{len(found)} times" if found else "never"
            raise AssertionError(_lines(f"{_name(task)} was sent {how}, not once", found or everything))
        return found[0]

    def assert_sent(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> SentTask:
        """The task was sent with exactly these arguments (with any, if none are given). Returns the first such send."""
        everything = self.tasks
        found = [sent for sent in everything if sent.task_name == task.task_name]
        if not found:
            raise AssertionError(_lines(f"{task.task_name} was not sent", everything))
        if not args and not kwargs:
            return found[0]
        wanted = _expected(task, args, kwargs)
        for sent in found:
            if not differences(wanted, sent.arguments):
                return sent
        raise AssertionError(_difference(task.task_name, wanted, found))

    def assert_not_sent(self, task: AnyTaskOrName, /) -> None:
        """The task was not sent at all."""
        if found := self.of(task):
            raise AssertionError(_lines(f"{_name(task)} was sent", found))

    def _read(self, row: SentRow) -> SentTask:
        facts = {name: value for name, value in row._asdict().items() if name not in ("args_json", "kwargs_json")}
        return SentTask(arguments=_arguments(self._known.get(row.task_name), row), **facts)

    def __repr__(self) -> str:
        return f"<SentTasks: {len(self.tasks)}>"


def bound(task: AnyTask, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter, defaults included; without the context, which nobody sends."""
    signature = inspect.signature(task.fn)
    if task.codec.signature.context_kind is not None:
        kept = [parameter for name, parameter in signature.parameters.items() if name != CONTEXT]
        signature = signature.replace(parameters=kept)
    call = signature.bind(*args, **kwargs)
    call.apply_defaults()
    return dict(call.arguments)


def differences(wanted: Mapping[str, Any], was: Mapping[str, Any]) -> list[str]:
    """The parameters whose values differ."""
    missing = object()
    return [name for name in {**wanted, **was} if wanted.get(name, missing) != was.get(name, missing)]


def shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def _name(task: AnyTaskOrName) -> str:
    return task if isinstance(task, str) else task.task_name


def _expected(task: AnyTask, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return bound(task, *task.codec.arguments.decode(*task.codec.arguments.encode(args, kwargs)))
    except CodecError as problem:
        raise AssertionError(
            f"{task.task_name} cannot be sent with these arguments: {problem}\n"
            "  assert_sent takes all arguments of a send, or none for a send with any arguments"
        ) from None


def _arguments(task: AnyTask | None, row: SentRow) -> dict[str, Any]:
    """By the types of the task; as plain JSON, if the task is not known here or its types have changed."""
    try:
        if task is not None:
            return bound(task, *task.codec.arguments.decode(row.args_json, row.kwargs_json))
    except (CodecError, TypeError):
        pass
    by_position = json.loads(row.args_json or "[]")
    return {**{str(place): value for place, value in enumerate(by_position)}, **json.loads(row.kwargs_json or "{}")}


def _difference(name: str, wanted: Mapping[str, Any], found: Sequence[SentTask]) -> str:
    """The sends that come nearest first, each with what is different."""
    lines = [f"{name} was not sent with these arguments", f"  expected: {shown(wanted)}"]
    for sent in sorted(found, key=lambda sent: len(differences(wanted, sent.arguments)))[:_SHOWN]:
        lines.append(f"  sent:     {shown(sent.arguments)}")
        for parameter in differences(wanted, sent.arguments):
            expected, was = _value(wanted, parameter), _value(sent.arguments, parameter)
            lines.append(f"    {parameter}: expected {expected}, was {was}")
    if len(found) > _SHOWN:
        lines.append(f"  … and {len(found) - _SHOWN} more")
    return "\n".join(lines)


def _value(arguments: Mapping[str, Any], name: str) -> str:
    return repr(arguments[name]) if name in arguments else "nothing"


def _lines(text: str, sent: Sequence[SentTask]) -> str:
    if not sent:
        return f"{text}; nothing was sent"
    more = [f"  … and {len(sent) - _SHOWN} more"] if len(sent) > _SHOWN else []
    return "\n".join([f"{text}; what was sent:", *(f"  {one}" for one in sent[:_SHOWN]), *more])
