"""What a person does to many tasks (M-49a): cancel them, send them again, or move those that wait to another queue or
priority. They are named by their ids, or by what they have in common.

First a dry run tells how many there are. Then they are changed in batches, each a statement and a transaction of its
own, so that nobody waits for long, and stopping halfway loses nothing: the same call continues. The actions are those
on one task (`brokers/actions.py`). A task that an action does not apply to is left alone, and counted by the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from horsies.core.brokers.actions import (
    ENDED,
    Action,
    Cancel,
    Rerun,
    TaskActionError,
    TaskActionErrorCode,
    TaskRerun,
    act,
)
from horsies.core.db import Connection, Refused
from horsies.core.models.monitoring import bulk, tasks
from horsies.core.models.queues import queue_name_problem
from horsies.core.monitoring import filters, task_queries
from horsies.core.monitoring.queries import ask, no_answer
from horsies.core.producer.hub import can_exist
from horsies.core.store import many
from horsies.core.store.many import TaskState
from horsies.core.types import Err, Ok, TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

BATCH = 500
MOST = 10_000  # tasks that one call changes
MOST_IDS = 1_000  # of them that its answer names
EXAMPLES = 10
LOOKS = 200  # pages in a row without a task that could be changed; then a call ends
_ORDERS: tuple[tuple[frozenset[TaskStatus], tasks.SortBy, tasks.SortDir], ...] = (
    (filters.WAITING, "claim_order", "asc"),
    (filters.IN_FLIGHT, "started_at", "asc"),
    (frozenset(ENDED), "ended_at", "desc"),
)
Code = TaskActionErrorCode


async def cancel_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    statuses: Sequence[TaskStatus | str] = (),
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    include_running: bool = False,
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Cancel these tasks, or those of a group, that have not ended; running ones only with `include_running`."""
    group = filters.TaskFilter(task_names, queues, (), statuses, error_codes)
    return await _act(broker, ids, group, Cancel(include_running), dry_run=dry_run, most=most)


