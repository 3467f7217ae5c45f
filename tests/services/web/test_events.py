"""Live updates (M-75): what changes arrives as ids, merged; nobody watching costs nothing; slow clients, lost
connections and many streams harm nobody."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring import changes
from horsies.core.schema.grants import ProcessKind, apply
from horsies.core.types.status import TaskStatus
from horsies.web import events
from horsies.web.answers import Refusal
from tests.factories import end_task, given_task, given_worker_state, given_workflow
from tests.network_support import Network
from tests.role_support import a_role, as_role
from tests.support import eventually
from tests.web_support import Watcher, a_board

LISTENING = "horsies monitor listener"


async def marks(db: AsyncConnection[Any]) -> int:
    row = await (await db.execute("SELECT count(*) FROM horsies_waiting WHERE topic = 'monitor'")).fetchone()
    assert row is not None
    return int(row[0])


async def sessions(db: AsyncConnection[Any]) -> int:
    cursor = await db.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s",
        [LISTENING],
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def costs_nothing(db: AsyncConnection[Any]) -> bool:
    return await marks(db) == 0 and await sessions(db) == 0


async def test_m75_a_change_arrives_as_an_id_and_never_as_data(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        task = await given_task(db, task_name="secret_name", args='["secret_argument"]')
        await watcher.heard("tasks", task)
        workflow = await given_workflow(db)
        await watcher.heard("workflows", workflow)
        await given_worker_state(db, "w1")
        await watcher.heard("workers", "w1")
        assert b"secret" not in watcher.body
        assert {tuple(event) for event in watcher.events} == {("topic", "ids")}


async def test_m75_changes_of_a_quarter_second_are_one_event(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        async with db.transaction():  # their notifications arrive together
            task = await given_task(db)
            await end_task(db, task, TaskStatus.COMPLETED)
            others = [await given_task(db) for _ in range(5)]
        await watcher.heard("tasks", task, *others)
        assert len(watcher.events) == 1 and len(watcher.ids()) == 6


async def test_m75_more_changes_than_can_be_named_are_told_as_many(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        await db.execute(
            "INSERT INTO horsies_tasks (id, task_name) SELECT 't' || n, 't' FROM generate_series(1, %s) AS n",
            [changes.MOST_IDS + 1],
        )
        await eventually(lambda: watcher.events)
        assert watcher.events == [{"topic": "tasks", "ids": []}]


async def test_m75_nobody_watching_costs_nothing(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board:
        assert (await board.get("/api/tasks")).status_code == 200
        assert await costs_nothing(db)
        async with Watcher(board.app) as first:
            async with Watcher(board.app):
                assert (await marks(db), await sessions(db)) == (1, 1), "one for all streams"
            await given_task(db)
            await eventually(lambda: first.ids())
            assert (await marks(db), await sessions(db)) == (1, 1), "the other one still watches"
        await eventually(lambda: costs_nothing(db))
        assert len(board.dashboard.streams) == 0
        async with Watcher(board.app) as again:
            task = await given_task(db)
            await again.heard("tasks", task)
        await eventually(lambda: costs_nothing(db))


async def test_m75_watchers_that_come_and_go_leave_nothing(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board:

        async def visit() -> None:
            async with Watcher(board.app) as watcher:
                assert watcher.status == 200

        for _ in range(3):
            await asyncio.gather(*(visit() for _ in range(10)))
        await eventually(lambda: costs_nothing(db))


async def test_m75_a_client_that_gives_up_while_it_joins_leaves_nothing(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    async with a_board(database_url) as board:

        async def stays() -> bool:
            return True

        for pause in (0.0, 0.001, 0.005, 0.02):
            joining = asyncio.create_task(board.dashboard.streams.open(stays))
            await asyncio.sleep(pause)
            joining.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await joining).close()
        assert len(board.dashboard.streams) == 0
        await eventually(lambda: costs_nothing(db))


async def test_m75_a_slow_client_loses_events_and_no_memory(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as slow, Watcher(board.app) as quick:
        slow.reads.clear()
        first = await given_task(db)
        await quick.heard("tasks", first)
        for number in range(4):  # each more than a quarter of a second after the other
            await db.execute(
                "INSERT INTO horsies_tasks (id, task_name) SELECT 'r' || %s || '-' || n, 't'"
                " FROM generate_series(1, 90) AS n",
                [number],
            )
            await quick.heard("tasks", f"r{number}-90")
        slow.reads.set()
        await eventually(lambda: {"topic": "tasks", "ids": []} in slow.events, what="many have changed")
        assert len(quick.ids()) == 361 and len(slow.ids()) <= 1 + changes.MOST_IDS


async def test_m75_after_an_outage_everything_may_have_changed(database_url: str, db: AsyncConnection[Any]) -> None:
    network = Network(database_url)
    await network.open()
    try:
        async with a_board(network.url) as board, Watcher(board.app) as watcher:
            network.cut()
            await eventually(lambda: not board.dashboard.streams.is_up)
            await given_task(db)
            network.mend()
            await eventually(lambda: {event["topic"] for event in watcher.events} == {"tasks", "workflows", "workers"})
            assert all(event["ids"] == [] for event in watcher.events)
            task = await given_task(db)
            await watcher.heard("tasks", task)
            assert await marks(db) == 1
        await eventually(lambda: costs_nothing(db))
    finally:
        await network.close()


async def test_m75_a_stream_ends_if_nothing_is_heard_for_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COMMENT_S", 0.3)
    network = Network(database_url)
    await network.open()
    try:
        async with a_board(network.url) as board, Watcher(board.app) as watcher:
            await eventually(lambda: b": still here" in watcher.body, what="a comment")
            network.cut()
            await eventually(lambda: not watcher.is_open, what="the end, so that the client polls")
            assert watcher.has_ended
            async with Watcher(board.app) as refused:
                assert refused.status == 503 and b"LIVE_UPDATES_UNAVAILABLE" in refused.body
            network.mend()

            async def is_back() -> bool:
                async with Watcher(board.app) as again:
                    return again.status == 200

            await eventually(is_back)
    finally:
        await network.close()


async def test_m75_a_mark_that_a_crash_of_the_server_lost_is_made_again(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        await db.execute("DELETE FROM horsies_waiting")  # the table is unlogged
        await db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = %s",
            [LISTENING],
        )
        await eventually(lambda: watcher.events, what="everything may have changed")
        assert await marks(db) == 1
        task = await given_task(db)
        await watcher.heard("tasks", task)


async def test_m75_a_mark_is_renewed(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "RENEW_S", 0.05)

    async def until() -> Any:
        row = await (await db.execute("SELECT until FROM horsies_waiting WHERE topic = 'monitor'")).fetchone()
        return row and row[0]

    async with a_board(database_url) as board, Watcher(board.app):
        first = await until()

        async def is_later() -> bool:
            return bool(await until() > first)

        await eventually(is_later)


async def test_m75_there_are_at_most_200_streams(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, contextlib.AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Watcher(board.app)) for _ in range(events.MOST_STREAMS)]
        async with Watcher(board.app) as one_more:
            assert one_more.status == 503 and b"TOO_MANY_STREAMS" in one_more.body
        task = await given_task(db)
        await asyncio.gather(*(watcher.heard("tasks", task) for watcher in opened))
        await opened[0].__aexit__()
        async with Watcher(board.app) as in_its_place:
            assert in_its_place.status == 200


async def test_m75_a_client_that_may_not_look_any_more_is_sent_away(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COMMENT_S", 0.05)
    policy = Changing()
    async with a_board(database_url, policy) as board, Watcher(board.app) as watcher:
        await eventually(lambda: b": still here" in watcher.body)
        policy.may = False
        await eventually(lambda: not watcher.is_open)


async def test_m75_a_client_that_may_not_look_any_more_is_sent_away_however_much_happens(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COMMENT_S", 1.0)
    policy = Changing()
    async with a_board(database_url, policy) as board, Watcher(board.app) as watcher:
        policy.may = False
        ended_in_time = asyncio.create_task(eventually(lambda: not watcher.is_open, what="the end"))
        while not ended_in_time.done():  # never quiet for a second
            await given_task(db)
            await asyncio.sleep(0.1)
        await ended_in_time
        assert watcher.events, "it was busy"


class Changing:
    """A policy that changes its mind."""

    may = True

    async def can_view(self, request: Any) -> bool:
        return self.may

    async def can_act(self, request: Any) -> bool:
        return self.may


async def test_m75_a_client_that_takes_nothing_loses_its_place(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SEND_S", 0.2)
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        watcher.reads.clear()
        await given_task(db)
        await eventually(lambda: len(board.dashboard.streams) == 0)
        await eventually(lambda: costs_nothing(db))


async def test_m75_what_others_notify_is_no_id(database_url: str, db: AsyncConnection[Any]) -> None:
    """Every role may send notifications."""
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        await db.execute("SELECT pg_notify('horsies_task_status', %s)", ["x\n\ndata: {}"])
        await db.execute("SELECT pg_notify('horsies_worker_state', %s)", ["y" * 300])
        await eventually(lambda: len(watcher.events) >= 2)
        assert sorted(event["topic"] for event in watcher.events) == ["tasks", "workers"]
        assert all(event["ids"] == [] for event in watcher.events)


async def test_m75_whoever_only_wants_the_headers_watches_nothing(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board:
        answer = await board.client.head("/api/events")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        assert await costs_nothing(db)


async def test_m75_behind_a_transaction_pooler_without_a_session_there_are_no_live_updates(database_url: str) -> None:
    config = PostgresConfig(database_url=database_url, pgbouncer_transaction_mode=True)
    async with a_board(config) as board, Watcher(board.app) as watcher:
        assert watcher.status == 503 and b"session_database_url" in watcher.body
        assert (await board.get("/api/tasks")).status_code == 200


async def test_m75_a_role_that_may_only_read_polls(
    database_url: str, db: AsyncConnection[Any], superuser: None
) -> None:
    with a_role(database_url) as role:
        await apply(db, {ProcessKind.MONITOR: [role]})
        async with a_board(as_role(database_url, role)) as board:
            async with Watcher(board.app) as watcher:
                assert watcher.status == 503 and b"horsies_waiting" in watcher.body
            assert (await board.get("/api/tasks")).status_code == 200
            await eventually(lambda: costs_nothing(db))


async def test_m75_closing_ends_the_streams(database_url: str, db: AsyncConnection[Any]) -> None:
    async with a_board(database_url) as board, Watcher(board.app) as watcher:
        await board.dashboard.close()
        await eventually(lambda: not watcher.is_open)
        assert watcher.has_ended and await costs_nothing(db)


async def test_m75_a_dashboard_that_stops_opens_no_stream(database_url: str) -> None:
    async with a_board(database_url) as board:
        board.dashboard.streams.end_all()

        async def stays() -> bool:
            return True

        with pytest.raises(Refusal) as refused:
            await board.dashboard.streams.open(stays)
        assert refused.value.status == 503
