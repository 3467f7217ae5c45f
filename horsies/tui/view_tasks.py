"""Tab 3: tasks by worker, and one task in full (M-80). Groups with the counts of their states, one of them open, with a
page of its tasks. Plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from horsies.cli.notes import short as short_progress
from horsies.cli.one_task import blocks_of, facts_of, facts_of_explanation
from horsies.cli.output import between
from horsies.cli.tables import Column
from horsies.core.models.monitoring.cluster import Explanation
from horsies.core.models.monitoring.tasks import Breakdown, GroupRow, TaskDetail, TaskListPage, TaskSummary
from horsies.core.models.notes import TaskLogLine
from horsies.core.text import visible, visible_lines
from horsies.core.types import TASK_TERMINAL_STATES, TaskStatus
from horsies.tui.lines import (
    Line,
    ListRow,
    Span,
    Tone,
    age,
    at_least,
    block,
    broken,
    clock,
    columns,
    line,
    named,
    status,
    width_of,
)

NOBODY = "(not claimed yet)"
CLOSED, OPEN = "+ ", "- "
INDENT = 4
NEXT, PREVIOUS = "page:next", "page:previous"
# The keys that filter by state (M-81); cancelled and expired ones are ours.
KEYS = {
    "p": TaskStatus.PENDING,
    "c": TaskStatus.CLAIMED,
    "u": TaskStatus.RUNNING,
    "o": TaskStatus.COMPLETED,
    "f": TaskStatus.FAILED,
    "x": TaskStatus.CANCELLED,
    "e": TaskStatus.EXPIRED,
}
_SHORT = {
    TaskStatus.PENDING: "pending",
    TaskStatus.CLAIMED: "claimed",
    TaskStatus.RUNNING: "running",
    TaskStatus.COMPLETED: "completed",
    TaskStatus.FAILED: "failed",
    TaskStatus.CANCELLED: "cancelled",
    TaskStatus.EXPIRED: "expired",
}


def toggled(chosen: frozenset[TaskStatus] | None, state: TaskStatus) -> frozenset[TaskStatus]:
    """The filter after the key of a state. None stands for all states: then only this one is left. Otherwise the state
    is added or taken away."""
    return frozenset({state}) if chosen is None else chosen ^ {state}


def filter_line(chosen: frozenset[TaskStatus] | None, search: str, found: Breakdown | None) -> Line:
    """Which tasks are shown, and how many there are."""
    if chosen is None:
        states = "all states"
    else:
        states = ", ".join(_SHORT[state] for state in TaskStatus if state in chosen) or "no state (a: all)"
    parts: list[Span] = [Span("Tasks by worker", "head"), *line(f": {states}")]
    if search:
        parts += line(f", {search}")
    if found is not None:
        parts += line((f"  {at_least(found.total, found.is_exact)}", "bold"))
    return tuple(parts)


def groups(found: Breakdown, opened: str | None, tasks: Sequence[ListRow], width: int) -> tuple[Line, list[ListRow]]:
    """A line for each worker; below the open one, its tasks."""
    shown = [*found.rows]
    met = {one.status for group in shown for one in group.counts}
    wanted = [column for column, states in _GROUPS if not states or met & states]
    head, lines = columns(wanted, shown, width - len(CLOSED))
    rows: list[ListRow] = []
    for group, cells in zip(shown, lines, strict=True):
        key = group_key(group.value)
        mark = OPEN if key == opened else CLOSED
        rows.append(ListRow((Span(mark), *cells), key, group))
        if key == opened:
            rows += tasks
    if found.groups > len(shown):
        rows.append(ListRow(line((f"  … and {found.groups - len(shown):,} more workers: / searches", "dim"))))
    return (Span(" " * len(CLOSED)), *head), rows


def group_key(worker: str | None) -> str:
    return "nobody" if worker is None else f"worker:{worker}"


def _counted(title: str, leaves: int, *states: TaskStatus) -> tuple[Column, frozenset[TaskStatus]]:
    """A column of the tasks in these states, and the states: it is left out if no task is in one of them."""

    def count(group: GroupRow) -> str:
        chosen = [one for one in group.counts if one.status in states]
        return at_least(sum(one.count for one in chosen), all(one.is_exact for one in chosen)) if chosen else ""

    return Column(title, count, leaves=leaves), frozenset(states)


_GROUPS: tuple[tuple[Column, frozenset[TaskStatus]], ...] = (
    (Column("Worker", lambda group: NOBODY if group.value is None else group.value, folds=True), frozenset()),
    (
        Column("tasks", lambda group: at_least(group.total, all(one.is_exact for one in group.counts))),
        frozenset(),
    ),
    _counted("pending", 4, TaskStatus.PENDING),
    _counted("claimed", 3, TaskStatus.CLAIMED),
    _counted("running", 1, TaskStatus.RUNNING),
    _counted("completed", 5, TaskStatus.COMPLETED),
    _counted("failed", 2, TaskStatus.FAILED),
    _counted("cancelled", 6, TaskStatus.CANCELLED),
    _counted("expired", 7, TaskStatus.EXPIRED),
)


def page_of(page: TaskListPage | None, before: int, width: int, now: datetime) -> list[ListRow]:
    """The tasks of the open group: a page of them, with lines that lead to the pages before and after it."""
    if page is None:
        return [ListRow(line((" " * INDENT + "…", "dim")))]
    rows: list[ListRow] = []
    lead = Span(" " * INDENT)
    if before:
        rows.append(ListRow((lead, Span(f"↑ page {before} of these", "dim")), PREVIOUS, turns=-1))
    if page.items:
        head, lines = columns(_tasks(now), page.items, width - INDENT)
        rows.append(ListRow((lead, *head)))
        rows += [ListRow((lead, *cells), one.task_id, one) for one, cells in zip(page.items, lines, strict=True)]
    elif page.next_cursor is None:
        rows.append(ListRow((lead, Span("no more tasks" if before else "no tasks", "dim"))))
    if page.next_cursor is not None:
        said = "↓ not all were looked at: look further" if page.is_partial else f"↓ page {before + 2} of these"
        rows.append(ListRow((lead, Span(said, "dim")), NEXT, turns=1))
    elif page.is_partial:
        rows.append(ListRow((lead, Span("… older ones were not looked at: choose a state (p c u o f)", "dim"))))
    return rows


def _tasks(now: datetime) -> tuple[Column, ...]:
    return (
        Column("Task", lambda one: one.task_name, folds=True),
        Column("state", lambda one: status(one.status)),
        Column("progress", lambda one: short_progress(one.progress), leaves=5),
        Column("queue", lambda one: one.queue_name, leaves=3),
        Column("since", lambda one: age(_since(one), now)),
        Column("took", lambda one: between(one.started_at, one.ended_at), leaves=2),
        Column("retries", _retries, leaves=4),
        Column("error", lambda one: one.error_code, folds=True),
        Column("id", lambda one: one.task_id, leaves=6),
    )


def _since(one: TaskSummary) -> datetime | None:
    """When it came into its state."""
    if one.status in TASK_TERMINAL_STATES:
        return one.ended_at
    if one.status is TaskStatus.RUNNING:
        return one.started_at
    return one.claimed_at if one.status is TaskStatus.CLAIMED else one.sent_at


def _retries(one: TaskSummary) -> str | None:
    return f"{one.retry_count}/{one.max_retries}" if one.max_retries or one.retry_count else None


def task_detail(found: TaskDetail, why: Explanation | None, width: int, now: datetime) -> list[ListRow]:
    """A task in full: why it is not running, its columns, its payloads and its attempts."""
    lines: list[Line] = [(*line((f"{found.task_name}  ", "bold")), *status(found.status)), ()]
    if why is not None and found.status not in TASK_TERMINAL_STATES:
        lines += [*reason(why, width), ()]
    lines += named(((name, _timed(value, now)) for name, value in facts_of(found)), width)
    for name, text in blocks_of(found):
        lines += [(), *block(name, text, width)]
    if found.attempts:
        lines += [(), *attempts(found, width, now)]
    if why is not None and found.status not in TASK_TERMINAL_STATES:
        known = named(((name, _timed(value, now)) for name, value in facts_of_explanation(why).items()), width)
        lines += [(), line(("facts", "head")), *known] if known else []
    return list(map(ListRow, lines))


def reason(why: Explanation, width: int) -> list[Line]:
    """Why it is not running, in a sentence, and what can be done."""
    sentences = (why.message, *why.remedies)
    said = [line("  ", part) for sentence in sentences for part in broken(visible(sentence), width - 2)]
    return [line((why.why.value, "warn")), *said]


def _timed(value: Any, now: datetime) -> Any:
    if not isinstance(value, datetime):
        return value
    distance = (now - value).total_seconds()
    said = f"{age(value, now)} ago" if distance >= 0 else f"in {age(now, value)}"
    return f"{clock(value)}  ({said})"


def attempts(found: TaskDetail, width: int, now: datetime) -> Iterator[Line]:
    head, lines = columns(
        (
            Column("Attempt", lambda one: one.attempt),
            Column("outcome", lambda one: str(one.outcome)),
            Column("finished", lambda one: clock(one.finished_at, now), leaves=1),
            Column("took", lambda one: between(one.started_at, one.finished_at), leaves=2),
            Column("retried", lambda one: "yes" if one.will_retry else "no", leaves=3),
            Column("error", lambda one: one.error_code, folds=True),
            Column("message", lambda one: one.error_message and " ".join(one.error_message.split()), folds=True),
            Column("worker", lambda one: one.worker_id, leaves=4),
        ),
        found.attempts,
        width,
    )
    yield head
    yield from lines


def logged(lines: Sequence[TaskLogLine], width: int) -> Iterator[ListRow]:
    """What the task has logged, the newest last."""
    if not lines:
        return
    yield ListRow(())
    yield ListRow(line(("log", "head")))
    for one in lines:
        if one.dropped:
            yield ListRow(line((f"  … {one.dropped:,} lines are missing here", "dim")))
        clock_of_line = f"{one.time.astimezone(UTC):%H:%M:%S}Z"
        first, *more = visible_lines(one.text).expandtabs(4).split("\n")
        lead = line((f"  {clock_of_line} ", "dim"), (f"{one.level:<7} ", _LEVELS.get(one.level, "good")))
        head, *rest = broken(first, max(8, width - width_of(lead)))
        yield ListRow((*lead, Span(head)))
        for part in (*rest, *(piece for text in more for piece in broken(text, max(8, width - 4)))):
            yield ListRow(line("    ", part))


_LEVELS: dict[str, Tone] = {"DEBUG": "dim", "WARNING": "warn", "ERROR": "bad", "CRITICAL": "bad"}
