"""The operations around tasks: sending them, the doorbell's words, workers about themselves, and what clears away."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from psycopg.errors import UniqueViolation
from psycopg.pq import TransactionStatus

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.producer.enqueue import (
    SendMismatchError,
    SendOutcome,
    enqueue,
    enqueue_all,
    in_savepoint,
    in_transaction,
    run_async,
)
from horsies.core.store import many, names, notes, retention, sends, watching, workers
from horsies.core.store.sends import Drafts, Rows, Send, Statement, copy
from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import LEFT_TO_ANOTHER, PRUNER, Arguments, Kind, Names, Run, rows_in, word
from tests.proof_pairs.rows import QUEUES, WORKERS, Start
from tests.proof_pairs.stage import T0

SHORT = timedelta(seconds=1)
VIEWERS = ("dashboard", "dashboard", "terminal")

# One id is one send, with its own name and key, though its arguments may differ by mistake; a key may be used by more.
_LETTERS = {
    "n1": ("plain", "k1"),
    "n2": ("plain", "k2"),
    "n3": ("light", None),
    "n4": ("plain", "k2"),
    "n5": ("plain", "k1"),
    "n6": ("light", "k3"),
}


def _letters(pick: Choices, start: Start) -> Arguments:
    """New tasks and old ones sent again, in any order."""
    letters = {**_LETTERS, **{row.id: (row.name, row.key) for row in start.tasks}}
    ids = pick.shuffled(pick.of((list(_LETTERS), list(_LETTERS), list(letters))))[: pick.of((2, 1, 3, 4))]
    return {"sends": [_send(pick, task_id, *letters[task_id]) for task_id in ids]}


def _sent(start: Start, arguments: Arguments) -> set[str]:
    """Others lock what it has written as soon as they see it."""
    return {send.task_id for send in arguments["sends"]} - {row.id for row in start.tasks}


def _new_letters(pick: Choices, start: Start) -> Arguments:
    """New tasks without keys, which may have been written before, unseen, in the order in which they were made."""
    ids = sorted(pick.shuffled(("c1", "c2", "n3"))[: pick.of((2, 1, 3))])
    return {"sends": [_send(pick, task_id, "light", None) for task_id in ids]}


def _repetition(pick: Choices, start: Start) -> Arguments:
    """Any task again; two of them may be given the same new id by mistake."""
    ids = [row.id for row in pick.shuffled(start.tasks)[: pick.of((1, 2))]] or ["none"]
    return {"ids": ids, "new_ids": [pick.of(("r1", "r2")) for _ in ids], "once": pick.is_so()}


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


async def _write(conn: AsyncConnection[Any], sends: list[Send]) -> list[SendOutcome]:
    return await run_async(enqueue(sends), partial(_execute, conn))


async def _write_all(conn: AsyncConnection[Any], sends: list[Send]) -> list[str] | str:
    """All or none, in a transaction of its own or in the one that is open."""
    is_idle = conn.info.transaction_status is TransactionStatus.IDLE
    steps = (in_transaction if is_idle else in_savepoint)(enqueue_all(sends))
    try:
        return await run_async(steps, partial(_execute, conn))
    except SendMismatchError as problem:
        return f"{problem.position}: {problem}"


async def _copy_all(conn: AsyncConnection[Any], sends: list[Send]) -> list[str] | str:
    """All or none; if one of them is there already, the other statement decides."""
    made = [send.payload for send in sends]
    batch = Drafts(
        [send.task_id for send in sends],
        [(_shared(payload), payload.args_json, payload.kwargs_json, payload.enqueue_sha) for payload in made],
    )
    try:
        async with conn.transaction():
            await copy(conn, batch, T0.isoformat())
    except UniqueViolation:
        return await _write_all(conn, sends)
    return batch.ids


def _shared(payload: TaskSendPayload) -> dict[str, Any]:
    return {name: getattr(payload, name) for name in payload.__slots__ if name not in _OWN}


_OWN = ("args_json", "kwargs_json", "enqueue_sha")


def _word(start: Start, arguments: Arguments) -> set[str]:
    return {word(f"task:{task_id}", arguments["holder"]) for task_id in arguments["ids"]}


def _sleep(start: Start, arguments: Arguments) -> set[str]:
    return {word("worker", arguments["worker_id"])}


def _watcher(start: Start, arguments: Arguments) -> set[str]:
    return {word("monitor", arguments["holder"])}


def _all_words(start: Start, arguments: Arguments) -> set[str]:
    return {word(topic, holder) for topic, holder, _ in start.words}


def _words(pick: Choices, start: Start) -> Arguments:
    return {"ids": pick.shuffled("abc")[: pick.of((3, 2, 1))], "holder": "client"}


def _sleeps(pick: Choices, start: Start) -> Arguments:
    return {"worker_id": pick.of(("alpha", "alpha", "beta")), "queues": pick.shuffled(QUEUES)}


_REGISTRATION: Arguments = {
    **dict.fromkeys(("hostname", "boot_id", "pid_namespace")),
    **dict.fromkeys(("age", "pid", "process_start", "liveness_key"), 7),
    "sweeping": False,
    "queues": ["default"],
    "recovery": {},
    "metadata": {},
    "names_hash": "none",  # whose row is skipped if it is locked, and nobody has it here
    "names": None,
    "pause": 300.0,
}
_SNAPSHOT: Arguments = {
    **dict.fromkeys(("hostname", "cluster_wide_cap", "memory_usage_mb", "cpu_percent", "memory_percent")),
    **dict.fromkeys(("age", "pid", "processes", "tasks_running", "tasks_claimed"), 7),
    **dict.fromkeys(("max_claim_batch", "max_claim_per_worker", "children_memory_mb"), 7),
    **{name: {} for name in ("queue_priorities", "queue_max_concurrency", "recovery_config")},
    "queues": ["default"],
}


def _about_a_worker(columns: Arguments) -> Callable[[Choices, Start], Arguments]:
    return lambda pick, start: {"row": {**columns, "worker_id": pick.of(WORKERS)}}


def _turn(pick: Choices, start: Start) -> Arguments:
    return {"worker_id": pick.of(WORKERS), "team": "nobody else's", "every_s": 0.0}


def _worker(start: Start, arguments: Arguments) -> set[str]:
    return {f"worker {arguments['row']['worker_id'] if 'row' in arguments else arguments['worker_id']}"}


def _all_workers(start: Start, arguments: Arguments) -> set[str]:
    return {f"worker {name}" for name in start.workers}


def _always(name: str) -> Names:
    return lambda start, arguments: {name}


async def _prune(conn: AsyncConnection[Any], prune: Run, **arguments: Any) -> Any:
    """As a pruner does it: alone in its transaction, or not at all."""
    async with conn.transaction():
        return await prune(conn, age=SHORT, **arguments) if await retention.try_lock(conn) else LEFT_TO_ANOTHER


def _pruning(name: str, function: Run, names: Names, **arguments: Any) -> Kind:
    def all_names(start: Start, arguments: Arguments) -> set[str]:
        return names(start, arguments) | {PRUNER}

    run = partial(_prune, prune=function, **arguments)
    return Kind(name, run, names=all_names, uses=(retention.try_lock, function), skips=True, waits=False, statements=2)


SEND_KINDS = (
    Kind("send", _write, _letters, _sent, uses=(sends.insert, sends.find), statements=2),
    Kind("send_many", _write_all, _letters, _sent, uses=(sends.insert, sends.find), statements=3),
    Kind("send copied", _copy_all, _new_letters, _sent, uses=(copy, sends.insert, sends.find), statements=4),
    Kind("rerun", many.rerun, _repetition, reads=True),
)
WORD_KINDS = (
    Kind(
        "announce",
        sends.announce,
        lambda pick, start: {**_words(pick, start), "seconds": pick.of((5.0, 9.0))},
        _word,
    ),
    Kind("withdraw", sends.withdraw, _words, _word),
    Kind(
        "announce_monitor",
        watching.announce,
        lambda pick, start: {"holder": pick.of(VIEWERS), "seconds": pick.of((5.0, 9.0))},
        _watcher,
    ),
    Kind("withdraw_monitor", watching.withdraw, lambda pick, start: {"holder": pick.of(VIEWERS)}, _watcher),
    Kind(
        "announce_idle",
        workers.announce_idle,
        lambda pick, start: {**_sleeps(pick, start), "wake_key": 7, "until": timedelta(seconds=30)},
        _sleep,
    ),
    Kind("withdraw_idle", workers.withdraw_idle, _sleeps, _sleep),
    Kind("forget_sleepers", workers.forget_sleepers, names=_all_words, skips=True, waits=False),
)
WORKER_KINDS = (
    Kind(
        "register",
        workers.register,
        _about_a_worker(_REGISTRATION),
        _worker,
        skips=True,
        leaves_out=lambda name: False,
    ),
    Kind(
        "mark_advancing",
        workers.mark_advancing,
        lambda pick, start: {"worker_id": pick.of(WORKERS), "age_s": pick.of((1.0, 9.0)), "flows": ["wf-on"]},
        _worker,
    ),
    Kind("drain", workers.drain, lambda pick, start: {"worker_id": pick.of(WORKERS)}, _worker),
    Kind("unregister", workers.unregister, lambda pick, start: {"worker_id": pick.of(WORKERS)}, _worker),
    Kind("prune_names", names.prune, lambda pick, start: {"age": SHORT, "most": 9}, skips=True, waits=False),
    Kind(
        "delete_row",
        workers.delete_row,
        lambda pick, start: {"worker_id": pick.of(WORKERS)},
        _worker,
        skips=True,
        waits=False,
    ),
    # Two may take the same turn, so each has one of its own here.
    Kind("take_turn", workers.take_turn, _turn, _worker),
    Kind("snapshot", workers.snapshot, _about_a_worker(_SNAPSHOT), waits=False),
    Kind("hold_liveness", workers.hold_liveness, lambda pick, start: {"key": 1}, waits=False),
    Kind("pong", workers.pong, lambda pick, start: {"payloads": ["here"]}, waits=False),
)


def _ended_and_nodes(start: Start, arguments: Arguments) -> set[str]:
    """With a task goes what its node knows of it."""
    ended = rows_in("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")(start, arguments)
    return ended | {f"node {task_id}" for task_id in ended}


def _workflows_and_nodes(start: Start, arguments: Arguments) -> set[str]:
    ended = [node for workflow in ("wf-done", "wf-old") for node in start.nodes(workflow)]
    return {"horsies_workflows"} | {f"node {node['node_id']}" for node in ended}


PRUNE_KINDS = (
    _pruning("prune_tasks", retention.prune_tasks, _ended_and_nodes),
    _pruning("prune_heartbeats", retention.prune_heartbeats, _always("horsies_heartbeats"), longest=SHORT),
    _pruning("prune_logs", notes.prune_logs, _always("horsies_task_logs"), most=9),
    _pruning("prune_worker_states", retention.prune_worker_states, _always("horsies_worker_states")),
    _pruning("prune_rollup", retention.prune_rollup, _always("horsies_rollup")),
    _pruning("prune_audit", retention.prune_audit, _always("horsies_audit")),
    _pruning("prune_workers", retention.prune_workers, _all_workers),
    _pruning("prune_workflows", retention.prune_workflows, _workflows_and_nodes),
)
