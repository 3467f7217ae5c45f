"""A worker does not fail what it does not know (O-31), nor what it cannot read yet (O-32): two versions of an app, as
in a rolling deploy, and two apps on one queue."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.models.monitoring.cluster import Explanation, Why
from horsies.core.monitoring.explain import explain_task
from tests.e2e.conftest import load
from tests.support import eventually
from tests.worker_support import ROOT, Rows, running_worker

pytestmark = pytest.mark.e2e

OLD, NEW = ROOT / "tests" / "deploys" / "old.py", ROOT / "tests" / "deploys" / "new.py"
Versions = Callable[..., tuple[Any, Any]]


@pytest.fixture
async def versions(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Versions]:
    """Both versions of the app, with settings from the environment."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    made: list[Any] = []

    def make(**settings: int) -> tuple[Any, Any]:
        for name, value in settings.items():
            monkeypatch.setenv(name.upper(), str(value))
        made.extend((load(OLD), load(NEW)))
        return made[0], made[1]

    yield make
    for module in made:
        await module.app.get_broker().close_async()
        del sys.modules[module.__name__]


def a_worker(module: Any, **settings: Any) -> Any:
    path = NEW if hasattr(module, "added") else OLD
    return running_worker(module.app, **{"app_locator": f"{path}:app", "processes": 1, **settings})


async def states(rows: Rows) -> dict[str, int]:
    found = await rows.all("SELECT status, count(*) AS n FROM horsies_tasks GROUP BY status")
    return {row["status"]: row["n"] for row in found}


async def flood(rows: Rows, name: str, count: int, args: str = "[1]") -> None:
    """So many waiting tasks of this name, sent an hour ago."""
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args, enqueued_at) SELECT %s || n, %s, %s, now() - interval '1 hour'"
        " FROM generate_series(1, %s) n RETURNING NULL",
        f"{name}-", name, args, count,
    )  # fmt: skip


async def test_o31_a_worker_leaves_what_it_does_not_know_to_a_newer_one(versions: Versions, rows: Rows) -> None:
    old, new = versions()
    unknown = [(await new.added.send_async(n)).unwrap() for n in range(20)]
    async with a_worker(old, processes=2):
        known = [(await old.common.send_async(n)).unwrap() for n in range(20)]
        assert [(await one.get_async(timeout_ms=20_000)).unwrap() for one in known] == list(range(20))
        assert {await rows.status(one.task_id) for one in unknown} == {"PENDING"}
        async with a_worker(new):
            assert [(await one.get_async(timeout_ms=20_000)).unwrap() for one in unknown] == list(range(20))
    assert await states(rows) == {"COMPLETED": 40}
    attempts = await rows.all("SELECT outcome, count(*) AS n FROM horsies_task_attempts GROUP BY outcome")
    assert [(row["outcome"], row["n"]) for row in attempts] == [("COMPLETED", 40)], "nothing was charged"


@pytest.mark.slow("100,000 rows")
@pytest.mark.parametrize("settings", [{}, {"concurrency": 4}])
async def test_o31_100_000_unknown_tasks_in_front_cost_a_bounded_walk(
    versions: Versions, rows: Rows, settings: dict[str, Any]
) -> None:
    """They stand in front of the line, and a known one between them; nobody claims them again and again."""
    old, _ = versions(poll_ms=1_000)
    async with a_worker(old):  # makes the tables
        pass
    await flood(rows, "added", 100_000)
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args, enqueued_at) VALUES"
        " ('between', 'common', '[7]', now() - interval '1 hour'), ('last', 'common', '[8]', now()) RETURNING id"
    )
    async with a_worker(old, **settings):
        await rows.until("last", "COMPLETED", timeout=60)
        await rows.until("between", "COMPLETED", timeout=60)
        sent = (await old.common.send_async(3)).unwrap()
        assert (await sent.get_async(timeout_ms=20_000)).unwrap() == 3
    [claimed] = await rows.all("SELECT sum(claim_seq) AS n FROM horsies_tasks WHERE task_name = 'added'")
    assert claimed["n"] < 1_000, "only what the first claims brought, before it knew"
    assert await states(rows) == {"PENDING": 100_000, "COMPLETED": 3}


