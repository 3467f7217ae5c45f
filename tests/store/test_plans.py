"""Which index serves which statement, and how much of a table it reads (D-12): the store's own functions, run and taken
back, on tables in several states, with generic and custom plans, before and after ANALYZE, and with the settings of the
sessions that run them. What is pinned is the shape: the indexes used, that no growing table is read as a whole, that
nothing but the batch is sorted, and that rows and buffers read are bounded by the batch and not by the table.

A session keeps a generic plan until the next ANALYZE, also when the flood comes meanwhile; so some are made on an empty
or a small table and looked at when it has filled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX, IN_BULK
from horsies.core.sql import load
from tests.conftest import fresh_database
from tests.store import plan_states as states
from tests.store.plan_acts import ACTS, EVERYWHERE, PREPARED, Act
from tests.store.plan_reading import Explainer, Plan, SessionCut, explaining
from tests.store.plan_states import BATCH, DEEP

pytestmark = pytest.mark.usefixtures("superuser")

STATES = {
    "empty": (),
    "deep": (states.FINISHED, states.PENDING, states.NODES, states.RECORDS),
    "overdue": (states.OVERDUE, states.BEHIND),
    "future": (states.FUTURE, states.AMONG),
    "paused": (states.PAUSED, states.BEHIND),
}
FLOOD = 20_000
# These only read and lock a batch. They come after the others, when the versions of rows that those have left, and that
# an older server keeps for longer, are cleared away.
SWEPT = {"lock", "jobs"}
# It finds the rows that most others change, with all versions of them; so it comes last, after the same.
REQUEUED = {"requeue"}
KEPT = ["kept from nothing", "kept from nothing, analysed", "kept from little, analysed"]
SETTINGS = {"by index": BY_INDEX, "in bulk": IN_BULK}
# Not held by their age, or so small that nobody cares.
SMALL = {"horsies_workers", "horsies_waiting", "horsies_meta"}
TASKS = "horsies_tasks"
OTHERS = [
    f"horsies_{name}"
    for name in ("task_attempts", "heartbeats", "worker_states", "workflows", "workflow_tasks", "rollup", "audit")
]

COUNTED = [*EVERYWHERE, "*"]  # or the first claim under a cap would take nothing, and then count
# What cannot be claimed is passed over in the index, but for the deadline, which no order serves beside the priority:
# overdue tasks are looked at until they are expired, which is why that is done often.
PASSED_OVER = {("overdue", name): DEEP for name in ("claim", "claim with caps", "claim with seats")}


TRIES = 3  # for plans that shall be kept


@dataclass(frozen=True)
class Told:
    """The plans of one act under some settings."""

    how: str
    plans: list[Plan]


class NotKept(AssertionError):
    """A plan was made anew. Sessions that are behind with the news of the whole server forget all plans, and other
    tests create tables there; this is not what the state is about."""


class Shelf:
    """Builds each state when its first test asks, and keeps the plans. If a plan or a session was lost, all begins
    again."""

    def __init__(self, server_url: str, template: str, stack: ExitStack) -> None:
        self._server_url = server_url
        self._template = template
        self._stack = stack
        self._told: dict[str, dict[str, list[Told]]] = {}
        self.urls: dict[str, str] = {}

    def told(self, state: str, act: str) -> list[Told]:
        if state not in self._told:
            self._told[state] = {}  # a state that cannot be built is not tried again for every act
            self._told[state] = self._built(state)
        return self._told[state][act]

    def _built(self, state: str) -> dict[str, list[Told]]:
        for left in reversed(range(TRIES)):
            url = self._stack.enter_context(fresh_database(self._server_url, self._template))
            self.urls[state] = url
            try:
                return asyncio.run((keep_and_fill if state in KEPT else fill_and_look)(url, state))
            except (NotKept, SessionCut):
                if not left:
                    raise
        raise AssertionError("not reached")


@pytest.fixture(scope="module")
def shelf(server_url: str, template: str) -> Iterator[Shelf]:
    with ExitStack() as stack:
        yield Shelf(server_url, template, stack)


async def fill_and_look(url: str, state: str) -> dict[str, list[Told]]:
    """Every act with generic and custom plans, without statistics and with them."""
    told: dict[str, list[Told]] = {name: [] for name in ACTS}
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await undisturbed(conn)
        if state != "empty":
            await states.fill(conn, *STATES[state])
        await conn.execute(load("caps/start"), {"queues": COUNTED})
        for statistics in ("fresh", "analysed"):
            if statistics == "analysed":
                await conn.execute("VACUUM ANALYZE")
            for acts in (told.keys() - SWEPT - REQUEUED, SWEPT, REQUEUED):
                if acts in (SWEPT, REQUEUED):
                    await conn.execute("VACUUM horsies_tasks")
                for mode in ("generic", "custom"):
                    async with sessions(url, mode) as open_sessions:
                        await look(open_sessions, f"{statistics}, {mode}", {n: told[n] for n in told if n in acts})
    return told


async def keep_and_fill(url: str, state: str) -> dict[str, list[Told]]:
    """Generic plans that were made while the table was small, after it has filled. A VACUUM would change them too, so
    those that want one come first."""
    told: dict[str, list[Told]] = {name: [] for name in sorted(PREPARED, key=lambda name: name not in SWEPT)}
    async with (
        await AsyncConnection.connect(url, autocommit=True) as conn,
        sessions(url, "generic") as open_sessions,
    ):
        await undisturbed(conn)
        # The claim that would do so loses its plan.
        await conn.execute(load("caps/start"), {"queues": COUNTED})
        if "little" in state:
            await states.sow(conn)
        if "analysed" in state:
            await conn.execute("VACUUM ANALYZE")
        small: dict[str, list[Told]] = {name: [] for name in PREPARED}
        await look(open_sessions, "small", small)
        await states.fill(conn, states.FINISHED, states.PENDING, states.NODES, rows=FLOOD)
        await look(open_sessions, "generic", told)
    for name in PREPARED:
        before, after = ([main_plan(name, one).top["Total Cost"] for one in looked[name]] for looked in (small, told))
        if before != after:
            raise NotKept(f"the plan of {name} was not kept: its costs were {before} and are {after}")
    return told


async def undisturbed(conn: AsyncConnection[Any]) -> None:
    """Nobody else analyses these tables."""
    cursor = await conn.execute("SELECT relname FROM pg_class WHERE relname LIKE 'horsies%' AND relkind = 'r'")
    for (name,) in await cursor.fetchall():
        await conn.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)".encode())


@asynccontextmanager
async def sessions(url: str, mode: str) -> AsyncIterator[dict[str, Explainer]]:
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(explaining(url, options, f"force_{mode}_plan"))
            for name, options in SETTINGS.items()
        }


async def look(open_sessions: dict[str, Explainer], how: str, told: dict[str, list[Told]]) -> None:
    for name in told:
        act = ACTS[name]
        for settings in act.settings:
            told[name].append(Told(f"{how}, {settings}", await open_sessions[settings].plans(act.run)))


def pinned(state: str, name: str, act: Act, told: Told) -> Iterator[str]:
    """What is wrong with these plans."""
    passed_over = PASSED_OVER.get((state, name), 0)
    for plan in told.plans:
        if found := plan.whole_scans - SMALL:
            yield f"{told.how}: {plan.name} reads all of {sorted(found)}"
    for plan in (plan for plan in told.plans if plan.name == act.statement):
        for problem in (
            not goes_by(plan, act, state) and f"goes by {sorted(plan.indexes(TASKS))}",
            plan.rows(TASKS) > act.rows + passed_over and f"looks at {plan.rows(TASKS)} tasks",
            any(plan.rows(table) > act.others for table in OTHERS) and f"looks at {[plan.rows(t) for t in OTHERS]}",
            plan.buffers > act.buffers + passed_over / 10 and f"reads {plan.buffers} buffers",
            plan.sorted > act.sorts and f"sorts {plan.sorted} rows",
            # Joined in memory with itself, without a nested loop to look its rows up: no more than each with each.
            plan.mismatches > (BATCH**2 if "by index" in told.how else 0) and f"compares {plan.mismatches} pairs",
        ):
            if problem:
                yield f"{told.how}: {problem}"


def goes_by(plan: Plan, act: Act, state: str) -> bool:
    """Where there is nothing one index is as good as another; where there is all, each part of a statement is run."""
    used = plan.indexes(TASKS)
    return state == "empty" or used == act.indexes or (state != "deep" and used < act.indexes)


async def test_only_a_session_that_was_cut_is_told_apart(database_url: str) -> None:
    """Whatever else a statement fails with fails the test."""
    async with explaining(database_url, "", "auto") as session:
        with pytest.raises(psycopg.OperationalError, match="lock timeout"):
            await session.plans(
                lambda conn: conn.execute("DO $$ BEGIN RAISE lock_not_available USING MESSAGE = 'lock timeout'; END $$")
            )
        with pytest.raises(SessionCut):
            await session.plans(lambda conn: conn.execute("SELECT pg_terminate_backend(pg_backend_pid())"))


@pytest.mark.parametrize("state", [*STATES, *KEPT])
def test_d12_the_plans_in(shelf: Shelf, state: str) -> None:
    wrong = []
    for name in PREPARED if state in KEPT else ACTS:
        act, seen = ACTS[name], shelf.told(state, name)
        if not all(any(plan.name == act.statement for plan in told.plans) for told in seen):
            wrong.append(f"{name} was not run")
        wrong += [f"{name}: {problem}" for told in seen for problem in pinned(state, name, act, told)]
    assert wrong == []


def test_d12_the_states_are_what_they_say(shelf: Shelf) -> None:
    """Or nothing above would mean anything: the batches are there, and so is what has to be passed over."""
    full = ["claim", "claim_expired", "start", "complete", "find_stale claimed", "find_stale running"]
    for state, name in [*product(["deep", "overdue", "future"], full), *product(KEPT, ["claim", "start", "complete"])]:
        for told in shelf.told(state, name):
            assert main_plan(name, told).top["Actual Rows"] == BATCH, (state, name, told.how)
    assert all(main_plan("claim", told).rows(TASKS) > DEEP for told in shelf.told("overdue", "claim"))


def main_plan(name: str, told: Told) -> Plan:
    [plan] = [plan for plan in told.plans if plan.name == ACTS[name].statement]
    return plan


LOOKUPS = {
    "is_waiting AND queue_name = 'hog' ORDER BY priority, enqueued_at, id LIMIT 10": "pending_idx",
    "claimed": "owner_idx",
    "is_waiting AND good_until < now()": "deadline_idx",
    "is_waiting AND next_retry_at < now()": "retry_idx",
    "error_code = 'TASK_EXPIRED'": "error_code_idx",
    "ended_at < now() - interval '49 days'": "terminal_age_idx",
    "task_name = 't' AND idempotency_key = 'k'": "idempotency_idx",
}


def test_d12_a_look_by_hand_is_served_too(shelf: Shelf) -> None:
    """In an ordinary session, on the deep table that has been analysed."""
    shelf.told("deep", "claim")
    with psycopg.connect(shelf.urls["deep"]) as conn:
        for condition, index in LOOKUPS.items():
            rows = conn.execute(f"EXPLAIN SELECT id FROM horsies_tasks WHERE {condition}".encode())  # noqa: S608
            assert f"horsies_tasks_{index}" in "\n".join(row[0] for row in rows), condition
