"""How much of the tables the query API reads (M-45, M-45a, M-46a, D-12): a page reads its page, and no look reads more
than its bound, on tables most of which has ended, failed, waits, waits for later, or waits in many queues. No table of
tasks or workflows is read as a whole. Thirty thousand rows and a bound of a thousand in every run; a million and the
real bounds with `pytest --slow`, which also says how long each question takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from time import perf_counter, time
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.db.connections import BY_INDEX
from horsies.core.db.pool import Connection
from horsies.core.monitoring import windows
from horsies.core.monitoring.filters import TaskFilter, order, page
from horsies.core.store import audit, many, monitoring, reasons, rollup, troubles
from horsies.core.types import WorkflowStatus
from tests.conftest import fresh_database
from tests.each import each
from tests.slow import IS_RUN, larger
from tests.store.plan_reading import Plan
from tests.store.plan_reading import explaining as session_telling
from tests.store.test_plans import undisturbed

pytestmark = [pytest.mark.usefixtures("superuser"), *larger("a million rows")]

ROWS = 1_000_000 if IS_RUN else 30_000
IN_FLIGHT = 500
KEYED = 200
LIMIT = 50
BOUND = windows.LOOK if IS_RUN else 1_000
TASKS, RUNS, NODES = "horsies_tasks", "horsies_workflows", "horsies_workflow_tasks"


@dataclass(frozen=True)
class State:
    """Of the rows, the part that has ended; of those, how many in a hundred failed; of the others, how many in a
    hundred are not due; and in how many queues they wait."""

    ended: float
    failed: int = 2
    later: int = 1
    queues: int = 2

    @property
    def sizes(self) -> dict[str, int]:
        ended = int(ROWS * self.ended)
        return {
            "ended": ended,
            "waiting": ROWS - ended,
            "failed": self.failed,
            "later": self.later,
            "queues": self.queues,
        }


STATES = {
    "ended": State(0.97),
    "waiting": State(0.03),
    "failed": State(0.95, failed=95),
    "future": State(0.05, later=95),
    "queues": State(0.5, queues=1_000),
}

# Ids grow with time. Half of the failures have a code of the user's; one in 5,000 rows is of a rare name.
FILLED = """
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, args, result, sent_at, enqueued_at, completed_at,
                               failed_at, error_code, claimed_by_worker_id, retry_count)
    SELECT 'a' || lpad(n::text, 35, '0'), CASE WHEN n %% 5000 = 0 THEN 'rare' ELSE 'task' || n %% 10 END, 'q' || n %% 5,
           CASE WHEN failed THEN 'FAILED' ELSE 'COMPLETED' END, '[' || n || ']', '{"ok": ' || n || '}', at, at,
           CASE WHEN NOT failed THEN at END, CASE WHEN failed THEN at END,
           CASE WHEN failed THEN CASE n %% 2 WHEN 0 THEN 'MINE' ELSE 'WORKER_CRASHED' END END, 'w' || n %% 20,
           n %% 50 / 49
    FROM generate_series(1, %(ended)s) AS n, LATERAL (
        SELECT now() - interval '30 days' * (1 - n / %(ended)s::float8), n %% 100 < %(failed)s) AS _(at, failed);
    INSERT INTO horsies_tasks (id, task_name, queue_name, priority, args, enqueued_at)
    SELECT 'b' || lpad(n::text, 35, '0'), 'task' || n %% 10, 'q' || n %% %(queues)s,
           1 + n / 7 %% 9, '[' || n || ']',
           now() + CASE WHEN n %% 100 < %(later)s THEN interval '1 day' ELSE n * interval '-1 ms' END
    FROM generate_series(1, %(waiting)s) AS n;