@pytest.mark.slow("several workers, and many waits")
async def test_o31_two_apps_on_one_queue_each_run_their_own_and_wake_each_other(versions: Versions, rows: Rows) -> None:
    """With a poll of half a minute, only notifications bring a task to the right worker in time."""
    old, new = versions(poll_ms=60_000)
    async with AsyncExitStack() as stack:
        for module in (old, old, new, old):
            await stack.enter_async_context(a_worker(module))
        for n in range(15):
            theirs, ours = (await new.added.send_async(n)).unwrap(), (await old.retired.send_async(n)).unwrap()
            assert (await theirs.get_async(timeout_ms=15_000)).unwrap() == n
            assert (await ours.get_async(timeout_ms=15_000)).unwrap() == n
    assert await states(rows) == {"COMPLETED": 30}
    [claimed] = await rows.all("SELECT sum(claim_seq) AS n FROM horsies_tasks")
    assert claimed["n"] < 60, "no task goes back and forth between workers"


async def test_o31_under_a_cap_unknown_tasks_take_no_room_for_good(versions: Versions, rows: Rows) -> None:
    old, _ = versions(cluster_cap=2, poll_ms=1_000)
    async with a_worker(old):
        pass
    await flood(rows, "added", 300)
    async with a_worker(old, processes=2):
        known = [(await old.common.send_async(n)).unwrap() for n in range(20)]
        assert [(await one.get_async(timeout_ms=30_000)).unwrap() for one in known] == list(range(20))
    assert await states(rows) == {"PENDING": 300, "COMPLETED": 20}


@pytest.mark.slow("waits for locks that time out")
@pytest.mark.parametrize("settings", [{}, {"concurrency": 4}])
async def test_o31_under_a_cap_a_task_that_somebody_has_locked_stops_no_walk(
    versions: Versions, rows: Rows, database_url: str, settings: dict[str, Any]
) -> None:
    old, _ = versions(cluster_cap=5, poll_ms=1_000)
    async with a_worker(old):
        pass
    insert = (
        "INSERT INTO horsies_tasks (id, task_name, args, enqueued_at) VALUES (%s, 'common', '[7]', %s) RETURNING id"
    )
    await rows.all(insert, "locked", "2026-01-01Z")
    await flood(rows, "added", 1_200)
    await rows.all(insert, "last", "now")
    async with await AsyncConnection.connect(database_url) as holder:
        await holder.execute("SELECT 1 FROM horsies_tasks WHERE id = 'locked' FOR UPDATE")
        async with a_worker(old, **settings):
            await rows.until("last", "COMPLETED", timeout=30)
            assert await rows.status("locked") == "PENDING"
            await holder.rollback()
            await rows.until("locked", "COMPLETED", timeout=30)


async def test_o31_only_after_the_grace_is_a_task_failed_that_nobody_knows(versions: Versions, rows: Rows) -> None:
    old, new = versions(grace_ms=4_000)
    async with a_worker(old):
        handle = (await new.added.send_async(1)).unwrap()
        row = await rows.until(handle.task_id, "FAILED", timeout=40)
    assert (row["failed_at"] - row["sent_at"]).total_seconds() >= 4
    assert row["error_code"] == "WORKER_RESOLUTION_ERROR" and "'added'" in row["failed_reason"]
    error = (await handle.get_async(timeout_ms=5_000)).unwrap_err()
    assert error.error_code.value == "WORKER_RESOLUTION_ERROR" and "4 s" in error.message
    assert await rows.attempts(handle.task_id) == [], "no worker has run it"


async def test_o31_as_long_as_a_live_worker_knows_the_name_nothing_is_failed(versions: Versions, rows: Rows) -> None:
    """The one that knows it is busy for longer than the grace."""
    old, new = versions(grace_ms=1_500, poll_ms=1_000)
    async with a_worker(old), a_worker(new) as busy:
        long = (await new.common.send_async(1, 6.0)).unwrap()
        while (await rows.until(long.task_id, "RUNNING"))["claimed_by_worker_id"] != busy.worker_id:
            long = (await new.common.send_async(1, 6.0)).unwrap()
        waiting = (await new.added.send_async(2)).unwrap()
        assert (await waiting.get_async(timeout_ms=30_000)).unwrap() == 2
    row = await rows.task(waiting.task_id)
    assert (row["started_at"] - row["sent_at"]).total_seconds() > 1.5


async def test_o31_l28_without_a_grace_it_fails_at_once_with_its_attempt(versions: Versions, rows: Rows) -> None:
    old, new = versions(grace_ms=0)
    handle = (await new.added.send_async(1)).unwrap()
    async with a_worker(old):
        row = await rows.until(handle.task_id, "FAILED")
    assert row["error_code"] == "WORKER_RESOLUTION_ERROR"
    (attempt,) = await rows.attempts(handle.task_id)
    assert attempt["outcome"] == "FAILED" and "'added'" in attempt["error_message"]


