"""The operations that take, move and keep up claims."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from functools import partial

from horsies.core.brokers import actions
from horsies.core.db import Connection, mending
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.sql import texts
from horsies.core.store import caps, holds, many, names, odd_rows, recovery, tasks
from horsies.core.store.holds import Beat
from horsies.core.store.odd_rows import OddTask
from horsies.core.store.tasks import Claimant, Claimed, ClaimOrder, Seats
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, InFlight, Leave, Move, Requeue, Retry, SetAside
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import Arguments, Kind, rows_in
from tests.proof_pairs.rows import NEW_IDS, QUEUES, WORKERS, Row, Start


def claims_of(pick: Choices, start: Start, statuses: tuple[str, ...]) -> tuple[str, list[Claim]]:
    """A worker and claims it believes in: mostly its own, some it never had, some that it is just about to get."""
    likely = [row for row in start.tasks if row.status in statuses]
    worker = pick.of([row.owner for row in likely] * 6 + list(WORKERS))
    own = [row for row in likely if row.owner == worker]
    picked = pick.shuffled(pick.of([own or start.tasks] * 4 + [start.tasks]))[: pick.of((9, 9, 9, 2, 1))]
    guess = pick.of((0, 0, 0, 0, 1))
    return worker, [Claim(row.id, row.seq + (guess if row.is_held else 1)) for row in picked]


def _fail(claim: Claim, *, crashed: bool) -> Fail:
    if crashed:
        return Fail(claim, "{}", "WORKER_CRASHED", "it died", TaskAttemptOutcome.WORKER_FAILURE, "killed")
    return Fail(claim, "{}", "BROKEN", "it broke")


def _retry(pick: Choices, claim: Claim) -> Retry:
    return Retry(claim, pick.of((0.0, 5.0, 200.0)), _fail(claim, crashed=pick.is_so()), charged=not pick.is_so())


_MOVES: dict[type, Callable[[Choices, Claim], Move]] = {
    Complete: lambda pick, claim: Complete(claim, '{"ok": 1}'),
    Fail: lambda pick, claim: _fail(claim, crashed=pick.is_so()),
    Retry: _retry,
    Leave: lambda pick, claim: Leave(claim, 60.0, _fail(claim, crashed=False)),
    Requeue: lambda pick, claim: Requeue(claim),
    Expire: lambda pick, claim: Expire(claim, '{"err": 1}'),
}
_FROM: dict[type, tuple[str, ...]] = {
    Complete: ("RUNNING",),
    Fail: ("RUNNING",),
    Retry: ("RUNNING",),
    Leave: ("RUNNING",),
    Requeue: ("CLAIMED", "RUNNING"),
    Expire: ("CLAIMED",),
}


def _moves(pick: Choices, start: Start, kinds: tuple[type, ...]) -> Arguments:
    statuses = tuple({status for kind in kinds for status in _FROM[kind]})
    worker, claims = claims_of(pick, start, statuses)
    return {"worker_id": worker, "moves": [_MOVES[pick.of(kinds)](pick, claim) for claim in claims]}


def _moved(start: Start, arguments: Arguments) -> set[str]:
    return {move.claim.task_id for move in arguments["moves"]}


def _unknown(pick: Choices, start: Start) -> Arguments:
    ids = pick.shuffled([row.id for row in start.tasks])[:3]
    return {
        "found": [names.UnknownTask(task_id, "plain") for task_id in ids],
        "names_hash": "mine",
        "grace": timedelta(seconds=1),
    }


def _unknown_ids(start: Start, arguments: Arguments) -> set[str]:
    return {task.id for task in arguments["found"]}


def _arrow(name: str, *kinds: type) -> Kind:
    draws = partial(_moves, kinds=kinds)
    return Kind(name, tasks.apply, draws, _moved, statements=1 + len(kinds), in_bulk=_completes_only)


def _completes_only(arguments: Arguments) -> bool:
    return all(isinstance(move, Complete) for move in arguments["moves"])


def _claimed(start: Start, arguments: Arguments) -> set[str]:
    return {claim.task_id for claim in arguments["claims"]}


def claim_of(pick: Choices, start: Start, capped: bool) -> Arguments:
    queues = pick.of((["default"], ["default", "other"], ["other", "default"]))
    caps = [pick.of((None, 1, 3)) if capped else None for _ in queues]
    order = ClaimOrder(
        queues=queues,
        takes=[pick.of((8, 1, 2)) for _ in queues],
        caps=caps,
        budget=pick.of((8, 1, 2)),
        sync_budget=pick.of((8, 8, 1)),
        cluster_cap=pick.of((2, 4)) if capped and caps.count(None) == len(caps) else None,
        hard=pick.is_so(),
        async_names=pick.of(([], ["light"])),
        concurrency=pick.of((1, 1, 2)),
    )
    return {"who": _claimant(pick), "order": order}


def seats_of(pick: Choices) -> Seats:
    count = pick.of((8, 1, 2))
    places = range(1, count + 1)  # each in another child
    short_names = pick.of(([], ["light"], ["light", "heavy"]))
    pids, names = [100 + place for place in places], [f"c{place}" for place in places]
    return Seats(list(places), pids, names, "host", min(count, pick.of((8, 0, 1))), texts(short_names))


def _starting_claim(pick: Choices, start: Start, capped: bool) -> Arguments:
    arguments = claim_of(pick, start, capped)
    return {**arguments, "order": arguments["order"]._replace(concurrency=1), "seats": seats_of(pick)}


def _claimant(pick: Choices) -> Claimant:
    return Claimant(pick.of(WORKERS), timedelta(seconds=30), pick.is_so())


def _takeover(pick: Choices, start: Start) -> Arguments:
    return {"who": _claimant(pick), "queues": list(QUEUES), "budget": pick.of((8, 1, 2))}


def _start(pick: Choices, start: Start) -> Arguments:
    worker, claims = claims_of(pick, start, ("CLAIMED",))
    children = {"pids": [100 + n for n in range(len(claims))], "names": [f"child-{n}" for n in range(len(claims))]}
    return {"worker_id": worker, "hostname": "host", "claims": claims, **children}


def _beat(pick: Choices, start: Start) -> Arguments:
    worker, claims = claims_of(pick, start, ("CLAIMED", "RUNNING"))
    return {"worker_id": worker, "hostname": "host", "beats": [Beat(c, pick.is_so(), worker, 7) for c in claims]}


def _renewal(pick: Choices, start: Start) -> Arguments:
    worker, claims = claims_of(pick, start, ("CLAIMED",))
    who = Claimant(worker, timedelta(seconds=90), True)
    return {"who": who, "claims": claims, "max_age": timedelta(seconds=pick.of((600, 5)))}


def _returned(pick: Choices, start: Start) -> Arguments:
    worker, claims = claims_of(pick, start, ("RUNNING",))
    return {"worker_id": worker, "claims": claims}


async def _cancel_one(conn: Connection, task_id: str, include_running: bool) -> object:
    return await actions.act(conn, actions.Cancel(include_running), [task_id])


def _cancel(pick: Choices, start: Start) -> Arguments:
    ids = [row.id for row in start.tasks if row.workflow is None] * 4 + [row.id for row in start.tasks] + list(NEW_IDS)
    return {"task_id": pick.of(ids), "include_running": pick.is_so()}


def _cancel_many(pick: Choices, start: Start) -> Arguments:
    return {"ids": [row.id for row in pick.shuffled(start.tasks)[:3]], "result": '{"err": 1}'}


def _change_queue(pick: Choices, start: Start) -> Arguments:
    ids = [row.id for row in pick.shuffled(start.tasks)[:3]]
    return {"ids": ids, "queue": pick.of((*QUEUES, None)), "priority": pick.of((None, 5, 100))}


def _run_now(pick: Choices, start: Start) -> Arguments:
    return {"ids": [row.id for row in pick.shuffled(start.tasks)[:3]]}


async def _recover(conn: Connection, status: TaskStatus, silence: timedelta, most: int) -> set[str]:
    """What a pass of the reaper does: look, lock, decide, move."""
    async with conn.transaction():
        found = await recovery.find_stale(
            conn, status, RecoveryConfig(), WorkerRecoveryConfig(), threshold=silence, most=most
        )
        stale = await recovery.lock_stale(conn, found)
        for worker_id in sorted({task.worker_id for task in stale}):
            await tasks.apply(conn, worker_id, [_brought_back(task) for task in stale if task.worker_id == worker_id])
    return {task.task_id for task in stale}


def _brought_back(task: InFlight) -> Move:
    if task.status is TaskStatus.CLAIMED:
        return Requeue(task.claim)
    crash = _fail(task.claim, crashed=True)
    return Retry(task.claim, 5.0, crash) if task.retry_count < 1 else crash


def _silence(pick: Choices, start: Start) -> Arguments:
    status = pick.of((TaskStatus.RUNNING, TaskStatus.CLAIMED))
    return {"status": status, "silence": timedelta(seconds=3), "most": pick.of((500, 1, 2))}


def _any_open(pick: Choices, start: Start) -> tuple[str, list[Row]]:
    """Tasks that wait or are in flight, as somebody saw them who takes them for odd; of one owner."""
    likely = [row for row in start.tasks if row.status in ("PENDING", "CLAIMED", "RUNNING")]
    worker = pick.of([row.owner for row in likely] * 6 + list(WORKERS))
    own = [row for row in likely if row.owner == worker or row.status == "PENDING"]
    return worker, pick.shuffled(own or start.tasks)[: pick.of((9, 9, 2, 1))]


def _seen(pick: Choices, row: Row) -> Claim:
    return Claim(row.id, row.seq + pick.of((0, 0, 0, 1)))


def _mend(pick: Choices, start: Start) -> Arguments:
    owner, rows = _any_open(pick, start)
    return {"owner": owner, "claims": [_seen(pick, row) for row in rows]}


def _asides(pick: Choices, start: Start) -> Arguments:
    worker, rows = _any_open(pick, start)
    return {"worker_id": worker, "moves": [SetAside(_seen(pick, row), "odd") for row in rows]}


def _odd(pick: Choices, start: Start) -> Arguments:
    """Each owner's tasks are set aside in a transaction of their own; so they are of one owner here."""
    owner, rows = _any_open(pick, start)
    found = [
        OddTask(_seen(pick, row), owner, TaskStatus(row.status), row.name, row.queue, row.workflow, "odd")
        for row in rows
    ]
    return {"found": found}