"""
ALWAYS = f"""
    INSERT INTO horsies_tasks (id, task_name, queue_name, status, claimed, claimed_by_worker_id, claimed_at, started_at)
    SELECT 'c' || lpad(n::text, 35, '0'), 'task1', 'q1', CASE n % 2 WHEN 0 THEN 'RUNNING' ELSE 'CLAIMED' END, TRUE,
           'w' || n % 20, now(), now() FROM generate_series(1, {IN_FLIGHT}) AS n;
    INSERT INTO horsies_tasks (id, task_name, status, sent_at, completed_at, idempotency_key)
    SELECT '0' || lpad(n::text, 35, '0'), 'name' || n % 10, 'COMPLETED', now() - interval '40 days',
           now() - interval '40 days' + n * interval '1 s', 'k' || n / 10 FROM generate_series(1, {KEYED}) AS n;
    INSERT INTO horsies_workers (worker_id, queues) SELECT 'w' || n, '{{q1}}' FROM generate_series(0, 19) AS n;
    INSERT INTO horsies_rollup (span, start_at, queue_name, task_name, error_code, failed, example_id)
    SELECT s, to_timestamp(floor(extract(epoch FROM now()) / s) * s) - n * s * interval '1 s', 'q' || g, 't' || g,
           'e', 1, 'a' || lpad(g::text, 35, '0')
    FROM generate_series(0, 2000) AS n, unnest(ARRAY[60, 600, 3600]) AS s, generate_series(1, 5) AS g;
    INSERT INTO horsies_audit (actor, action, target_kind, target_ids)
    SELECT 'p' || n % 3, 'a' || n % 5, 'task', ARRAY['t' || n, 'u' || n] FROM generate_series(1, 20000) AS n;
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
    """A question, and how many rows of tasks, workflows and nodes it may look at, whatever the table has."""

    act: Callable[[Connection], Awaitable[object]]
    tasks: int = 0
    runs: int = 0
    nodes: int = 0


def a_page(
    sort_by: str = "id",
    sort_dir: str = "desc",
    offset: int = 0,
    source: windows.Source | None = None,
    after: dict[str, Any] | None = None,
    **lists: Any,
) -> Callable[[Connection], Awaitable[object]]:
    wanted = {
        **TaskFilter(**lists).params(),
        **order(sort_by, sort_dir, lists.get("statuses", ())),
        **page(offset, LIMIT),
        **(windows.after(None, sort_by, True) | (after or {})),
    }
    window = windows.of_page(wanted, sort_by, exact=False)[0] if source is None else windows.of_source(source)
    return lambda conn: monitoring.list_tasks(conn, {**wanted, **replace(window, look=BOUND).params()})


def a_count(
    source: windows.Source = "all", most: int = BOUND, **lists: Any
) -> Callable[[Connection], Awaitable[object]]:
    wanted = {**TaskFilter(**lists).params(), **replace(windows.of_source(source), look=BOUND).params(), "most": most}
    return lambda conn: monitoring.count_tasks(conn, wanted)


def a_tally(source: windows.Source, **lists: Any) -> Callable[[Connection], Awaitable[object]]:
    wanted = {**TaskFilter(**lists).params(), **replace(windows.of_source(source), look=BOUND).params()}
    return lambda conn: monitoring.tally_tasks(conn, wanted, ("task_name", "queue", "worker", "error_code"))


def a_probe(source: windows.Source, **lists: Any) -> Callable[[Connection], Awaitable[object]]:
    wanted = {**TaskFilter(**lists).params(), "source": source, "few": BOUND}
    return lambda conn: monitoring.has_few(conn, wanted)


def a_window(span: int) -> rollup.RollupWindow:
    """The last forty spans; the newest fifty rows of them are looked at. Buffers tell how much is read."""
    until = time()
    return rollup.RollupWindow(span, until - 40 * span, until, span, 50)


def a_chart(span: int, queues: list[str] | None = None) -> Callable[[Connection], Awaitable[object]]:
    return lambda conn: rollup.read(conn, a_window(span), queues, None)


def an_audit(target_id: str | None = None, actor: str | None = None) -> Callable[[Connection], Awaitable[object]]:
    """Buffers tell how much is read."""
    return lambda conn: audit.list_entries(
        conn, target_id=target_id, actor=actor, action=None, after=None, limit=LIMIT, look=2 * LIMIT
    )


