"""What is done to have its plan pinned: a call of the store for a full batch, and what that may cost. The bounds are
about half as much again as was measured on PostgreSQL 15 and 18 for a batch of 200 without heap-only updates (whether
there is room for them depends on who else is looking); a walk through a large table costs several times as much.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg import AsyncConnection

from horsies.core.brokers import actions
from horsies.core.models.recovery import RecoveryConfig, WorkerRecoveryConfig
from horsies.core.models.tasks import TaskSendPayload
from horsies.core.sql import texts
from horsies.core.store import holds, many, recovery, retention, rollup, sends, task_reads, tasks, workers
from horsies.core.store.holds import Beat
from horsies.core.store.retention import Choice
from horsies.core.store.tasks import Claimant, ClaimOrder, Seats
from horsies.core.store.workers import WHENEVER, Gone
from horsies.core.tasks.moves import Claim, Complete, Expire, Fail, InFlight, Requeue, Retry
from horsies.core.types.status import TaskStatus
from horsies.core.worker.config import identify
from tests.store.plan_states import BATCH, GROUPS, IN_FLIGHT, QUEUES, SOWN, ids

ME = Claimant("me", timedelta(seconds=60), enrolled=False)
EVERYWHERE = [*QUEUES, "default"]
ALL_IN_FLIGHT = len(GROUPS) * IN_FLIGHT + SOWN
DAY = timedelta(days=1)
POLICY, SWEEPING = RecoveryConfig(), WorkerRecoveryConfig()

PKEY, PENDING, OWNER = "horsies_tasks_pkey", "horsies_tasks_pending_idx", "horsies_tasks_owner_idx"
DEADLINE, AGE = "horsies_tasks_deadline_idx", "horsies_tasks_terminal_age_idx"
KEY = "horsies_tasks_idempotency_idx"

Db = AsyncConnection[Any]


@dataclass(frozen=True)
class Act:
    """A call, the statement it is about, and the bounds of that: rows of tasks, buffers, rows in one sort, rows of any
    other table."""

    statement: str
    run: Callable[[Db], Awaitable[object]]
    indexes: set[str]
    rows: int
    buffers: int
    sorts: int = 2 * BATCH
    others: int = 3 * BATCH
    settings: tuple[str, ...] = ("by index",)


def order(queues: list[str], *, cap: int | None = None) -> ClaimOrder:
    count = len(queues)
    return ClaimOrder(queues, [BATCH] * count, [cap] * count, BATCH, BATCH, None, True, [])


def claims(letter: str) -> list[Claim]:
    return [Claim(task_id, 1) for task_id in ids(letter)]


def failures() -> list[Fail]:
    return [Fail(claim, "r", "CODE") for claim in claims("e")]


def bulk(statement: str, run: Callable[[Db], Awaitable[object]], buffers: int) -> Act:
    """A batch of named rows, moved by the stages that have sessions of their own, or share the others'."""
    return Act(statement, run, {PKEY}, 2 * BATCH, buffers, settings=("in bulk", "by index"))


def move(statement: str, moves: Callable[[], list[Any]], buffers: int) -> Act:
    return bulk(statement, lambda conn: tasks.apply(conn, "me", moves()), buffers)


async def find(conn: Db) -> object:
    """Every second id is there, and every key."""
    payloads = [
        TaskSendPayload(
            task_name="t",
            queue_name="q",
            priority=100,
            args_json=None,
            kwargs_json=None,
            sent_at=datetime.now(UTC),
            good_until=None,
            enqueue_delay_seconds=None,
            task_options=None,
            enqueue_sha="",
            idempotency_key=f"e{n}",
        )
        for n in range(1, BATCH + 1)
    ]
    wanted = [task_id if n % 2 else "nobody" for n, task_id in enumerate(ids("d"))]
    return await conn.execute(*sends.find(map(sends.Send, wanted, payloads)))


def beats() -> list[Beat]:
    return [Beat(claim, True, "s", 1) for claim in claims("e")]