def _found(start: Start, arguments: Arguments) -> set[str]:
    return {task.claim.task_id for task in arguments["found"]}


class Only:
    """A pool of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def connection(self) -> AbstractAsyncContextManager[Connection]:
        return nullcontext(self._conn)


async def _claim_despite(conn: Connection, who: Claimant, order: ClaimOrder) -> list[Claimed]:
    """As a worker claims."""
    return await mending(partial(tasks.claim, conn, who, order), partial(odd_rows.set_aside_odd, Only(conn)))


async def _look_for_odd(conn: Connection, with_waiting: bool) -> list[OddTask]:
    """As the reaper looks, and a start that was refused. All rows are within the limits here: they are left alone."""
    assert (
        await odd_rows.reason_of(Only(conn), "a", ValueError("no")) == "the database refuses its start: ValueError: no"
    )
    return await odd_rows.set_aside_odd(Only(conn), with_waiting=with_waiting)


def _counting(name: str, claim: Callable[..., Arguments]) -> Kind:
    draws, uses = partial(claim, capped=True), (tasks.claim, caps.lock)
    return Kind(name, tasks.claim, draws, rows_in("PENDING"), uses, skips=True, counts=True, statements=2)


TASK_KINDS = (
    Kind("claim", tasks.claim, partial(claim_of, capped=False), rows_in("PENDING"), skips=True, waits=False),
    Kind(
        "starting claim",
        tasks.claim,
        partial(_starting_claim, capped=False),
        rows_in("PENDING"),
        skips=True,
        waits=False,
    ),
    _counting("counting claim", claim_of),
    _counting("starting and counting claim", _starting_claim),
    Kind("fold counts", caps.fold, lambda pick, start: {"names": None, "capped": []}, skips=True, waits=False),
    Kind("compare counts", caps.compare, waits=False, statements=2),
    Kind("stop counting", caps.stop_counting, lambda pick, start: {"after": timedelta(days=1)}, waits=False),
    Kind("claim_expired", tasks.claim_expired, _takeover, rows_in("CLAIMED"), skips=True, waits=False),
    Kind("start", tasks.start, _start, _claimed, in_bulk=lambda arguments: True),
    _arrow("complete", Complete),
    _arrow("fail", Fail),
    _arrow("retry", Retry),
    _arrow("requeue", Requeue),
    _arrow("leave", Leave),
    Kind("fail_unknown", names.fail_unknown, _unknown, _unknown_ids, skips=True, waits=False),
    _arrow("expire", Expire),
    _arrow("finalize", Complete, Fail, Retry),
    _arrow("hand back", Complete, Fail, Retry, Requeue, Expire),
    Kind(
        "expire_waiting",
        recovery.expire_waiting,
        lambda pick, start: {"most": pick.of((500, 1, 2))},
        rows_in("PENDING"),
        skips=True,
        waits=False,
    ),
    Kind("cancel", _cancel_one, _cancel, lambda start, arguments: {arguments["task_id"]}, statements=2),
    Kind("change queue", many.change_queue, _change_queue, lambda start, arguments: set(arguments["ids"])),
    Kind("run now", many.run_now, _run_now, lambda start, arguments: set(arguments["ids"])),
    Kind("cancel many", many.cancel, _cancel_many, lambda start, arguments: set(arguments["ids"])),
    Kind(
        "recover",
        _recover,
        _silence,
        rows_in("CLAIMED", "RUNNING"),
        uses=(recovery.find_stale, recovery.lock_stale, tasks.apply),
        skips=True,
        waits=False,
        statements=5,
    ),
    Kind("mend", tasks.mend, _mend, _claimed),
    Kind("set aside", tasks.apply, _asides, _moved, statements=3),
    Kind("set aside what was found", odd_rows.set_aside, _odd, _found, statements=3),
    Kind(
        "claim despite odd rows",
        _claim_despite,
        partial(claim_of, capped=False),
        rows_in("PENDING"),
        uses=(odd_rows.set_aside_odd, tasks.claim),
        skips=True,
        waits=False,
    ),
    Kind(
        "look for odd rows",
        _look_for_odd,
        lambda pick, start: {"with_waiting": pick.is_so()},
        uses=(odd_rows.set_aside_odd, odd_rows.find_odd, odd_rows.reason_of),
        waits=False,
        statements=2,
    ),
    Kind("heartbeat", holds.heartbeat, _beat, waits=False, reads=True),
    Kind("renew", holds.renew, _renewal, _claimed, skips=True, waits=False),
    Kind("mark_finalizing", holds.mark_finalizing, _returned, _claimed, skips=True, waits=False),
)
