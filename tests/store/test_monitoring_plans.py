"""How much of the tables the query API reads (M-45, M-46, D-12): a page reads its page and what an index leads past, a
count reads what it counts, the snapshot reads what waits, is in flight and ended of late. On a table most of which has
ended and on one most of which waits; thirty thousand rows in every run, a million with `make heavy`, which also says
how long each question takes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.db.pool import Connection
from horsies.core.monitoring.filters import TaskFilter, order, page
from horsies.core.monitoring.snapshot import MOST_ENDED
from horsies.core.store import monitoring
from tests.conftest import fresh_database
from tests.heavy import VARIABLE
from tests.store.plan_reading import Plan
from tests.store.plan_reading import explaining as session_telling
from tests.store.test_plans import undisturbed

pytestmark = pytest.mark.usefixtures("superuser")

IS_HEAVY = bool(os.environ.get(VARIABLE))
ROWS = 1_000_000 if IS_HEAVY else 30_000
IN_FLIGHT = 500
EVERY = (ROWS + IN_FLIGHT) * 1.01  # what parallel workers read is told rounded
LIMIT = 50
TASKS, RUNS, NODES = "horsies_tasks", "horsies_workflows", "horsies_workflow_tasks"
STATES = {"ended": 0.97, "waiting": 0.03}  # the part of the rows that has ended

# Ids grow with time. Of those that ended one in 50 failed, half of these with a code of the user's; one in 5,000 rows
# is of a rare name. Of those that wait one in ten is in a queue of its own, and one in a hundred is not due.
FILLED = """
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, args, result, sent_at, enqueued_at, completed_at,
                               failed_at, error_code, claimed_by_worker_id, retry_count)
    SELECT 'a' || lpad(n::text, 35, '0'), CASE WHEN n %% 5000 = 0 THEN 'rare' ELSE 'task' || n %% 10 END, 'q' || n %% 5,
           CASE WHEN n %% 50 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, '[' || n || ']', '{"ok": ' || n || '}', at, at,
           CASE WHEN n %% 50 > 0 THEN at END, CASE WHEN n %% 50 = 0 THEN at END,
           CASE WHEN n %% 100 = 0 THEN 'MINE' WHEN n %% 50 = 0 THEN 'WORKER_CRASHED' END, 'w' || n %% 20, n %% 50 / 49
    FROM generate_series(1, %(ended)s) AS n, LATERAL (
        SELECT now() - interval '30 days' * (1 - n / %(ended)s::float8)) AS _(at);
    INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, enqueued_at)
    SELECT 'b' || lpad(n::text, 35, '0'), 'task' || n %% 10, CASE WHEN n %% 10 = 0 THEN 'small' ELSE 'q1' END,
           1 + n %% 9, '[' || n || ']',
           now() + CASE WHEN n %% 100 = 0 THEN interval '1 day' ELSE n * interval '-1 ms' END
    FROM generate_series(1, %(waiting)s) AS n;
"""
ALWAYS = f"""
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, claimed, claimed_by_worker_id, claimed_at, started_at)
    SELECT 'c' || lpad(n::text, 35, '0'), 'task1', 'q1', CASE n % 2 WHEN 0 THEN 'RUNNING' ELSE 'CLAIMED' END, TRUE,
           'w' || n % 20, now(), now() FROM generate_series(1, {IN_FLIGHT}) AS n;
    INSERT INTO horsies_workers (worker_id, queues) SELECT 'w' || n, '{{q1}}' FROM generate_series(0, 19) AS n;
    INSERT INTO horsies_worker_states (worker_id, snapshot_at)
    SELECT 'w' || n % 20, now() - n * interval '1 s' FROM generate_series(1, 5000) AS n;
    INSERT INTO horsies_heartbeats (task_id, sender_id, role)
    SELECT n, 's', 'runner' FROM generate_series(1, 5000) AS n;
    INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, finished_at)
    SELECT n, 1, 'COMPLETED', FALSE, now() FROM generate_series(1, 5000) AS n;
    INSERT INTO horsies_workflows (id, name, definition_key, open_nodes, status, sent_at, completed_at)
    SELECT 'f' || n, CASE WHEN n % 5000 = 0 THEN 'rare' ELSE 'flow' || n % 10 END, 'f', 0,
           CASE WHEN n % 200 = 0 THEN 'RUNNING' WHEN n % 50 = 0 THEN 'FAILED' ELSE 'COMPLETED' END,
           now() - n * interval '1 s', CASE WHEN n % 200 > 0 THEN now() - n * interval '1 s' END
    FROM generate_series(1, 10000) AS n;
    INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name, status, dependencies)
    SELECT 'f' || n, i, 'n' || i, 'TASK', 't', 'FAILED', CASE WHEN i > 0 THEN ARRAY[i - 1] ELSE '{{}}' END
    FROM generate_series(1, 1000) AS n, generate_series(0, 4) AS i;