async def rerun_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    statuses: Sequence[TaskStatus | str] = (),
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    error_codes: Sequence[str] = (),
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Send these tasks, or those of a group, that ended without success again, each of them once: a task that was sent
    again like this before is left alone."""
    group = filters.TaskFilter(task_names, queues, (), statuses, error_codes)
    return await _act(broker, ids, group, Rerun(once=True), dry_run=dry_run, most=most)


async def move_tasks(
    broker: PostgresBroker,
    ids: Sequence[str] = (),
    *,
    queue: str | None = None,
    priority: int | None = None,
    task_names: Sequence[str] = (),
    queues: Sequence[str] = (),
    dry_run: bool = False,
    most: int = MOST,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """Give these waiting tasks, or those of a group, another queue, another priority, or both. A dry run that does not
    say where to tells which of them can be moved at all."""
    group = filters.TaskFilter(task_names, queues)
    action = _Move(queue, priority, is_anywhere=dry_run and queue is None and priority is None)
    return await _act(broker, ids, group, action, dry_run=dry_run, most=most)


@dataclass(frozen=True)
class _Move(Action[None]):
    """Another queue or priority for waiting tasks."""

    queue: str | None
    priority: int | None
    is_anywhere: bool = False  # where to is not known yet, so no task is there already
    statuses = (TaskStatus.PENDING,)

    def check(self) -> None:
        """Raise if it makes no sense."""
        if self.queue is None and self.priority is None and not self.is_anywhere:
            raise filters.BadQuestion("say where to: a queue, a priority, or both")
        if self.queue is not None and (problem := queue_name_problem(filters.checked_text("queue", self.queue))):
            raise filters.BadQuestion(problem)
        if self.priority is not None and (isinstance(self.priority, bool) or self.priority not in range(1, 101)):
            raise filters.BadQuestion(f"priority must be a whole number from 1 to 100, not {self.priority!r}")

    def problem(self, state: TaskState) -> tuple[Code, str] | None:
        if state.status is not TaskStatus.PENDING:
            return Code.TASK_NOT_WAITING, f"is {state.status.value}: only a waiting task can be moved"
        is_there = self.queue in (None, state.queue_name) and self.priority in (None, state.priority)
        return (Code.TASK_ALREADY_THERE, "is there already") if is_there and not self.is_anywhere else None

    async def apply(self, conn: Connection, ids: Sequence[str]) -> dict[str, None]:
        return dict.fromkeys(await many.change_queue(conn, ids, self.queue, self.priority))


_Action: TypeAlias = Cancel | Rerun | _Move


async def _act(
    broker: PostgresBroker,
    ids: Sequence[str],
    group: filters.TaskFilter,
    action: _Action,
    *,
    dry_run: bool,
    most: int,
) -> tasks.MonitoringResult[bulk.BulkResult]:
    try:
        wanted = _checked(ids, group, action, most)
    except filters.BadQuestion as problem:
        return Err(no_answer(problem, broker))
    if dry_run:
        return await (_preview(broker, list(ids), action) if ids else _count(broker, wanted, action))
    batches = _given(list(ids)) if ids else _found(broker, wanted)
    run = _Run(broker, action, most)
    try:
        return Ok(await run.all(batches))
    except Exception as problem:
        error = problem.error if isinstance(problem, Refused) else no_answer(problem, broker)
        return Err(replace(error, message=f"{run.so_far}{error.message}"))


def _checked(ids: Sequence[str], group: filters.TaskFilter, action: _Action, most: int) -> filters.TaskFilter:
    """The group, with the states that the action is about; raises if it is not clear which tasks are meant."""
    if isinstance(action, _Move):
        action.check()
    filters.refuse_text("ids", ids)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST:
        raise filters.BadQuestion(f"most must be a whole number from 1 to {MOST:,}, not {most!r}")
    if len(ids) > MOST:
        raise filters.BadQuestion(f"at most {MOST:,} tasks can be named, not {len(ids):,}")
    is_group = any((group.task_names, group.queues, group.statuses, group.error_codes))
    if bool(ids) == is_group:
        raise filters.BadQuestion("name tasks by their ids, or say what they have in common: one of the two")
    statuses = filters.members(TaskStatus, "statuses", group.statuses) or frozenset(action.statuses)
    if wrong := statuses - set(action.statuses):
        allowed, named = ", ".join(action.statuses), ", ".join(sorted(wrong))
        raise filters.BadQuestion(f"this is for tasks that are {allowed}, not {named}")
    chosen = replace(group, statuses=tuple(sorted(statuses)), plain_only=True)
    chosen.params()
    return chosen


async def _preview(broker: PostgresBroker, ids: list[str], action: _Action) -> tasks.MonitoringResult[bulk.BulkResult]:
    """What would become of the tasks with these ids."""

    async def look(conn: Connection) -> bulk.BulkResult:
        refusals = await action.refusals(conn, list(dict.fromkeys(ids)))
        changed = [task_id for task_id, refusal in refusals.items() if refusal is None]
        skipped = _counted(refusals.values())
        if isinstance(action, Rerun):  # a state does not tell that
            again = await many.sent_again(conn, changed)
            changed = [task_id for task_id in changed if task_id not in again]
            skipped += Counter({action.stuck.value: len(again)})
        examples = await task_queries.summaries(conn, changed[:EXAMPLES])
        return bulk.BulkResult(True, len(changed), dict(skipped), examples=examples)

    return await ask(broker, look)


async def _count(
    broker: PostgresBroker, group: filters.TaskFilter, action: _Action
) -> tasks.MonitoringResult[bulk.BulkResult]:
    """How many tasks of the group there are. Which of them were sent again before is looked up for the first page."""
    is_rerun = isinstance(action, Rerun)
    page = await task_queries.find_tasks(broker, group, limit=filters.MOST if is_rerun else EXAMPLES)
    if isinstance(page, Err):
        return page
    found = page.ok_value
    asked = [task.task_id for task in found.items] if is_rerun else []
    again = await ask(broker, partial(many.sent_again, ids=asked))
    if isinstance(again, Err):
        return again
    left = [task for task in found.items if task.task_id not in again.ok_value]
    return Ok(
        bulk.BulkResult(
            True,
            found.total - len(again.ok_value),
            {action.stuck.value: len(again.ok_value)} if again.ok_value else {},
            examples=tuple(left[:EXAMPLES]),
            is_exact=found.total_is_exact,
            is_complete=not is_rerun or found.total <= len(found.items),
        )
    )


async def _given(ids: list[str]) -> AsyncIterator[list[str]]:
    unique = list(dict.fromkeys(ids))
    for start in range(0, len(unique), BATCH):
        yield unique[start : start + BATCH]


async def _found(broker: PostgresBroker, group: filters.TaskFilter) -> AsyncIterator[list[str]]:
    """The tasks of the group, page by page along the index of each kind of state."""
    for states, sort_by, sort_dir in _ORDERS:
        chosen = [status for status in group.statuses if status in states]
        after = None if chosen else ""
        while after is None or after:
            part = replace(group, statuses=chosen)
            page = await task_queries.find_tasks(
                broker, part, sort_by=sort_by, sort_dir=sort_dir, limit=BATCH, after=after, counted=False
            )
            if isinstance(page, Err):
                raise Refused(page.err_value)
            yield [task.task_id for task in page.ok_value.items]
            after = page.ok_value.next_cursor or ""


@dataclass(slots=True)
class _Run:
    """One call: what was changed so far, and what was left alone."""

    broker: PostgresBroker
    action: _Action
    most: int
    changed: dict[str, Any] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    seen: set[str] = field(default_factory=set)

    @property
    def so_far(self) -> str:
        return f"after {len(self.changed):,} tasks were changed: " if self.changed else ""

    async def all(self, batches: AsyncIterator[list[str]]) -> bulk.BulkResult:
        is_complete, idle = True, 0
        async for ids in batches:
            new = [task_id for task_id in ids if task_id not in self.seen]  # moved ones may be met again
            self.seen.update(new)
            room, before = self.most - len(self.changed), len(self.changed)
            if (new and not room) or idle >= LOOKS:
                is_complete = False
                break
            await self.broker.bridge.call(partial(self._batch, new[:room]))
            is_complete = len(new) <= room
            idle = 0 if len(self.changed) > before else idle + 1
        first = dict(list(self.changed.items())[:MOST_IDS])
        new_ids = tuple(done.task_id for done in first.values() if isinstance(done, TaskRerun))
        return bulk.BulkResult(
            False, len(self.changed), dict(self.skipped), tuple(first), new_ids, is_complete=is_complete
        )

    async def _batch(self, ids: list[str]) -> None:
        known = [task_id for task_id in ids if can_exist(task_id)]
        self.skipped += Counter({Code.TASK_NOT_FOUND.value: len(ids) - len(known)})
        if not known:
            return
        async with self.broker.hub.connection() as conn:
            action: Action[Any] = self.action
            done, refused = await act(conn, action, known)
        self.changed |= done
        self.skipped += _counted(refused.values())


def _counted(refusals: Iterable[TaskActionError | None]) -> Counter[str]:
    return Counter(refusal.code.value for refusal in refusals if refusal is not None)
