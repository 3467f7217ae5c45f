"""One typed function per statement about tasks, without decisions, logging or retries: a failure is raised to the
caller. `apply` makes moves under the fence of their claims; every arrow takes arrays, so that one round trip moves many
tasks.

`start_nodes` is about the node of
a workflow's task too: it is locked before the task and moves with it. The statements of `workflows.py` run under the
lock of the workflow's row; this one does not (D-63).
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Self

from psycopg import AsyncCursor
from psycopg.types.numeric import Int8

from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.db import Connection, as_one
from horsies.core.models.tasks import OperationalErrorCode, TaskError, TaskResult
from horsies.core.sql import load, numbers, stored, texts
from horsies.core.store import caps, names
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, Leave, Move, Requeue, Retry, SetAside
from horsies.core.types import WorkflowStatus, WorkflowTaskStatus

NO_LIMIT = 1 << 62
# In `claim.sql`: the tasks of one priority.
_IN_LINE = "is_waiting AND NOT is_held AND queue_name = r.name AND priority = l.priority"


class Claimed(NamedTuple):
    """A row as the claim returns it: everything needed to run the task and to decide about its end."""

    place: int
    priority: int
    enqueued_at: Any
    id: str
    claim_seq: int
    task_name: str
    queue_name: str
    args: str | None
    kwargs: str | None
    task_options: str | None
    retry_count: int
    max_retries: int
    has_deadline: bool
    workflow_id: str | None
    start_failures: int = 0  # children that died in a row when this task was next
    exits: str | None = None  # how these children ended
    recoveries: int = 0  # deaths of workers that have interrupted it; counted only for a worker with worker recovery
    size: int = 0  # bytes of its arguments
    child: int | None = None  # it is RUNNING already, in this one of the children that were offered; they count from 1


class Seats(NamedTuple):
    """Places in children for tasks that a claim makes RUNNING at once: `seats` has the child of the first task, of the
    second and so on; the children count from 1. The first `free` are for tasks of any name, those behind them for tasks
    of `short_names`."""

    seats: list[int]
    pids: list[int]  # of the children
    names: list[str]
    hostname: str
    free: int
    short_names: str  # as a bound array


class ClaimOrder(NamedTuple):
    """What one pass may take: at most `takes` from each queue (in claiming order) and up to its cap, and `budget` in
    all. What exceeds `strict` is run-ahead, and comes only from queues that are far from their cap."""

    queues: list[str]
    takes: list[int]
    caps: list[int | None]
    budget: int
    sync_budget: int
    cluster_cap: int | None
    hard: bool
    async_names: list[str]
    # The slots to fill. Each of the first `whole` sync tasks fills all `concurrency` slots of an idle child.
    room: int = 1 << 30
    whole: int = 0
    concurrency: int = 1
    strict: int = 1 << 30
    free_bytes: int = NO_LIMIT  # tasks are taken while those before them have fewer bytes of arguments (W-25b)
    is_sync_turn: bool = False  # no async task passes a sync one that finds no child (W-30a)

    @property
    def counted(self) -> list[str]:
        """The queues whose tasks in flight are asked for."""
        found = [name for name, cap in zip(self.queues, self.caps, strict=True) if cap is not None]
        return found if self.cluster_cap is None else [*found, caps.ALL]

    def narrowed(self, busy: Collection[str], due: Mapping[str, int]) -> Self:
        """The same for those of its queues that are `busy`: first those that are `due`, with at most so many tasks."""
        places = [place for place, name in enumerate(self.queues) if name in busy]
        places.sort(key=lambda place: self.queues[place] not in due)
        queues = [self.queues[place] for place in places]
        takes = [min(self.takes[place], due.get(self.queues[place], self.budget)) for place in places]
        return self._replace(queues=queues, takes=takes, caps=[self.caps[place] for place in places])

    def emptied(self, rows: Sequence[Claimed]) -> set[str]:
        """The queues that certainly have no more tasks for it, if these rows are the answer."""
        return set() if self.concurrency > 1 else self.unfilled(rows)  # sync tasks may have found no idle child

    def unfilled(self, rows: Sequence[Claimed]) -> set[str]:
        """The queues from which it could have taken more than these rows, as far as it goes by itself."""
        taken = Counter(row.queue_name for row in rows)
        is_cut = len(rows) >= self.budget or sum(row.size for row in rows) >= self.free_bytes
        end = rows[-1].place - 1 if is_cut else None  # places count from 1
        return {name for name, take in zip(self.queues[:end], self.takes[:end], strict=True) if taken[name] < take}

    def unclear(self, rows: Sequence[Claimed], due: Collection[str]) -> list[str]:
        """Those of the `due` queues, which came first, that may be empty, or have only sync tasks that found no idle
        child."""
        if self.concurrency == 1:
            return []  # see `emptied`
        taken = Counter(row.queue_name for row in rows)
        return [q for q, n in zip(self.queues, self.takes, strict=True) if q in due and taken[q] < n]

    def is_answered_in_full(self, rows: Sequence[Claimed]) -> bool:
        """Whether the queues may have more tasks than these rows, which were all that could be requested."""
        if not rows:
            return False
        taken = Counter(row.queue_name for row in rows)
        if len(rows) >= self.budget or sum(row.size for row in rows) >= self.free_bytes:
            return True
        return any(taken[q] >= n for q, n in zip(self.queues, self.takes, strict=True))


class Claimant(NamedTuple):
    """The claiming worker and its terms."""

    worker_id: str
    lease: timedelta
    enrolled: bool


async def claim(
    conn: Connection,
    who: Claimant,
    order: ClaimOrder,
    only: Sequence[str] | None = None,
    counting: caps.Counting | None = None,
    seats: Seats | None = None,
    line: names.Line | None = None,
) -> list[Claimed]:
    """Claim due tasks for this worker, in the order in which they should run; `only` these if they are named, and only
    this part of the `line` (O-31). Those that get one of the `seats` are RUNNING; this is for children with one task at
    a time."""
    counted = order.counted
    assert seats is None or order.concurrency == 1
    params = _claim_params(who, order, seats=seats) | (line.params() if line is not None else {})
    is_leaving = line is not None and only is None
    parts = _parts(order, counting=bool(counted), starting=seats is not None, leaving=is_leaving)
    statement = load("tasks/claim", *parts)
    if only is not None:
        # Not a condition of the statement itself, whose plan it might change.
        params["only"] = texts(only)
        wanted = "id = ANY(%(only)s::text[])" + (" AND task_name = ANY(%(names_here)s::text[])" if line else "")
        statement = statement.replace(_IN_LINE, f"{_IN_LINE} AND {wanted}")
    if not counted:
        cursor = await conn.execute(statement, params, prepare=only is None and line is None)
        return _claimed(await cursor.fetchall())
    rows, is_known = await _claim_counted(conn, counted, statement, params)
    if is_known:
        return rows
    # Nobody has claimed under one of these caps yet, or not for long (D-56).
    is_counted = await (counting or caps.Counting()).begin(conn, counted)
    return rows or ((await _claim_counted(conn, counted, statement, params))[0] if is_counted else [])


async def _claim_counted(
    conn: Connection, counted: Sequence[str], statement: str, params: dict[str, Any]
) -> tuple[list[Claimed], bool]:
    """The tasks, and whether all these queues are counted; from one that is not, nothing is taken."""
    # At once, because a worker that is paused in between would keep the locks.
    async with as_one(conn):
        locked = await caps.lock(conn, counted)
        cursor = await conn.execute(statement, params)
    return _claimed(await cursor.fetchall()), all(is_known for _, is_known in await locked.fetchall())


def _parts(order: ClaimOrder, *, counting: bool, starting: bool = False, leaving: bool = False) -> list[str]:
    """Of the text of the claim."""
    wanted = {"counted": counting, "concurrent": order.concurrency > 1, "starting": starting, "leaving": leaving}
    return [part for part, is_wanted in wanted.items() if is_wanted]


def _claim_params(
    who: Claimant, order: ClaimOrder, *, alone: bool = True, seats: Seats | None = None
) -> dict[str, Any]:
    params = {**who._asdict(), **order._asdict(), "alone": alone, "free_bytes": Int8(order.free_bytes)}
    if seats is not None:
        arrays = {"seats": numbers(seats.seats), "pids": numbers(seats.pids), "names": texts(seats.names)}
        params |= {**seats._asdict(), **arrays}
    return params


class SentClaim:
    """A claim without counting at the end of a transaction that has more to write; its rows are there after the commit,
    which is as durable as it was."""

    def __init__(self, cursor: AsyncCursor[Any]) -> None:
        self._cursor = cursor

    @classmethod
    async def send(cls, conn: Connection, who: Claimant, order: ClaimOrder) -> Self:
        statement = load("tasks/claim", *_parts(order, counting=False))
        return cls(await conn.execute(statement, _claim_params(who, order, alone=False), prepare=True))

    async def rows(self) -> list[Claimed]:
        return _claimed(await self._cursor.fetchall())


class SentStarts:
    """Starts of nodes behind such a claim, in the same transaction; what has started is known after the commit."""

    def __init__(self, cursor: AsyncCursor[Any]) -> None:
        self._cursor = cursor

    @classmethod
    async def send(cls, conn: Connection, worker_id: str, seats: Seats, claims: Sequence[Claim]) -> Self:
        chosen = [child - 1 for child in seats.seats[: len(claims)]]
        pids, names = [seats.pids[child] for child in chosen], [seats.names[child] for child in chosen]
        params = _starts(worker_id, seats.hostname, claims, pids, names)
        return cls(await conn.execute(load("workflows/start_nodes"), params, prepare=True))

    async def ids(self) -> set[str]:
        return {task_id for task_id, check in _checks(await self._cursor.fetchall()).items() if check.is_started}


async def busy_queues(conn: Connection) -> set[str]:
    """The queues in which tasks wait, whoever serves them."""
    return {row[0] for row in await (await conn.execute(load("tasks/busy_queues"), prepare=True)).fetchall()}


async def claim_expired(
    conn: Connection, who: Claimant, queues: list[str], budget: int, free_bytes: int = NO_LIMIT
) -> list[Claimed]:
    """Take over claims whose lease ran out."""
    params = {**who._asdict(), "queues": queues, "budget": budget, "free_bytes": Int8(free_bytes)}
    cursor = await conn.execute(load("tasks/claim_expired"), params, prepare=False)  # see `store.recovery`
    return _claimed(await cursor.fetchall())


def _claimed(rows: Sequence[Sequence[Any]]) -> list[Claimed]:
    return sorted([Claimed._make(row[:19]) for row in rows])


class NodeCheck(NamedTuple):
    """What was found when the task of a workflow was to start (L-25)."""

    status: WorkflowTaskStatus
    workflow: WorkflowStatus
    is_overdue: bool  # the deadline of the task has passed
    is_started: bool


async def start(
    conn: Connection, worker_id: str, hostname: str, claims: Sequence[Claim], pids: list[int], names: list[str]
) -> set[str]:
    """CLAIMED → RUNNING for tasks that are still held and not past their deadline; the others are not returned."""
    params = _starts(worker_id, hostname, claims, pids, names)
    cursor = await conn.execute(load("tasks/start"), params, prepare=True)
    return {row[0] for row in await cursor.fetchall()}


async def start_nodes(
    conn: Connection, worker_id: str, hostname: str, claims: Sequence[Claim], pids: list[int], names: list[str]
) -> dict[str, NodeCheck]:
    """The same for tasks of workflows, whose nodes move with them: what was found, by task. Nodes that are locked
    elsewhere are missing."""
    params = _starts(worker_id, hostname, claims, pids, names)
    cursor = await conn.execute(load("workflows/start_nodes"), params, prepare=True)
    return _checks(await cursor.fetchall())


def _checks(rows: Sequence[Sequence[Any]]) -> dict[str, NodeCheck]:
    return {
        row[0]: NodeCheck(stored(WorkflowTaskStatus, row[1]), stored(WorkflowStatus, row[2]), row[3], row[4])
        for row in rows
    }


def _starts(
    worker_id: str, hostname: str, claims: Sequence[Claim], pids: list[int], names: list[str]
) -> dict[str, Any]:
    return {
        **columns(claims),
        "worker_id": worker_id,
        "hostname": hostname,
        "pids": numbers(pids),
        "names": texts(names),
    }


async def apply(conn: Connection, worker_id: str, moves: Sequence[Move]) -> set[str]:
    """Make the moves; return the ids that moved. The others had already changed. Several kinds share a transaction."""
    return set(await apply_kinds(conn, worker_id, moves))


async def apply_kinds(conn: Connection, worker_id: str, moves: Sequence[Move]) -> dict[str, type]:
    """The same as `apply`, with the kind of the move that was made for each id. A retry may have become a failure
    (L-22)."""
    kinds: dict[type, list[Any]] = {}
    for move in moves:
        kinds.setdefault(type(move), []).append(move)
    if len(kinds) == 1 and kinds.keys().isdisjoint((Retry, Leave, SetAside)):
        return await _apply_kinds(conn, worker_id, kinds)
    async with conn.transaction():
        await conn.execute(load("tasks/lock"), {"ids": texts([move.claim.task_id for move in moves])}, prepare=True)
        return await _apply_kinds(conn, worker_id, kinds)


async def _apply_kinds(conn: Connection, worker_id: str, kinds: dict[type, list[Any]]) -> dict[str, type]:
    moved: dict[str, type] = {}
    for kind in (Complete, Retry, Leave, Fail, Requeue, Expire, SetAside):
        batch = kinds.get(kind, [])
        if kind is SetAside and batch:
            await mend(conn, worker_id, [move.claim for move in batch])
        if batch:
            moved |= dict.fromkeys(await _run(conn, worker_id, kind, batch), kind)
        if kind in (Retry, Leave) and batch:
            # The deadline left no room for these retries (L-22), or others were left for too long (O-32); if the row is
            # lost instead, this matches nothing.
            kinds.setdefault(Fail, []).extend(r.otherwise for r in batch if r.claim.task_id not in moved)
    return moved


async def _run(conn: Connection, worker_id: str, kind: type, batch: list[Any]) -> set[str]:
    name, columns = _STATEMENTS[kind]
    cursor = await conn.execute(load(name), {"worker_id": worker_id, **columns(batch)}, prepare=True)
    return {row[0] for row in await cursor.fetchall()}


async def mend(conn: Connection, owner: str, claims: Sequence[Claim]) -> set[str]:
    """Bring the dates and counters of these tasks back within the limits (D-14), so that they can be moved at all."""
    params = {"worker_id": owner, **columns(claims)}
    cursor = await conn.execute(load("tasks/mend"), params, prepare=False)
    return {row[0] for row in await cursor.fetchall()}


def columns(claims: Sequence[Claim]) -> dict[str, Any]:
    """The parameters of a statement about these claims."""
    return {"ids": texts([c.task_id for c in claims]), "claims": numbers([c.claim_seq for c in claims])}


def _with_results(batch: Sequence[Complete | Expire]) -> dict[str, Any]:
    return {**columns([m.claim for m in batch]), "results": texts([m.result for m in batch])}


def _failures(batch: Sequence[Fail]) -> dict[str, Any]:
    return {
        **columns([m.claim for m in batch]),
        "codes": texts([m.error_code for m in batch]),
        "messages": texts([m.error_message for m in batch]),
        "outcomes": texts([m.outcome.value for m in batch]),
        "reasons": texts([m.failed_reason for m in batch]),
    }


def _fails(batch: Sequence[Fail]) -> dict[str, Any]:
    return {**_failures(batch), "results": texts([m.result for m in batch])}


def _retries(batch: Sequence[Retry]) -> dict[str, Any]:
    return {
        **_failures([m.otherwise for m in batch]),
        "delays": numbers([m.delay_s for m in batch]),
        "charges": numbers([int(m.charged) for m in batch]),
        "counters": numbers([m.counter for m in batch]),
        "reasons": texts([m.reason or m.otherwise.failed_reason for m in batch]),
    }


def _requeues(batch: Sequence[Requeue]) -> dict[str, Any]:
    return {
        **columns([m.claim for m in batch]),
        "delays": numbers([m.delay_s for m in batch]),
        "reasons": texts([m.reason for m in batch]),
        "failed_starts": numbers([int(m.failed_start) for m in batch]),
        "counters": numbers([m.counter for m in batch]),
    }


def _leaves(batch: Sequence[Leave]) -> dict[str, Any]:
    return {
        **columns([m.claim for m in batch]),
        "graces": numbers([m.grace_s for m in batch]),
        "reasons": texts([m.otherwise.error_message for m in batch]),
    }


def _asides(batch: Sequence[SetAside]) -> dict[str, Any]:
    reasons = [sanitize_text(m.reason) for m in batch]
    return {
        **columns([m.claim for m in batch]),
        "results": texts([set_aside_result(reason) for reason in reasons]),
        "reasons": texts(reasons),
    }


def set_aside_result(reason: str) -> str:
    """The stored result of a task that was set aside."""
    message = f"The task was set aside, because its row cannot be moved: {reason}"
    error = TaskError(error_code=OperationalErrorCode.ROW_SET_ASIDE, message=message)
    return serialize_error_payload(TaskResult(err=error))


_STATEMENTS: dict[type, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    Complete: ("tasks/complete", _with_results),
    Fail: ("tasks/fail", _fails),
    Retry: ("tasks/retry", _retries),
    Leave: ("tasks/leave", _leaves),
    Requeue: ("tasks/requeue", _requeues),
    Expire: ("tasks/expire", _with_results),
    SetAside: ("tasks/set_aside", _asides),
}


class Outlook(NamedTuple):
    """What lies ahead, in seconds from now."""

    due_s: float | None  # when a task of these queues falls due; None: none does, or later than asked for
    is_due: bool  # a task of these queues waits
    is_lapsed: bool  # the lease of a claim in these queues has run out
    tasks_s: float | None  # when the next deadline of a waiting task passes, of any queue; 0: one has passed
    workflows_s: float | None  # the same, of workflows
    workers: int  # how many there are


async def look_ahead(
    conn: Connection, queues: Sequence[str] = (), within_s: float = 0.0, busy: Collection[str] | None = None
) -> Outlook:
    """Everything that a worker waits for; `busy` are those queues in which tasks wait, if that is known."""
    params = {"served": texts(queues), "queues": texts(queues if busy is None else sorted(busy)), "within": within_s}
    [row] = await (await conn.execute(load("tasks/next_due"), params, prepare=True)).fetchall()
    return Outlook(*row)