ENDED = ["COMPLETED", "FAILED"]
WAIT = ["PENDING"]
AN_HOUR_AGO = datetime.now(UTC) - timedelta(hours=1)
EVERY_QUEUE = [f"q{n}" for n in range(1_000)]
MIDDLE = {"after_id": "a" + str(ROWS // 2).zfill(35), "after_time": "now"}
IN_CLAIM_ORDER = {"after_id": "b", "after_time": "now", "after_queue": "q1", "after_priority": 5}
ONE = "a" + "7".zfill(35)
SOME = ["a" + str(n).zfill(35) for n in range(1, 501)]
NEXT = "b" + str(ROWS // 50).zfill(35)
LOOKS: dict[str, Look] = {
    # Pages, each by the index that has its order.
    "page": Look(a_page(), LIMIT),
    "page, oldest first": Look(a_page(sort_dir="asc"), LIMIT),
    "page, after a cursor": Look(a_page(after=MIDDLE), LIMIT),
    "page, deep": Look(a_page(offset=BOUND // 2), BOUND // 2 + LIMIT),
    "page of a queue": Look(a_page(queues=["q1"]), BOUND),
    "page of what ended last": Look(a_page("ended_at", statuses=ENDED), 2 * LIMIT),
    "page of what ended first": Look(a_page("ended_at", "asc", statuses=ENDED), 2 * LIMIT),
    "page of what ended, after a cursor": Look(a_page("ended_at", statuses=ENDED, after=MIDDLE), 2 * LIMIT),
    "page of failures, last first": Look(a_page("ended_at", statuses=["FAILED"]), BOUND),
    "page of what is cancelled": Look(a_page("ended_at", statuses=["CANCELLED"]), BOUND),
    "page of what is claimed next": Look(a_page("claim_order", "asc", statuses=WAIT), LIMIT),
    "page of what is claimed last": Look(a_page("claim_order", statuses=WAIT), LIMIT),
    "page of what is claimed, after": Look(a_page("claim_order", "asc", statuses=WAIT, after=IN_CLAIM_ORDER), LIMIT),
    "page of some queues": Look(a_page("claim_order", statuses=WAIT, queues=["q0", "q1"]), 2 * LIMIT),
    "page of what waits, by id": Look(a_page(statuses=WAIT), BOUND),
    "page of all that waits, by id": Look(a_page(statuses=WAIT, source="waiting"), BOUND),
    "page of what runs": Look(a_page("started_at", statuses=["RUNNING"]), IN_FLIGHT),
    "page of what a worker runs": Look(a_page(statuses=["RUNNING", "CLAIMED"], workers=["w3"]), IN_FLIGHT),
    "page by code": Look(a_page(error_codes=["MINE"]), BOUND),
    "page of all with a code": Look(a_page(error_codes=["MINE"], source="coded"), BOUND),
    "page of all with any code": Look(a_page(error_categories=["DOMAIN"], source="coded"), BOUND),
    "page of a rare name": Look(a_page(task_names=["rare"]), BOUND),
    "page of no name": Look(a_page("ended_at", statuses=ENDED, task_names=["none"]), BOUND),
    "page of retries": Look(a_page(retried_only=True), BOUND),
    # Only the rows whose ids begin with a zero have ids of an earlier time.
    "page of an hour": Look(a_page(sent_after=AN_HOUR_AGO), LIMIT),
    "page before an hour ago": Look(a_page(sent_before=AN_HOUR_AGO), LIMIT),
    "page of an hour that ended": Look(a_page("ended_at", statuses=ENDED, sent_after=AN_HOUR_AGO), BOUND),
    "page of a prefix": Look(a_page(id_prefix="0198c5de-0"), 2),
    "page of an end": Look(a_page(id_suffix="77"), BOUND),
    "page of a prefix and an end": Look(a_page(id_prefix="0198c5de-0", id_suffix="77"), 2),
    "page of failures without a code": Look(a_page("ended_at", statuses=["FAILED"], uncoded_only=True), BOUND),
    "count before an hour ago": Look(a_count(sent_before=AN_HOUR_AGO), 2 * KEYED),
    "count of a prefix": Look(a_count(id_prefix="0198c5de-0"), 2),
    "key": Look(lambda conn: monitoring.keyed(conn, "k7", None, most=100), 40),
    "key of a name": Look(lambda conn: monitoring.keyed(conn, "k7", ["name1", "name7"], most=100), 4),
    "page by time of sending": Look(a_page("sent_at"), BOUND),
    "page by time of sending, ended": Look(a_page("sent_at", source="ended", statuses=ENDED), BOUND),
    # How many there are.
    "few that wait": Look(a_probe("waiting"), BOUND + 1),
    "few that wait in a queue": Look(a_probe("waiting", queues=["q1"]), BOUND + 1),
    "few with a code": Look(a_probe("coded", error_codes=["MINE"]), BOUND + 1),
    "few at all": Look(a_probe("all"), BOUND + 1),
    "count of all": Look(a_count(), BOUND),
    "count of a name": Look(a_count(task_names=["rare"]), BOUND),
    "count of what waits": Look(a_count("waiting", statuses=WAIT), BOUND),
    "count of what waits in a queue": Look(a_count("waiting", statuses=WAIT, queues=["q1"]), BOUND),
    "count of what ended": Look(a_count("ended", statuses=["FAILED"]), BOUND),
    "count of what runs": Look(a_count("in_flight", statuses=["RUNNING"]), IN_FLIGHT),
    "count by code": Look(a_count("coded", error_codes=["MINE"]), BOUND),
    "groups of what waits": Look(a_tally("waiting"), BOUND),
    "groups of what ended": Look(a_tally("ended"), BOUND),
    "groups of what runs": Look(a_tally("in_flight"), IN_FLIGHT),
    # One of them.
    "detail": Look(lambda conn: monitoring.task_detail(conn, ONE), 1),
    "arguments of some": Look(lambda conn: monitoring.arguments(conn, SOME, most=1_000), len(SOME)),
    "some by their ids": Look(lambda conn: monitoring.tasks_by_id(conn, SOME), len(SOME)),
    "which of some were sent again": Look(lambda conn: many.sent_again(conn, SOME), 2 * len(SOME)),
    "why a task waits": Look(lambda conn: why(conn, NEXT), IN_FLIGHT + 2 + BOUND),
    # The snapshot.
    "queues": Look(lambda conn: monitoring.waiting_queues(conn, most=2_000), 1_001),
    "waiting": Look(lambda conn: monitoring.waiting(conn, ["q0", "q1"], most=BOUND // 2), BOUND),
    "waiting in many queues": Look(lambda conn: monitoring.waiting(conn, EVERY_QUEUE, most=2), 2_000),
    "depths": Look(lambda conn: monitoring.depths(conn, ["q0", "q1"], most=BOUND // 2), BOUND),
    "depths of many queues": Look(lambda conn: monitoring.depths(conn, EVERY_QUEUE, most=2), 2_000),
    "oldest due": Look(lambda conn: monitoring.oldest_due(conn, EVERY_QUEUE), 20_000),
    "sample": Look(lambda conn: monitoring.waiting_sample(conn, EVERY_QUEUE, pages=20), 3_000),
    "in flight": Look(lambda conn: monitoring.in_flight(conn, most=100), 100),
    "ended of late": Look(lambda conn: monitoring.ended(conn, timedelta(days=30), most=BOUND), BOUND),
    "open workflows": Look(lambda conn: monitoring.open_workflows(conn, most=20), runs=60),
    "workers": Look(lambda conn: monitoring.workers(conn, most=100)),
    # What is wrong.
    "held tasks": Look(lambda conn: troubles.held_tasks(conn, most=100), 100),
    "stopped workflows": Look(lambda conn: troubles.stopped_workflows(conn, timedelta(days=30), most=100), runs=200),
    "bad ends": Look(lambda conn: troubles.bad_ends(conn, timedelta(hours=20), lost=["e"], most=50)),
    "run times": Look(lambda conn: troubles.run_times(conn, timedelta(days=30), ["t1"], most=50)),
    # Statistics.
    "chart of minutes": Look(a_chart(60)),
    "chart of hours": Look(a_chart(3_600, queues=["q1"])),
    "failures": Look(lambda conn: rollup.failures(conn, a_window(600), limit=5), 10),
    "tasks that failed": Look(lambda conn: rollup.failed_tasks(conn, a_window(3_600), most=BOUND, ids=20), BOUND),
    # What people did.
    "audit": Look(an_audit()),
    "audit of a task": Look(an_audit(target_id="t7")),
    "audit of a person": Look(an_audit(actor="nobody")),
    # Workflows.
    "workflow names": Look(lambda conn: monitoring.workflow_names(conn, most=100), runs=12),
    "workflows": Look(
        lambda conn: monitoring.list_workflows(conn, name=None, status=None, limit=LIMIT, look=100),
        runs=400,
        nodes=6 * LIMIT,
    ),
    "workflows of a name": Look(
        lambda conn: monitoring.list_workflows(conn, name="flow1", status=None, limit=LIMIT, look=100),
        runs=400,
        nodes=6 * LIMIT,
    ),
    "workflows of a state": Look(
        lambda conn: monitoring.list_workflows(conn, name=None, status=WorkflowStatus.RUNNING, limit=LIMIT, look=100),
        runs=400,
        nodes=6 * LIMIT,
    ),
    "workflow": Look(lambda conn: monitoring.workflow(conn, "f7"), runs=1, nodes=5),
    "nodes": Look(lambda conn: monitoring.nodes(conn, "f7", most=100), nodes=5),
    "edges": Look(lambda conn: monitoring.edges(conn, "f7", most=100), nodes=5),
    "the node that paused": Look(lambda conn: reasons.pausing_node(conn, "f7"), runs=1, nodes=5),
    "failed nodes": Look(lambda conn: monitoring.failed_nodes(conn, "f7", most=100), nodes=5),
    "node": Look(lambda conn: monitoring.node(conn, "f7", 3), nodes=1),
    "why a node waits": Look(lambda conn: reasons.node_facts(conn, "f7", 3, most=10), runs=1, nodes=6),
}


async def why(conn: Connection, task_id: str) -> None:
    task = await reasons.task_facts(conn, task_id)
    if task is not None:
        await reasons.queue_facts(conn, task, most=10, look=BOUND)


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


async def fill_and_look(url: str, state: str, *, analysed: bool = True) -> dict[str, list[Plan]]:
    told: dict[str, list[Plan]] = {}
    async with await AsyncConnection.connect(url, autocommit=True) as conn:
        await undisturbed(conn)
        await conn.execute("SET session_replication_role = replica")
        for part in FILLED.split(";")[:2]:
            await conn.execute(part.encode(), STATES[state].sizes)
        await conn.execute(ALWAYS.encode())
        if analysed:
            await conn.execute("VACUUM ANALYZE")
    async with session_telling(url, BY_INDEX, "force_generic_plan") as session:
        for name, look in LOOKS.items():

            async def act(conn: Connection, look: Look = look) -> None:
                await monitoring.settle(conn, timedelta(seconds=60))
                await look.act(conn)

            begun = perf_counter()
            told[name] = [plan for plan in await session.plans(act) if plan.name != "monitoring/settings"]
            if IS_RUN:
                print(f"{state:8} {name:32} {(perf_counter() - begun) * 1000:8.1f} ms")
    return told


@pytest.mark.parametrize("state", STATES)
@each("name", LOOKS)
def test_m45_m46a_a_question_reads_no_more_than_its_bound(shelf: Shelf, state: str, name: str) -> None:
    look, plans = LOOKS[name], shelf.told(state, name)
    assert plans, "or nothing below would mean anything"
    assert sum(plan.rows(TASKS) for plan in plans) <= look.tasks
    assert sum(plan.rows(RUNS) for plan in plans) <= look.runs
    assert sum(plan.rows(NODES) for plan in plans) <= look.nodes
    # A row costs at most its page and a way through an index.
    assert sum(plan.buffers for plan in plans) <= 6 * (look.tasks + look.runs + look.nodes) + 300
    assert set[str]().union(*[plan.whole_scans for plan in plans]) <= {"horsies_workers"}


@pytest.mark.parametrize("state", ["ended", "waiting"])
def test_m46a_statistics_of_another_time_change_nothing(server_url: str, template: str, state: str) -> None:
    """As after a flood, before the table is analysed: the server believes that it is empty."""
    with fresh_database(server_url, template) as url:
        told = asyncio.run(fill_and_look(url, state, analysed=False))
    for name, look in LOOKS.items():
        assert sum(plan.rows(TASKS) for plan in told[name]) <= look.tasks, name
        assert set[str]().union(*[plan.whole_scans for plan in told[name]]) <= {"horsies_workers"}, name