async def test_o31_m45_an_explanation_names_the_workers_that_know_the_task(versions: Versions, rows: Rows) -> None:
    old, new = versions()
    broker = new.app.get_broker()
    handle = (await new.added.send_async(1)).unwrap()
    async with a_worker(old):

        async def explained() -> Explanation | None:
            found = (await explain_task(broker, handle.task_id)).unwrap()
            return found if found is not None and found.why is Why.NO_WORKER_KNOWS_TASK else None

        nobody = await eventually(explained, what="a worker that leaves the task")
        assert nobody is not None
        assert (nobody.facts["knowing_workers"], nobody.facts["serving_workers"]) == (0, 1)
        assert "leave it" in nobody.message
        async with a_worker(new) as knowing:
            await rows.until(handle.task_id, "COMPLETED")
            busy = (await new.added.send_async(1, 10.0)).unwrap()
            await rows.until(busy.task_id, "RUNNING")
            waiting = (await new.added.send_async(2)).unwrap()

            async def in_line() -> Explanation | None:
                found = (await explain_task(broker, waiting.task_id)).unwrap()
                return found if found is not None and found.why is Why.IN_LINE else None

            some = await eventually(in_line, what="the task is not started ahead any more")
    assert some is not None
    assert some.facts["known_by"] == [knowing.worker_id] and "1 of 2 live workers" in some.message


async def test_o32_a_newer_version_reads_what_was_sent_before(versions: Versions, rows: Rows) -> None:
    old, new = versions()
    before = (await old.greet.send_async("Ada Lovelace")).unwrap()
    by_name = (await old.greet.send_async(name="Ada King")).unwrap()
    odd = await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args) VALUES ('odd', 'common', '[\"x\"]') RETURNING id"
    )
    assert odd
    async with a_worker(new):
        assert (await before.get_async(timeout_ms=20_000)).unwrap() == "hello Ada Lovelace"
        assert (await by_name.get_async(timeout_ms=20_000)).unwrap() == "hello Ada King"
        failed = await rows.until("odd", "FAILED")
    assert failed["error_code"] == "WORKER_SERIALIZATION_ERROR", "it fails at once, unless it is told to leave it"


async def test_o32_what_an_older_worker_cannot_read_is_left_for_a_newer_one(versions: Versions, rows: Rows) -> None:
    old, new = versions(poll_ms=1_000)
    async with a_worker(old):
        handle = (await new.greet.send_async(new.Person(first="Grace"))).unwrap()
        readable = (await old.greet.send_async("Ada")).unwrap()
        assert (await readable.get_async(timeout_ms=20_000)).unwrap() == "hello Ada"
        await eventually(lambda: rows.all("SELECT 1 AS one FROM horsies_left_tasks"))
        assert await rows.attempts(handle.task_id) == []
        async with a_worker(new):
            assert (await handle.get_async(timeout_ms=60_000)).unwrap() == "hello Grace"
    assert [attempt["outcome"] for attempt in await rows.attempts(handle.task_id)] == ["COMPLETED"], (
        "nothing is charged"
    )


async def test_o32_what_nobody_can_read_fails_after_the_grace(versions: Versions, rows: Rows) -> None:
    old, new = versions(grace_ms=3_000, poll_ms=1_000)
    async with a_worker(old):
        handle = (await new.greet.send_async(new.Person(first="Grace"))).unwrap()
        row = await rows.until(handle.task_id, "FAILED", timeout=40)
    assert row["error_code"] == "WORKER_SERIALIZATION_ERROR"
    assert (row["failed_at"] - row["sent_at"]).total_seconds() >= 3
    (attempt,) = await rows.attempts(handle.task_id)
    assert attempt["outcome"] == "FAILED" and "cannot be read" in attempt["error_message"]


@pytest.mark.slow("many rows")
async def test_o32_many_that_cannot_be_read_do_not_hold_up_the_others(versions: Versions, rows: Rows) -> None:
    old, _ = versions(poll_ms=1_000)
    async with a_worker(old):
        pass
    await flood(rows, "greet", 2_000, args='[{"first":"Grace"}]')
    async with a_worker(old):
        known = [(await old.common.send_async(n)).unwrap() for n in range(20)]
        assert [(await one.get_async(timeout_ms=30_000)).unwrap() for one in known] == list(range(20))
    [claimed] = await rows.all("SELECT sum(claim_seq) AS n FROM horsies_tasks WHERE task_name = 'greet'")
    assert claimed["n"] < 1_000, "after some of them, the name is left for a while"
    assert await states(rows) == {"PENDING": 2_000, "COMPLETED": 20}