def two_kinds() -> list[Any]:
    """A batch that is locked as a whole before its parts are moved."""
    return [*(Complete(claim, "r") for claim in claims("e")[: BATCH // 2]), *failures()[BATCH // 2 :]]


def silent() -> list[InFlight]:
    """As the look has found them."""
    rest = ("t", "default", None, 0, 0, False, None, False, None, None, None, None, None, 3600.0)
    return [InFlight(task_id, 1, "dead", TaskStatus.RUNNING, *rest) for task_id in ids("h")]


def by_id(statement: str, run: Callable[[Db], Awaitable[object]], buffers: int) -> Act:
    return Act(statement, run, {PKEY}, 2 * BATCH, buffers)


def beside(statement: str, run: Callable[[Db], Awaitable[object]], buffers: int) -> Act:
    """One that does not read tasks; other tables are small enough that sorting some of one may be the best plan."""
    return Act(statement, run, set(), 0, buffers, sorts=10_000, others=12_000)


def stale(status: TaskStatus) -> Act:
    return Act(
        "tasks/find_stale",
        lambda conn: recovery.find_stale(conn, status, POLICY, SWEEPING, most=BATCH),
        {OWNER},
        2 * ALL_IN_FLIGHT,
        # Each that may be dead is looked up among the heartbeats and the workers.
        3 * ALL_IN_FLIGHT,
        sorts=ALL_IN_FLIGHT,
        others=ALL_IN_FLIGHT,
    )


PREPARED = {
    "claim": Act("tasks/claim", lambda conn: tasks.claim(conn, ME, order(EVERYWHERE)), {PENDING}, 3 * BATCH, 5_500),
    "claim with seats": Act(
        "tasks/claim",
        lambda conn: tasks.claim(
            conn, ME, order(EVERYWHERE), seats=Seats([1, 2] * BATCH, [7, 8], ["p", "q"], "h", 2, texts(["t"]))
        ),
        {PENDING},
        3 * BATCH,
        5_500,
    ),
    "claim with caps": Act(
        "tasks/claim",
        lambda conn: tasks.claim(conn, ME, order(EVERYWHERE, cap=ALL_IN_FLIGHT + BATCH)),
        {PENDING},
        3 * BATCH,
        6_000,
    ),
    "claim of nodes": Act(
        "tasks/claim", lambda conn: tasks.claim(conn, ME, order(["nodes"])), {PENDING}, 3 * BATCH, 5_000
    ),
    "busy queues": Act("tasks/busy_queues", tasks.busy_queues, {PENDING}, 3 * BATCH, 1_500),
    "next_due": Act(
        "tasks/next_due",
        lambda conn: tasks.look_ahead(conn, EVERYWHERE, 2 * DAY.total_seconds()),
        {PENDING, OWNER, DEADLINE},
        ALL_IN_FLIGHT + 3 * BATCH,
        5_500,
    ),
    "start": bulk(
        "tasks/start",
        lambda conn: tasks.start(conn, "me", "h", claims("d"), [1] * BATCH, ["p"] * BATCH),
        6_500,
    ),
    "complete": move("tasks/complete", lambda: [Complete(claim, "r") for claim in claims("e")], 7_500),
    "fail": move("tasks/fail", failures, 10_500),
    "retry": move("tasks/retry", lambda: [Retry(fail.claim, 1.0, fail) for fail in failures()], 8_000),
    "lock": move("tasks/lock", two_kinds, 1_600),
    "requeue": move("tasks/requeue", lambda: [Requeue(claim) for claim in claims("d")], 7_500),
    "expire": move("tasks/expire", lambda: [Expire(claim, "r") for claim in claims("f")], 8_000),
    "heartbeat": by_id("tasks/heartbeat", lambda conn: holds.heartbeat(conn, "me", "h", beats()), 2_000),
    "renew": by_id("tasks/renew", lambda conn: holds.renew(conn, ME, claims("d"), DAY), 7_500),
    "mark_finalizing": by_id(
        "tasks/mark_finalizing", lambda conn: holds.mark_finalizing(conn, "me", claims("e")), 7_500
    ),
    "cancel": by_id("tasks/cancel", lambda conn: actions.act(conn, actions.Cancel(True), ids("e")[:1]), 200),
    "cancel many": by_id("tasks/cancel", lambda conn: many.cancel(conn, ids("e"), "r", include_running=True), 11_000),
    "lock_stale": by_id("tasks/lock_stale", lambda conn: recovery.lock_stale(conn, silent()), 3_000),
    "lock_claims": by_id("tasks/lock_claims", lambda conn: recovery.lock_claims(conn, silent()), 2_000),
    "jobs": by_id("tasks/jobs", lambda conn: task_reads.jobs(conn, ids("d")), 1_600),
    "neighbours": Act(
        "workers/neighbours", lambda conn: workers.neighbours(conn, identify()), {OWNER}, ALL_IN_FLIGHT, 2_500
    ),
    "delete_row": Act("workers/delete_row", lambda conn: workers.delete_row(conn, "alive"), {OWNER}, 2 * BATCH, 300),
    "results": by_id("tasks/results", lambda conn: sends.ended(conn, ids("a")), 1_600),
    "find_sent": Act("tasks/find_sent", find, {PKEY, KEY}, 3 * BATCH, 2_500),
    "announce": beside("waiting/announce", lambda conn: sends.announce(conn, ids("e"), "h", 1.0), 2_000),
    "withdraw": beside("waiting/withdraw", lambda conn: sends.withdraw(conn, ids("e"), "h"), 1_200),
}

# Planned anew each time, with the sizes of the moment.
RARE = {
    "claim_expired": Act(
        "tasks/claim_expired",
        lambda conn: tasks.claim_expired(conn, ME, EVERYWHERE, BATCH),
        {OWNER, PKEY},
        ALL_IN_FLIGHT + 2 * BATCH,
        5_500,
        sorts=ALL_IN_FLIGHT,
    ),
    "expire_waiting": Act(
        "tasks/expire_waiting", lambda conn: recovery.expire_waiting(conn, BATCH), {DEADLINE}, 3 * BATCH, 5_000
    ),
    "change_queue": by_id(
        "tasks/change_queue",
        lambda conn: many.change_queue(conn, [f"b{n:035}" for n in range(1, 201)], "other", 3),
        9_000,
    ),
    "run_now": by_id("tasks/run_now", lambda conn: many.run_now(conn, [f"b{n:035}" for n in range(1, 201)]), 9_000),
    "states": by_id("tasks/states", lambda conn: many.states(conn, ids("e")), 1_600),
    "rerun": by_id(
        "monitoring/rerun", lambda conn: many.rerun(conn, ids("a"), [f"new{n}" for n in range(BATCH)], once=True), 9_000
    ),
    "unknown claims": Act(
        "tasks/unknown_claims", lambda conn: holds.unknown_claims(conn, "me", claims("e")), {OWNER}, 3 * IN_FLIGHT, 300
    ),
    "find_stale claimed": stale(TaskStatus.CLAIMED),
    "find_stale running": stale(TaskStatus.RUNNING),
    "known": Act(
        "workers/known", lambda conn: workers.known(conn, ["dead", "gone", "nobody"]), {OWNER}, 2 * BATCH, 300
    ),
    "held": Act(
        "tasks/held",
        lambda conn: workers.held(
            conn, [Gone("dead", WHENEVER, 300.0, 300.0), Gone("gone", None)], until=WHENEVER, most=BATCH
        ),
        {OWNER},
        3 * IN_FLIGHT,
        6_000,
        sorts=2 * IN_FLIGHT,
    ),
    "dead": Act("workers/dead", lambda conn: workers.dead(conn, "me", SWEEPING, POLICY), {OWNER}, ALL_IN_FLIGHT, 6_000),
    "abandoned": Act(
        "workers/abandoned", lambda conn: workers.abandoned(conn, "me", POLICY), {OWNER}, ALL_IN_FLIGHT, 6_000
    ),
    "prune": Act(
        "tasks/prune",
        lambda conn: retention.prune_tasks(conn, 30 * DAY, portion=retention.Portion(BATCH)),
        {PKEY, AGE},
        3 * BATCH,
        4_000,
    ),
    "purge": Act(
        "tasks/prune",
        lambda conn: retention.prune_tasks(
            conn, 30 * DAY, portion=retention.Portion(BATCH), choice=Choice(("FAILED",), ("q",), ("t",), False)
        ),
        {AGE},  # it steps over all that it looks at, so there is nothing to lock
        3 * BATCH,
        4_000,
    ),
    "count_ended": Act(
        "tasks/count_ended",
        lambda conn: retention.count_ended(conn, 30 * DAY, Choice(), most=BATCH),
        {AGE},
        2 * BATCH,
        4_000,
    ),
    "waiting": Act(
        "tasks/waiting", lambda conn: retention.waiting(conn, "hog", DAY, most=BATCH), {PENDING}, 2 * BATCH, 1_000
    ),
    "prune_heartbeats": beside(
        "tasks/prune_heartbeats", lambda conn: retention.prune_heartbeats(conn, DAY, DAY, most=BATCH), 1_500
    ),
    "prune_states": beside(
        "workers/prune_states", lambda conn: retention.prune_worker_states(conn, 7 * DAY, most=BATCH), 1_500
    ),
    # At least 50 of each queue are counted; a queue is walked from priority to priority.
    "gauges": Act(
        "rollup/gauges",
        lambda conn: rollup.note_gauges(conn, most=BATCH),
        {PENDING, OWNER},
        50 * len(QUEUES),
        4_000,
    ),
    "prune_rollup": beside("rollup/prune", lambda conn: retention.prune_rollup(conn, 7 * DAY, most=BATCH), 1_500),
    "prune_audit": beside("audit/prune", lambda conn: retention.prune_audit(conn, 90 * DAY, most=BATCH), 1_500),
    "prune_workers": Act(
        "workers/prune", lambda conn: retention.prune_workers(conn, most=BATCH), {OWNER}, ALL_IN_FLIGHT, 2_500
    ),
    "prune_workflows": beside(
        "workflows/prune",
        lambda conn: retention.prune_workflows(conn, 30 * DAY, portion=retention.Portion(BATCH)),
        8_000,
    ),
}

ACTS = {**PREPARED, **RARE}
