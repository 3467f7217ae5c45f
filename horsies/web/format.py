"""How values read on a page: times, durations, counts, states. Pure; the environment of the templates has them as
filters. What a row contains is shown with an escape for each character that would be obeyed instead (M-93)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

from horsies.core import text
from horsies.core.models.monitoring.tasks import TaskArguments, TaskSummary, WorkflowRunSummary
from horsies.core.models.notes import TaskProgress
from horsies.core.text import visible, visible_lines
from horsies.core.types import TaskStatus

LONGEST_CELL = 120
LONGEST_TEXT = 20_000
CUT = "…"
ID_BEGIN, ID_END = 11, 4  # characters of an id: a quarter of a second in which it was made, and one of 65,536
COUNTED = 10_000  # lists and snapshots count so far, unless they are asked to be exact


def moment(at: datetime | None) -> str:
    """A time for people, in UTC."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at: datetime | None) -> str:
    """A time for programs."""
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago that was, or when it will be."""
    if at is None:
        return "–"
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


def duration(value: float | timedelta | None) -> str:
    """`3 ms`, `1.2 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`."""
    if value is None:
        return "–"
    seconds = max(0.0, value.total_seconds() if isinstance(value, timedelta) else float(value))
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return text.duration(seconds)


def between(start: datetime | None, end: datetime | None) -> str:
    """How long something took."""
    return "–" if start is None or end is None else duration(end - start)


def number(value: float | None) -> str:
    """`12,345`; fractions only where they matter."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer() and abs(value) < 100:
        return f"{value:,.1f}"
    return f"{round(value):,}"


def count(value: int | None, is_exact: bool = True) -> str:
    """How many; a number that was not counted to its end is a lower bound or an estimate (M-95)."""
    if value is None:
        return "–"
    if is_exact:
        return f"{value:,}"
    return f"{value:,}+" if value == COUNTED else f"~{_rounded(value):,}"


def _rounded(value: int) -> int:
    return round(value, 2 - len(str(abs(value))))


def of(value: int | None, one: str, many: str = "") -> str:
    """`1 task`, `12,345 tasks`."""
    return f"{number(value)} {one if value == 1 else many or f'{one}s'}"


def word(value: Any) -> str:
    """A state or another enum in small letters: also the end of its class in the style sheet."""
    said = str(value.value if isinstance(value, Enum) else value).lower()
    return "".join(letter if letter.isalnum() else "-" for letter in said)[:40]


def cell(value: Any, longest: int = LONGEST_CELL) -> str:
    """A foreign text on one line, cut if it is long."""
    text = "–" if value is None else str(value)
    text = visible(text[: longest + 1])
    return text if len(text) <= longest else f"{text[:longest]}…"


def lines(value: Any, longest: int = LONGEST_TEXT) -> str:
    """A foreign text of several lines, cut if it is very long."""
    text = "" if value is None else str(value)
    shown = visible_lines(text[:longest])
    return shown if len(text) <= longest else f"{shown}\n… and {len(text) - longest:,} more characters"


def short_id(value: str | None) -> str:
    """The beginning of an id, which tells when it was made, and its end, which tells it from others of that moment.
    `find` accepts this form."""
    if value is None:
        return "–"
    if len(value) <= ID_BEGIN + ID_END + 1:
        return cell(value)
    return f"{visible(value[:ID_BEGIN])}{CUT}{visible(value[-ID_END:])}"


def id_ends(value: str) -> tuple[str, str | None]:
    """How an id begins and, if the text is a shortened form of it, how it ends."""
    begin, cut, end = value.replace("...", CUT).partition(CUT)
    return (begin.strip(), end.strip() or None) if cut else (value, None)


def call(given: TaskArguments | None) -> str:
    """The arguments of a task as they would be written in a call: `"a", 1, to="x"`."""
    if given is None:
        return ""
    return ", ".join([part for part in (_written(given.args, list), _written(given.kwargs, dict)) if part])


def _written(payload: str | None, kind: type) -> str:
    """The values of a list or an object; what is not one, such as the beginning of a long text, is shown as it is."""
    if not payload:
        return ""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return payload
    if kind is dict and isinstance(value, dict):
        return ", ".join(f"{name}={_json(one)}" for name, one in value.items())
    if kind is not list or not isinstance(value, list):
        return "" if value is None else payload
    return ", ".join(_json(one) for one in value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def waits(task: TaskSummary, now: datetime) -> str:
    """For what time a waiting task waits: `due in 29 d`, `next try in 4 s`; nothing if it is due."""
    if task.status is not TaskStatus.PENDING:
        return ""
    if task.next_retry_at is not None and task.next_retry_at > now:
        return f"next try {ago(task.next_retry_at, now)}"
    return f"due {ago(task.enqueued_at, now)}" if task.enqueued_at > now else ""


def waited(task: TaskSummary, now: datetime) -> str:
    """How long a task has waited since it was due, for its present run."""
    until = task.started_at or task.ended_at or now
    return "–" if until < task.enqueued_at else duration(until - task.enqueued_at)


def ran(task: TaskSummary, now: datetime) -> str:
    """How long its last run took, or has taken so far."""
    if task.started_at is None:
        return "–"
    until = task.ended_at or (now if task.status is TaskStatus.RUNNING else None)
    return between(task.started_at, until)


def progress(value: TaskProgress) -> str:
    """`40 % (400 of 1,000), 12.5/s, 48 s left: message`; only what is known."""
    parts = [number(value.done)]
    if value.total is not None:
        parts = [f"{(value.fraction or 0) * 100:.0f} % ({number(value.done)} of {number(value.total)})"]
    if value.rate:
        parts.append(f"{number(value.rate)}/s")
    if (left := value.remaining) is not None and left > timedelta(0):
        parts.append(f"{duration(left)} left")
    said = ", ".join(parts)
    return f"{said}: {cell(value.message)}" if value.message else said


def node_progress(run: WorkflowRunSummary) -> str:
    """How many nodes have ended."""
    total = getattr(run, "total_nodes", None)
    if total is None:
        return f"{run.open_nodes:,} open" if run.open_nodes else "–"
    return f"{max(0, total - run.open_nodes):,} of {total:,}"


FILTERS: Mapping[str, Callable[..., str]] = {
    "ago": ago,
    "between": between,
    "call": call,
    "cell": cell,
    "count": count,
    "duration": duration,
    "iso": iso,
    "lines": lines,
    "moment": moment,
    "node_progress": node_progress,
    "number": number,
    "of": of,
    "progress": progress,
    "ran": ran,
    "short_id": short_id,
    "waited": waited,
    "waits": waits,
    "word": word,
}
