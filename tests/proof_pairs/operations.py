"""Every function of the store that writes, with random arguments over the rows at hand.

A kind says how it is called, which rows it names or could take, whether it leaves out what is locked, and whether it may
wait at all. A new function of the store that writes needs a kind here (`test_coverage.py` says so).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from horsies.core.lifecycle.moves import Claim, Complete, Expire, Fail, Move, Requeue, Retry
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.monitoring import actions
from horsies.core.producer.enqueue import MismatchError, Verdict, enqueue, enqueue_all
from horsies.core.producer.steps import in_savepoint, in_transaction, run_async
from horsies.core.store import results, sends, tasks, workers
from horsies.core.store.sends import Rows, Send, Statement
from horsies.core.store.tasks import Beat, Claimant, ClaimOrder
from horsies.core.types.status import TaskAttemptOutcome
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.rows import NEW_IDS, QUEUES, WORKERS, Start
from tests.proof_pairs.stage import T0

Arguments: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
Names: TypeAlias = Callable[[Start, Arguments], set[str]]


@dataclass(frozen=True)
class Kind:
    """One operation: `run(conn, **arguments)` with arguments of `draws`."""

    run: Run
    draws: Callable[[Choices, Start], Arguments]
    functions: tuple[Run, ...]
    names: Names = lambda start, arguments: set()  # task ids, and topics of words, that it can lock
    skips: bool = False
    waits: bool = True
    counts: bool = False
    statements: int = 1
    in_bulk: Callable[[Arguments], bool] = lambda arguments: False  # its order of locks rests on the session's settings


@dataclass(frozen=True)
class Operation:
    """A kind with its arguments; run any number of times, it does the same."""

    kind: str
    arguments: Arguments = field(hash=False)

    async def run(self, conn: AsyncConnection[Any]) -> Any:
        return await KINDS[self.kind].run(conn, **self.arguments)

    @property
    def skips(self) -> bool:
        return KINDS[self.kind].skips

    @property
    def waits(self) -> bool:
        return KINDS[self.kind].waits

    @property
    def counts(self) -> bool:
        return KINDS[self.kind].counts

    @property
    def is_about_words(self) -> bool:
        return self.kind in WORDS

    @property
    def statements(self) -> int:
        return KINDS[self.kind].statements

    @property
    def in_bulk(self) -> bool:
        return KINDS[self.kind].in_bulk(self.arguments)

    def names(self, start: Start) -> set[str]:
        return KINDS[self.kind].names(start, self.arguments)


def operation(pick: Choices, start: Start, kinds: Sequence[str]) -> Operation:
    """Mostly of these kinds, but any can come."""
    kind = pick.of(pick.of([kinds] * 7 + [list(KINDS)]))
    return Operation(kind, KINDS[kind].draws(pick, start))


# Claims and the moves about them


def _claims(pick: Choices, start: Start, statuses: tuple[str, ...]) -> tuple[str, list[Claim]]:
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


MOVES: dict[type, Callable[[Choices, Claim], Move]] = {
    Complete: lambda pick, claim: Complete(claim, '{"ok": 1}'),
    Fail: lambda pick, claim: _fail(claim, crashed=pick.is_so()),
    Retry: _retry,
    Requeue: lambda pick, claim: Requeue(claim),
    Expire: lambda pick, claim: Expire(claim, '{"err": 1}'),
}
FROM: dict[type, tuple[str, ...]] = {
    Complete: ("RUNNING",),
    Fail: ("RUNNING",),
    Retry: ("RUNNING",),
    Requeue: ("CLAIMED", "RUNNING"),
    Expire: ("CLAIMED",),
}


def _moves(pick: Choices, start: Start, kinds: tuple[type, ...]) -> Arguments:
    statuses = tuple({status for kind in kinds for status in FROM[kind]})
    worker, claims = _claims(pick, start, statuses)
    return {"worker_id": worker, "moves": [MOVES[pick.of(kinds)](pick, claim) for claim in claims]}


def _moved(start: Start, arguments: Arguments) -> set[str]:
    return {move.claim.task_id for move in arguments["moves"]}


def _arrow(*kinds: type) -> Kind:
    draws = partial(_moves, kinds=kinds)
    return Kind(tasks.apply, draws, (tasks.apply,), _moved, statements=len(kinds), in_bulk=_completes_only)


def _completes_only(arguments: Arguments) -> bool:
    return all(isinstance(move, Complete) for move in arguments["moves"])


def _claimed(start: Start, arguments: Arguments) -> set[str]:
    return {claim.task_id for claim in arguments["claims"]}


def _claim(pick: Choices, start: Start, capped: bool) -> Arguments:
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


def _claimant(pick: Choices) -> Claimant:
    return Claimant(pick.of(WORKERS), timedelta(seconds=30), pick.is_so())


def _takeover(pick: Choices, start: Start) -> Arguments:
    return {"who": _claimant(pick), "queues": list(QUEUES), "budget": pick.of((8, 1, 2))}


def _in(status: str) -> Names:
    """It may lock any row in this status."""
    return lambda start, arguments: {row.id for row in start.tasks if row.status == status}


def _start(pick: Choices, start: Start) -> Arguments:
    worker, claims = _claims(pick, start, ("CLAIMED",))
    children = {"pids": [100 + n for n in range(len(claims))], "names": [f"child-{n}" for n in range(len(claims))]}
    return {"worker_id": worker, "hostname": "host", "claims": claims, **children}


def _beat(pick: Choices, start: Start) -> Arguments:
    worker, claims = _claims(pick, start, ("CLAIMED", "RUNNING"))
    return {"worker_id": worker, "hostname": "host", "beats": [Beat(c, pick.is_so(), worker, 7) for c in claims]}


def _renewal(pick: Choices, start: Start) -> Arguments:
    worker, claims = _claims(pick, start, ("CLAIMED",))
    who = Claimant(worker, timedelta(seconds=90), True)
    return {"who": who, "claims": claims, "max_age": timedelta(seconds=pick.of((600, 5)))}


def _returned(pick: Choices, start: Start) -> Arguments:
    worker, claims = _claims(pick, start, ("RUNNING",))
    return {"worker_id": worker, "claims": claims}


# Sending and cancelling

# One id is one send, with its own name and key, though its arguments may differ by mistake; a key may be used by several.
_LETTERS = {
    **{"n1": ("plain", "k1"), "n2": ("plain", "k2"), "n3": ("light", None)},
    **{"n4": ("plain", "k2"), "n5": ("plain", "k1"), "n6": ("light", "k3")},
}


def _letters(pick: Choices, start: Start) -> Arguments:
    """New tasks and old ones sent again, in any order."""
    letters = {**_LETTERS, **{row.id: (row.name, row.key) for row in start.tasks}}
    ids = pick.shuffled(pick.of((list(_LETTERS), list(_LETTERS), list(letters))))[: pick.of((2, 1, 3, 4))]
    return {"sends": [_send(pick, task_id, *letters[task_id]) for task_id in ids]}


def _send(pick: Choices, task_id: str, name: str, key: str | None) -> Send:
    args = pick.of(("[1]", "[1]", "[2]"))
    payload = TaskSendPayload(
        task_name=name,
        queue_name="default",
        priority=100,
        args_json=args,
        kwargs_json=None,
        # Sent in what is the future here: the age of the call, which is read off the real clock, is nothing.
        sent_at=T0,
        good_until=None,
        enqueue_delay_seconds=pick.of((None, 60)),
        task_options=None,
        enqueue_sha=f"sha {args}",
        idempotency_key=key,
    )
    return Send(task_id, payload)


async def _execute(conn: AsyncConnection[Any], statement: Statement) -> Rows:
    cursor = await conn.execute(statement.text, statement.params, prepare=True)
    return await cursor.fetchall() if statement.params is not None else ()


async def _write(conn: AsyncConnection[Any], sends: list[Send]) -> list[Verdict]:
    return await run_async(enqueue(sends), partial(_execute, conn))


async def _write_all(conn: AsyncConnection[Any], sends: list[Send]) -> list[str] | str:
    """All or none, in a transaction of its own or in the one that is open."""
    is_idle = conn.info.transaction_status is TransactionStatus.IDLE
    steps = (in_transaction if is_idle else in_savepoint)(enqueue_all(sends))
    try:
        return await run_async(steps, partial(_execute, conn))
    except MismatchError as problem:
        return f"{problem.position}: {problem}"


def _cancel(pick: Choices, start: Start) -> Arguments:
    ids = [row.id for row in start.tasks if row.workflow is None] * 4 + [row.id for row in start.tasks] + list(NEW_IDS)
    return {"task_id": pick.of(ids), "include_running": pick.is_so()}


def _one(start: Start, arguments: Arguments) -> set[str]:
    return {arguments["task_id"]}


# The doorbell's words, and workers about themselves


def _word(start: Start, arguments: Arguments) -> set[str]:
    return {f"task:{task_id}" for task_id in arguments["ids"]}


def _sleep(start: Start, arguments: Arguments) -> set[str]:
    return {f"queue:{queue}" for queue in arguments["queues"]}


def _all_words(start: Start, arguments: Arguments) -> set[str]:
    return {topic for topic, _, _ in start.words}


def _words(pick: Choices, start: Start) -> Arguments:
    return {"ids": pick.shuffled("abc")[: pick.of((3, 2, 1))], "holder": "client"}


def _sleeps(pick: Choices, start: Start) -> Arguments:
    return {"worker_id": pick.of(("alpha", "alpha", "beta")), "queues": pick.shuffled(QUEUES)}


_REGISTRATION = {
    **{"age": 5.0, "hostname": "host", "pid": 7, "boot_id": None, "pid_namespace": None, "process_start": 1},
    **{"liveness_key": 1, "sweeping": False, "queues": ["default"], "recovery": {}},
}
_SNAPSHOT = {
    **{"hostname": "host", "pid": 7, "processes": 1, "queues": ["default"], "tasks_running": 1, "tasks_claimed": 1},
    **{"memory_usage_mb": 1.0, "cpu_percent": 1.0, "memory_percent": 1.0, "children_memory_mb": 1.0, "age": 5.0},
    **{"max_claim_batch": 1, "max_claim_per_worker": 1, "cluster_wide_cap": None, "queue_priorities": {}},
    **{"queue_max_concurrency": {}, "recovery_config": {}},
}


def _about_a_worker(columns: Arguments) -> Callable[[Choices, Start], Arguments]:
    return lambda pick, start: {"row": {**columns, "worker_id": pick.of(WORKERS)}}


def _bells(pick: Choices, start: Start) -> Arguments:
    return {"due": [(row.queue, row.id) for row in pick.shuffled(start.tasks)[:2]]}


KINDS: dict[str, Kind] = {
    "claim": Kind(tasks.claim, partial(_claim, capped=False), (tasks.claim,), _in("PENDING"), skips=True, waits=False),
    "counting claim": Kind(
        tasks.claim,
        partial(_claim, capped=True),
        (tasks.claim,),
        _in("PENDING"),
        skips=True,
        counts=True,
        statements=2,
    ),
    "claim_expired": Kind(
        tasks.claim_expired, _takeover, (tasks.claim_expired,), _in("CLAIMED"), skips=True, waits=False
    ),
    "start": Kind(tasks.start, _start, (tasks.start,), _claimed, in_bulk=lambda a: True),
    "complete": _arrow(Complete),
    "fail": _arrow(Fail),
    "retry": _arrow(Retry),
    "requeue": _arrow(Requeue),
    "expire": _arrow(Expire),
    "finalize": _arrow(Complete, Fail, Retry),
    "hand back": _arrow(Complete, Fail, Retry, Requeue, Expire),
    "expire_waiting": Kind(
        tasks.expire_waiting,
        lambda pick, start: {"most": pick.of((500, 1, 2))},
        (tasks.expire_waiting,),
        _in("PENDING"),
        skips=True,
        waits=False,
    ),
    "cancel": Kind(actions.cancel, _cancel, (actions.cancel,), _one, statements=2),
    "send": Kind(_write, _letters, (sends.insert, sends.find), statements=2),
    "send_many": Kind(_write_all, _letters, (sends.insert, sends.find), statements=2),
    "heartbeat": Kind(tasks.heartbeat, _beat, (tasks.heartbeat,), waits=False),
    "renew": Kind(tasks.renew, _renewal, (tasks.renew,), _claimed, skips=True, waits=False),
    "mark_finalizing": Kind(
        tasks.mark_finalizing, _returned, (tasks.mark_finalizing,), _claimed, skips=True, waits=False
    ),
    "announce": Kind(
        results.announce,
        lambda pick, start: {**_words(pick, start), "seconds": pick.of((5.0, 9.0))},
        (results.announce,),
        _word,
    ),
    "withdraw": Kind(results.withdraw, _words, (results.withdraw,), _word),
    "doze": Kind(
        workers.doze,
        lambda pick, start: {**_sleeps(pick, start), "until": timedelta(seconds=30)},
        (workers.doze,),
        _sleep,
    ),
    "rise": Kind(workers.rise, _sleeps, (workers.rise,), _sleep),
    "forget_sleepers": Kind(
        workers.forget_sleepers,
        lambda pick, start: {},
        (workers.forget_sleepers,),
        _all_words,
        skips=True,
        waits=False,
    ),
    "register": Kind(workers.register, _about_a_worker(_REGISTRATION), (workers.register,)),
    "unregister": Kind(workers.unregister, lambda pick, start: {"worker_id": pick.of(WORKERS)}, (workers.unregister,)),
    "snapshot": Kind(workers.snapshot, _about_a_worker(_SNAPSHOT), (workers.snapshot,), waits=False),
    "hold_liveness": Kind(workers.hold_liveness, lambda pick, start: {"key": 1}, (workers.hold_liveness,), waits=False),
    "ring": Kind(tasks.ring, _bells, (tasks.ring,), waits=False),
    "pong": Kind(workers.pong, lambda pick, start: {"payload": "here"}, (workers.pong,), waits=False),
}

_TAKING = ["claim", "counting claim", "claim_expired"]
_ENDING = ["complete", "fail", "retry", "requeue", "finalize", "hand back"]
WORDS = ["announce", "withdraw", "doze", "rise", "forget_sleepers"]
_BEATING = ["heartbeat", "renew", "mark_finalizing"]
# Who is likely to meet whom: the state most rows are in, and the kinds that are about it.
THEMES: dict[str, tuple[str | None, list[str]]] = {
    "waiting": ("PENDING", [*_TAKING[:2] * 2, "expire_waiting", "cancel", "cancel", "send"]),
    "claimed": ("CLAIMED", ["start", "start", "requeue", "expire", "hand back", *_TAKING, *_BEATING, "cancel"]),
    "running": ("RUNNING", [*_ENDING, *_ENDING, "cancel", "cancel", "mark_finalizing", "counting claim"]),
    "sent": (None, ["send", "send", "send_many", "send_many", "cancel", "claim"]),
    "words": (None, WORDS),
    "workers": (None, ["register", "unregister", "snapshot", "hold_liveness", "ring", "pong"]),
    "all": (None, list(KINDS)),
}
