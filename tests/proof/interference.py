"""What others do in a story: senders, operators, whoever recovers the tasks of the dead, time, and stale statements of
workers that were presumed dead.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from psycopg import sql

from horsies.core.brokers import actions
from horsies.core.db.pool import Connection
from horsies.core.models.tasks import RetryPolicy, TaskOptions, TaskSendPayload
from horsies.core.producer.enqueue import SendMismatchError, Sent, enqueue, enqueue_all, in_transaction, run_async
from horsies.core.producer.envelope import enqueue_sha
from horsies.core.recovery.decide import not_charged
from horsies.core.store import holds, recovery, tasks
from horsies.core.store.holds import Beat
from horsies.core.store.sends import Rows, Send, Statement
from horsies.core.store.tasks import Claimant, Claimed
from horsies.core.tasks.moves import Complete, Expire, Fail, Move, Requeue, Retry
from horsies.core.worker import finalize
from horsies.core.worker.in_hand import HeldTask
from tests.proof.rows import Task
from tests.proof.story import Story
from tests.proof.values import Died, Hold, Policy, Request, Wish
from tests.proof.worker import HOST, MAX_AGE
from tests.proof.working import claim_of

FAR_PAST = -100.0  # seconds; far enough from every retry that may fall due


def request(story: Story, task_id: str, wish: Wish) -> Request:
    """A send as its caller makes it, with the fingerprint that the real code gives it."""
    sent_at = datetime.now(UTC) - timedelta(seconds=wish.age)
    options = TaskOptions(_policy(wish.policy)).to_json()
    made = Request(task_id, story.world.step, sha="", sent_at=sent_at, task_options=options, wish=wish)
    return replace(made, sha=enqueue_sha(_payload(made)))


def _policy(policy: Policy | None) -> RetryPolicy | None:
    if policy is None:
        return None
    codes: list[Any] = list(policy.codes)
    if policy.is_exponential:
        base = policy.intervals[0]
        return RetryPolicy.exponential(
            base, max_retries=policy.max_retries, auto_retry_for=codes, jitter=policy.jitter
        )  # fmt: skip
    return RetryPolicy.fixed(list(policy.intervals), auto_retry_for=codes, jitter=policy.jitter)


def _payload(made: Request) -> TaskSendPayload:
    wish = made.wish
    called = made.sent_at + timedelta(seconds=wish.age)
    return TaskSendPayload(
        task_name=wish.task_name,
        queue_name=wish.queue_name,
        priority=wish.priority,
        args_json=wish.args,
        kwargs_json=None,
        sent_at=made.sent_at,
        good_until=None if wish.deadline is None else called + timedelta(seconds=wish.deadline),
        enqueue_delay_seconds=wish.delay,
        task_options=made.task_options,
        enqueue_sha=made.sha,
        flags_json=json.dumps(dict(wish.flags)) if wish.flags else None,
        idempotency_key=wish.key,
    )


async def send(story: Story, requests: Sequence[Request], fault: int | None) -> None:
    """Send, or send again what may or may not have arrived (T-52)."""
    sends = [Send(made.task_id, _payload(made)) for made in requests]
    answer = await story.ask("client", fault, lambda conn: run_async(enqueue(sends), partial(_execute, conn)))
    if answer.is_committed or fault:  # the insert is a transaction of its own, a later look for the others another
        expected = [story.world.send(made) for made in requests]
        if answer.is_committed:
            found = [verdict.task_id if isinstance(verdict, Sent) else None for verdict in answer.get()]
            story.demand(found == expected, f"sent {found}, should be {expected}")
        story.committed(synchronously=True)
    story.unconfirmed = [made for made in story.unconfirmed if made not in requests]
    if not answer.is_heard:
        story.unconfirmed += requests


async def send_all(story: Story, requests: Sequence[Request], fault: int | None) -> None:
    """All of them, or none."""
    sends = [Send(made.task_id, _payload(made)) for made in requests]
    answer = await story.ask("client", fault, lambda conn: _all_or_none(conn, sends))
    if answer.is_committed:
        before = story.world.copy()
        expected = [story.world.send(made) for made in requests]
        if None in expected:
            story.world, expected = before, []
        story.demand(answer.value == expected, f"sent {answer.value}, should be {expected}")
        story.committed(synchronously=True)


async def _all_or_none(conn: Connection, sends: Sequence[Send]) -> list[str]:
    try:
        return await run_async(in_transaction(enqueue_all(sends)), partial(_execute, conn))
    except SendMismatchError:
        return []


async def _execute(conn: Connection, statement: Statement) -> Rows:
    cursor = await conn.execute(statement.text.encode(), statement.params, prepare=True)
    return await cursor.fetchall() if statement.params is not None else ()


async def cancel(story: Story, task_id: str, fault: int | None, *, include_running: bool) -> None:
    answer = await story.ask(
        "client", fault, lambda conn: actions.act(conn, actions.Cancel(include_running), [task_id])
    )  # fmt: skip
    if answer.is_committed or fault:  # a look for the reason, when nothing was cancelled, comes after the commit
        expected = story.world.cancel(task_id, include_running=include_running)
        if answer.is_committed:
            done, _ = answer.get()
            was = done[task_id].previous_status.value if task_id in done else None
            story.demand(was == expected, f"cancelled from {was}, should be {expected}")
        story.committed(synchronously=True)


async def expire_waiting(story: Story, most: int, fault: int | None) -> None:
    answer = await story.ask("client", fault, lambda conn: recovery.expire_waiting(conn, most))
    if answer.is_committed:
        expected = story.world.expire_waiting(most, story.stored.instants("good_until"))
        story.demand(len(answer.get()) == expected, f"expired {answer.value}, should be {expected}")
        story.committed(synchronously=True)


async def hand_back(story: Story, hold: Hold, fault: int | None) -> None:
    """Someone gives back what a worker presumed dead had not begun (R-19, R-103), or lets it expire."""
    task = story.world.tasks[hold.task_id]
    is_late = task.status == "CLAIMED" and task.good_until is not None and task.good_until.is_past
    move = finalize.of_deadline(_held(story, hold), hold.owner) if is_late else Requeue(claim_of(hold))
    answer = await story.ask("client", fault, lambda conn: tasks.apply(conn, hold.owner, [move]))
    if answer.is_committed:
        has_moved = story.world.expire(hold) if is_late else story.world.requeue(hold)
        story.demand(has_moved and answer.value == {hold.task_id}, f"handed back {answer.value} of {hold}")
        story.committed(synchronously=True)


async def recover(story: Story, hold: Hold, fault: int | None, delay: float | None) -> None:
    """Someone takes a running task from a worker presumed dead: R-20, or with a delay R-50."""
    held, pid = _held(story, hold), story.world.tasks[hold.task_id].worker_pid or 0
    move = finalize.of_crash(held, hold.owner, HOST, pid, "no heartbeat for 301 s")
    if delay is not None:
        crash = move.otherwise if isinstance(move, Retry) else move
        assert isinstance(crash, Fail)
        move = not_charged(crash, delay)
    answer = await story.ask("client", fault, lambda conn: tasks.apply(conn, hold.owner, [move]))
    if answer.is_committed:
        has_moved = story.world.end(hold, Died(hold.owner, HOST, pid, delay))
        story.demand(has_moved and answer.value == {hold.task_id}, f"recovered {answer.value} of {hold}")
        story.committed(synchronously=True)


def _held(story: Story, hold: Hold) -> HeldTask:
    """The task as whoever finds it reads it from its row."""
    row = {"place": 0, "has_deadline": False, **story.row(hold.task_id)}
    return HeldTask(Claimed(**{name: row[name] for name in Claimed._fields if name in row}), False, 0, claim_of(hold))


# Time

LAPSE = "the lease of a claim runs out"
DEADLINE = "a deadline passes"
AGE = "a claim grows old"
PASSING: dict[str, tuple[float, tuple[str, ...]]] = {
    LAPSE: (-1.0, ("claim_expires_at",)),
    DEADLINE: (FAR_PAST, ("good_until",)),
    "a delay is over": (-1.0, ("enqueued_at",)),
    "a retry is due": (-1.0, ("enqueued_at", "next_retry_at")),
    AGE: (-1000.0, ("claimed_at",)),
}


def may_pass(task: Task, what: str) -> bool:
    """Is there such an instant, and does it lie ahead?"""
    if task.status not in ("PENDING", "CLAIMED", "RUNNING"):
        return False
    instants = [getattr(task, column) for column in PASSING[what][1]]
    return None not in instants and (what == AGE or not all(i.is_past for i in instants))


async def pass_time(story: Story, task_id: str, what: str) -> None:
    """Time passes for this row only. Not synced, so that it makes no other commit safe."""
    seconds, columns = PASSING[what]
    instant = sql.SQL("clock_timestamp() + make_interval(secs => {})").format(seconds)
    settings = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(name), instant) for name in columns)
    statement = sql.SQL(
        "UPDATE horsies_tasks SET {} WHERE id = {} RETURNING (SELECT set_config('synchronous_commit', 'off', TRUE))"
    )
    watch = await story.server.connection("watch")
    await watch.execute(statement.format(settings, task_id))
    story.world.shift(task_id, seconds, *columns)
    story.committed(synchronously=False)


# Stale statements

STATEMENTS = ("start", "complete", "fail", "retry", "requeue", "expire", "heartbeat", "renew", "mark_finalizing")


async def say_late(story: Story, hold: Hold, statement: str) -> None:
    """A worker that was away speaks up with what it believes to hold; if that is not so, nothing happens."""
    if _would_match(story, hold, statement):
        return
    story.tally["stale statements"] += 1
    answer = await story.ask("zombie", None, _late(hold, statement))
    story.demand(not answer.value, f"{statement} of {hold} changed {answer.value}")


def _would_match(story: Story, hold: Hold, statement: str) -> bool:
    statuses = {
        "start": ("CLAIMED",),
        "expire": ("CLAIMED",),
        "renew": ("CLAIMED",),
        "heartbeat": ("CLAIMED", "RUNNING"),
    }
    task = story.world.holds(hold, *statuses.get(statement, ("RUNNING",)))
    if statement == "requeue":
        task = story.world.holds(hold, "CLAIMED", "RUNNING")
    if task is None:
        return False
    is_late = task.good_until is not None and task.good_until.is_past
    return is_late if statement == "expire" else not is_late if statement == "start" else True


def _late(hold: Hold, statement: str) -> Callable[[Connection], Awaitable[object]]:
    claim, owner = claim_of(hold), hold.owner
    if statement == "start":
        return lambda conn: tasks.start(conn, owner, HOST, [claim], [9], ["late"])
    if statement == "heartbeat":
        return lambda conn: holds.heartbeat(conn, owner, HOST, [Beat(claim, True, owner, 9)])
    if statement == "renew":
        return lambda conn: holds.renew(conn, Claimant(owner, timedelta(seconds=77), False), [claim], MAX_AGE)
    if statement == "mark_finalizing":
        return lambda conn: holds.mark_finalizing(conn, owner, [claim])
    fail = Fail(claim, '{"err":{}}', "LATE")
    moves: dict[str, Move] = {
        "complete": Complete(claim, '{"ok":"late"}'),
        "fail": fail,
        "retry": Retry(claim, 0.0, otherwise=fail),
        "requeue": Requeue(claim),
        "expire": Expire(claim, '{"err":{}}'),
    }
    return lambda conn: tasks.apply(conn, owner, [moves[statement]])
