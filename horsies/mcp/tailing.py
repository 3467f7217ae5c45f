"""The tools that continue where an earlier call ended (X-41): what a task has logged, and which tasks have ended.

The end of a task has the time at which its transaction began, so a task that is seen later may have ended a little
earlier. Therefore the cursor of ended tasks stays behind by `OVERLAP`, and names those that were told since.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final

from pydantic import Field

from horsies import monitoring
from horsies.core.models.monitoring.tasks import TaskSummary
from horsies.core.models.notes import LogPlace, TaskLogLine
from horsies.core.monitoring.filters import MOST
from horsies.core.monitoring.windows import cursor_of
from horsies.core.store.notes import LOGGED_ROWS, Page
from horsies.core.types import TASK_TERMINAL_STATES, Ok, TaskStatus
from horsies.mcp.tools import UPPER, Limit, McpTool, NoParameters, OfTask, Texts, ToolRefusal, Workbench
from horsies.mcp.tools import value_of as value

OVERLAP = timedelta(seconds=10)
MOST_TOLD = MOST - 100  # that a cursor names
ENDED: Final = "ended_at"


class LogWanted(OfTask):
    after: Annotated[str, Field(pattern="^[0-9]{1,9}:[0-9]{1,9}$")] | None = Field(
        default=None, description="the next_cursor of an earlier answer: only what was logged since"
    )
    from_start: bool = Field(default=False, description="without a cursor: the first lines, not the newest ones")
    limit: Limit = 50


class EndsWanted(NoParameters):
    after: Annotated[str, Field(max_length=60_000)] | None = Field(
        default=None, description="the next_cursor of an earlier answer, with the same filters: only what ended since"
    )
    statuses: list[Annotated[TaskStatus, UPPER]] = Field(
        default=[], description="only these states: COMPLETED, FAILED, CANCELLED, EXPIRED"
    )
    task_names: Texts = Field(default=[], description="only tasks with one of these names")
    queues: Texts = Field(default=[], description="only tasks of these queues")
    limit: Limit = 20


@dataclass(frozen=True, slots=True)
class LogLinesTold:
    """Lines of a log, the oldest first. `has_more`: there are more already."""

    task_name: str
    lines: tuple[TaskLogLine, ...]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True, slots=True)
class EndedTail:
    """Tasks that ended, the first first. `has_more`: there are more already."""

    items: tuple[TaskSummary, ...]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True, slots=True)
class EndsTold:
    """Up to where the ends of tasks were told: everything until `base`, and these since."""

    base: str | None = None
    ids: tuple[str, ...] = ()

    @classmethod
    def read(cls, cursor: str) -> EndsTold:
        try:
            base, *ids = json.loads(base64.urlsafe_b64decode(cursor.encode()).decode())
        except (ValueError, TypeError, RecursionError):
            raise _bad_cursor() from None
        if not all(isinstance(one, str) for one in ids) or not isinstance(base, str) or len(ids) > MOST_TOLD:
            raise _bad_cursor()
        return cls(base, tuple(ids))

    def written(self) -> str | None:
        if self.base is None:
            return None
        return base64.urlsafe_b64encode(json.dumps([self.base, *self.ids]).encode()).decode()

    def further(self, seen: Sequence[TaskSummary]) -> EndsTold:
        """After all of these, which are in the order of their ends, have been told."""
        if not seen or seen[-1].ended_at is None:
            return self
        edge = seen[-1].ended_at - OVERLAP
        old = sum(1 for task in seen if task.ended_at is not None and task.ended_at <= edge)
        base = cursor_of(seen[old - 1], ENDED, False) if old else self.base
        ids = tuple(task.task_id for task in seen[old:])
        if base is None or len(ids) > MOST_TOLD:  # the first look, or too many in that time
            place = 0 if base is None else len(seen) - 1
            return EndsTold(cursor_of(seen[place], ENDED, False), tuple(task.task_id for task in seen[place + 1 :]))
        return EndsTold(base, ids)


async def tail_log(bench: Workbench, given: LogWanted) -> LogLinesTold:
    [task] = value(await monitoring.get_task_summaries(bench.broker, [given.task_id])) or [None]
    if task is None:
        raise ToolRefusal("NOT_FOUND", "nothing has this id")
    place = LogPlace() if given.after is None else LogPlace(*map(int, given.after.split(":")))
    is_newest = given.after is None and not given.from_start
    read = await bench.broker.read_logs_async(given.task_id, place, None if is_newest else LOGGED_ROWS)
    if not isinstance(read, Ok):
        raise ToolRefusal(read.error.code.value, read.error.message)
    page: Page = read.value
    shown = slice(-given.limit, None) if is_newest else slice(0, given.limit)
    lines, places = tuple(page.lines[shown]), page.places[shown]
    cursor = f"{places[-1].claim_seq}:{places[-1].line}" if places else given.after
    return LogLinesTold(
        task.task_name, lines, cursor, not is_newest and (len(page.lines) > len(lines) or not page.is_last)
    )


async def tail_ended_tasks(bench: Workbench, given: EndsWanted) -> EndedTail:
    told = EndsTold() if given.after is None else EndsTold.read(given.after)
    page = value(
        await monitoring.list_tasks(
            bench.broker,
            statuses=given.statuses or sorted(TASK_TERMINAL_STATES),
            task_names=given.task_names,
            queues=given.queues,
            sort_by=ENDED,
            sort_dir="desc" if given.after is None else "asc",
            after=told.base,
            limit=given.limit + len(told.ids),
        )
    )
    found = page.items[::-1] if given.after is None else page.items
    seen = [task for task in found if task.task_id in told.ids]
    new = [task for task in found if task.task_id not in told.ids][: given.limit]
    if given.after is None:
        return EndedTail(tuple(new), told.further(new).written(), has_more=False)
    if page.is_partial and page.next_cursor is not None and len(seen) + len(new) == len(found):
        return EndedTail(tuple(new), EndsTold(page.next_cursor).written(), has_more=True)
    is_told = {task.task_id for task in (*seen, *new)}
    further = told.further([task for task in found if task.task_id in is_told])
    return EndedTail(tuple(new), further.written(), has_more=page.next_cursor is not None or len(is_told) < len(found))


def _bad_cursor() -> ToolRefusal:
    return ToolRefusal("INVALID_ARGUMENT", "after: must be the next_cursor of an earlier answer of this tool")


TAILING: tuple[McpTool, ...] = (
    McpTool(
        "tail_log",
        "Read the log of a task",
        "What a task has logged and is kept, in all attempts: the newest lines; with a cursor, what was logged since.",
        LogWanted,
        tail_log,
    ),
    McpTool(
        "tail_ended_tasks",
        "Follow the ends of tasks",
        "The last tasks that ended, or with a cursor those that ended since: each once, the first first.",
        EndsWanted,
        tail_ended_tasks,
    ),
)