"""  # noqa: S608


@dataclass(frozen=True)
class Look:
    """A question, and how many rows of tasks, workflows and nodes it may look at in each state of the table."""

    act: Callable[[Connection], Awaitable[object]]
    tasks: Callable[[int, int], float] = field(default=lambda ended, waiting: 0)
    runs: int = 0
    nodes: int = 0
    may_scan: bool = False  # all rows of the table, in the order they lie in


def a_page(
    sort_by: str = "id", sort_dir: str = "desc", offset: int = 0, **lists: Any
) -> Callable[[Connection], Awaitable[object]]:
    wanted = {
        **TaskFilter(**lists).params(),
        **order(sort_by, sort_dir, lists.get("statuses", ())),
        **page(offset, LIMIT),
    }
    return lambda conn: monitoring.list_tasks(conn, wanted)


def a_count(**lists: Any) -> Callable[[Connection], Awaitable[object]]:
    wanted = TaskFilter(**lists).params()
    return lambda conn: monitoring.count_tasks(conn, wanted)


def at_most(rows: float) -> Callable[[int, int], float]:
    return lambda ended, waiting: rows


EVERYTHING = TaskFilter().params()
ONE = "a" + "7".zfill(35)
NEXT = "b" + str(ROWS // 50).zfill(35)
LOOKS: dict[str, Look] = {
    # Pages, each by the index that has its order.
    "page": Look(a_page(), at_most(LIMIT)),
    "page, oldest first": Look(a_page(sort_dir="asc"), at_most(LIMIT)),
    "page, deep": Look(a_page(offset=1_000), at_most(1_000 + LIMIT)),
    "page of a queue": Look(a_page(queues=["q1"]), at_most(IN_FLIGHT + 20 * LIMIT)),
    "page of what ended last": Look(a_page("ended_at", statuses=["COMPLETED", "FAILED"]), at_most(2 * LIMIT)),
    "page of what ended first": Look(a_page("ended_at", "asc", statuses=["COMPLETED"]), at_most(2 * LIMIT)),
    "page of failures, last first": Look(a_page("ended_at", statuses=["FAILED"]), at_most(60 * LIMIT)),
    "page of what is claimed next": Look(a_page("claim_order", "asc", statuses=["PENDING"]), at_most(LIMIT)),
    "page of what is claimed last": Look(a_page("claim_order", statuses=["PENDING"]), at_most(LIMIT)),
    "page of one small queue": Look(a_page("claim_order", statuses=["PENDING"], queues=["small"]), at_most(2 * LIMIT)),
    "page of what runs": Look(a_page("started_at", statuses=["RUNNING"]), at_most(IN_FLIGHT)),
    "page of what a worker runs": Look(a_page(statuses=["RUNNING", "CLAIMED"], workers=["w3"]), at_most(IN_FLIGHT)),
    "page by code": Look(a_page(error_codes=["MINE"]), lambda ended, waiting: 110 * LIMIT + waiting + IN_FLIGHT),
    "page of a rare name": Look(a_page(task_names=["rare"]), at_most(EVERY), may_scan=True),
    "page by time of sending": Look(a_page("sent_at"), at_most(EVERY), may_scan=True),
    # Totals.
    "count of what runs": Look(a_count(statuses=["RUNNING"]), at_most(IN_FLIGHT)),
    "count of what waits": Look(a_count(statuses=["PENDING"], queues=["small"]), lambda _, waiting: waiting / 10 + 1),
    "count by code": Look(a_count(error_codes=["MINE"]), lambda ended, _: ended / 100 + 1),
    "count of all": Look(a_count(), at_most(EVERY), may_scan=True),
    "count of a name": Look(a_count(task_names=["rare"]), at_most(EVERY), may_scan=True),
    "stats": Look(lambda conn: monitoring.task_stats(conn, EVERYTHING), at_most(EVERY), may_scan=True),
    "facets": Look(lambda conn: monitoring.task_facets(conn, EVERYTHING, most=200), at_most(EVERY), may_scan=True),
    "breakdown": Look(
        lambda conn: monitoring.task_breakdown(conn, EVERYTHING, group_by="worker", limit=LIMIT),
        at_most(EVERY),
        may_scan=True,
    ),
    # One of them.
    "detail": Look(lambda conn: monitoring.task_detail(conn, ONE), at_most(1)),
    "why a task waits": Look(lambda conn: why(conn, NEXT), lambda ended, waiting: IN_FLIGHT + 2 + min(10_000, waiting)),
    # The snapshot.
    "waiting": Look(
        lambda conn: monitoring.waiting(conn),
        # If most of the table waits, it may as well be read as a whole.
        lambda ended, waiting: waiting if waiting < ended else EVERY,
        may_scan=True,
    ),
    "in flight": Look(lambda conn: monitoring.in_flight(conn), at_most(IN_FLIGHT)),
    "ended of late": Look(lambda conn: monitoring.ended(conn, timedelta(days=30), most=1_000), at_most(1_000)),
    "many that ended of late": Look(
        lambda conn: monitoring.ended(conn, timedelta(days=30), most=MOST_ENDED),
        at_most(MOST_ENDED),
        may_scan=not IS_HEAVY,
    ),
    "open workflows": Look(lambda conn: monitoring.open_workflows(conn), runs=100),
    "workers": Look(lambda conn: monitoring.workers(conn, most=100)),
    # Workflows.
    "workflow names": Look(lambda conn: monitoring.workflow_names(conn, most=100), runs=12),
    "workflows": Look(lambda conn: monitoring.list_workflows(conn, name=None, status=None, limit=LIMIT), runs=150),
    "workflows of a rare name": Look(
        lambda conn: monitoring.list_workflows(conn, name="rare", status=None, limit=LIMIT), runs=5
    ),
    "workflow": Look(lambda conn: monitoring.workflow(conn, "f7"), runs=1, nodes=5),
    "nodes": Look(lambda conn: monitoring.nodes(conn, "f7", most=100), nodes=5),
    "edges": Look(lambda conn: monitoring.edges(conn, "f7", most=100), nodes=5),
    "failed nodes": Look(lambda conn: monitoring.failed_nodes(conn, "f7", most=100), nodes=5),
    "node": Look(lambda conn: monitoring.node(conn, "f7", 3), nodes=1),
    "why a node waits": Look(lambda conn: monitoring.node_facts(conn, "f7", 3, most=10), runs=1, nodes=6),
}


async def why(conn: Connection, task_id: str) -> None:
    task = await monitoring.task_facts(conn, task_id)
    if task is not None:
        await monitoring.queue_facts(conn, task, most=10, look=10_000)


class Shelf:
    """Builds each state when its first test asks, and keeps the plans."""

    def __init__(self, server_url: str, template: str, stack: ExitStack) -> None:
        self._server_url, self._template, self._stack = server_url, template, stack
        self._told: dict[str, dict[str, list[Plan]]] = {}

    def told(self, state: str, look: str) -> list[Plan]:
        if state not in self._told:
            url = self._stack.enter_context(fresh_database(self._server_url, self._template))
            self._told[state] = {}  # a state that cannot be built is not tried again for every look
            self._told[state] = asyncio.run(fill_and_look(url, state))
        return self._told[state][look]


@pytest.fixture(scope="module")
def shelf(server_url: str, template: str) -> Iterator[Shelf]:
    with ExitStack() as stack:
        yield Shelf(server_url, template, stack)


def sizes(state: str) -> tuple[int, int]:
    ended = int(ROWS * STATES[state])
    return ended, ROWS - ended


async def fill_and_look(url: str, state: str) -> dict[str, list[Plan]]:
    ended, waiting = sizes(state)
    told: dict[str, list[Plan]] = {}
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await undisturbed(conn)
        await conn.execute("SET session_replication_role = replica")
        for part in FILLED.split(";")[:2]:
            await conn.execute(part.encode(), {"ended": ended, "waiting": waiting})
        await conn.execute(ALWAYS.encode())
        await conn.execute("VACUUM ANALYZE")
    async with session_telling(url, BY_INDEX, "force_generic_plan") as session:
        for name, look in LOOKS.items():

            async def act(conn: Connection, look: Look = look) -> None:
                await monitoring.settle(conn, timedelta(seconds=60))
                await look.act(conn)

            begun = perf_counter()
            told[name] = [plan for plan in await session.plans(act) if plan.name != "monitoring/settings"]
            if IS_HEAVY:
                print(f"{state:8} {name:32} {(perf_counter() - begun) * 1000:8.1f} ms")
    return told


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", LOOKS)
def test_m45_m46_a_question_reads_what_it_is_about(shelf: Shelf, state: str, name: str) -> None:
    look, plans = LOOKS[name], shelf.told(state, name)
    assert plans, "or nothing below would mean anything"
    assert sum(plan.rows(TASKS) for plan in plans) <= look.tasks(*sizes(state))
    assert sum(plan.rows(RUNS) for plan in plans) <= look.runs
    assert sum(plan.rows(NODES) for plan in plans) <= look.nodes
    scanned = set[str]().union(*[plan.whole_scans for plan in plans]) - {"horsies_workers"}
    assert scanned <= ({TASKS} if look.may_scan else set())
