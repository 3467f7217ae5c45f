"""The database behind the dashboard (M-64, M-70): without tables, with tables of another version, away and back again.
The dashboard itself never creates or changes tables."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringQueryError, MonitoringResult
from horsies.core.schema.install import SCHEMA_VERSION, install
from horsies.core.types import Err, Ok
from horsies.web import app
from horsies.web.answers import Refusal
from horsies.web.endpoints import Endpoint
from horsies.web.schema_state import KNOWN_S, UNKNOWN_S, SchemaCheck, SchemaState, judged
from tests.app_support import an_app
from tests.factories import given_task
from tests.network_support import Network
from tests.services.test_pool import refusing_port
from tests.services.web.conftest import THERE
from tests.support import eventually
from tests.web_support import ACTIONS, ANSWERING, Board, a_board, name_of, refusal

READING = [endpoint for endpoint in ANSWERING if endpoint.needs_tables]
PASSWORD = "sesame-open-7411"


def tables(url: str) -> list[str]:
    with psycopg.connect(url) as conn:
        return [name for (name,) in conn.execute("SELECT relname FROM pg_class WHERE relname ~ '^horsies'").fetchall()]


async def each(board: Board, endpoints: list[Endpoint]) -> dict[str, tuple[int, str]]:
    return {name_of(endpoint): refusal(await board.ask(endpoint, **THERE)) for endpoint in endpoints}


async def test_m70_without_tables_nothing_is_read_and_nothing_is_created(empty_database_url: str) -> None:
    async with a_board(empty_database_url) as board:
        assert set((await each(board, [*READING, *ACTIONS])).values()) == {(503, "SCHEMA_ABSENT")}
        meta = (await board.get("/api/meta")).json()
        assert meta["schema_state"] == "ABSENT" and meta["schema_version"] is None
        assert not meta["schema_compatible"] and not meta["can_act"] and meta["actions_disabled_reason"]
        assert (await board.get("/api/openapi.json")).status_code == 200
    assert tables(empty_database_url) == []


async def test_m70_with_an_app_nothing_is_created_either(empty_database_url: str) -> None:
    with an_app(empty_database_url) as shop:
        async with a_board(shop) as board:
            assert refusal(await board.get("/api/tasks")) == (503, "SCHEMA_ABSENT")
            assert refusal(await board.act("/api/tasks/x/cancel")) == (503, "SCHEMA_ABSENT")
        assert tables(empty_database_url) == []
        assert (await shop.get_broker().ensure_schema_initialized()).is_ok(), "the app itself still creates them"
        assert tables(empty_database_url)


async def test_m70_tables_that_come_later_are_found(empty_database_url: str) -> None:
    async with a_board(empty_database_url) as board:
        assert refusal(await board.get("/api/tasks")) == (503, "SCHEMA_ABSENT")
        async with await AsyncConnection.connect(empty_database_url) as conn:
            await install(conn)

        async def is_there() -> bool:
            return (await board.get("/api/tasks")).status_code == 200

        await eventually(is_there)


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, SCHEMA_VERSION - 1])
async def test_m70_with_tables_of_another_version_one_reads_and_does_not_act(
    database_url: str, db: AsyncConnection[Any], version: int
) -> None:
    task = await given_task(db)
    await db.execute("UPDATE horsies_meta SET value = %s WHERE key = 'schema_version'", [str(version)])
    async with a_board(database_url) as board:
        assert (await board.get(f"/api/tasks/{task}")).status_code == 200
        assert set((await each(board, ACTIONS)).values()) == {(409, "SCHEMA_INCOMPATIBLE")}
        meta = (await board.get("/api/meta")).json()
        assert (meta["schema_version"], meta["expected_schema_version"]) == (version, SCHEMA_VERSION)
        assert meta["schema_state"] == "MISMATCH" and not meta["can_act"] and meta["actions_enabled"]
    row = await (await db.execute("SELECT value FROM horsies_meta WHERE key = 'schema_version'")).fetchone()
    assert row == (str(version),)


async def test_m64_m70_a_database_that_does_not_answer_is_503_and_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    url = f"postgresql://someone:{PASSWORD}@127.0.0.1:{refusing_port()}/x"
    async with a_board(url) as board:
        assert set((await each(board, [*READING, *ACTIONS])).values()) == {(503, "DATABASE_UNAVAILABLE")}
        answers = [await board.get("/api/meta"), await board.get("/api/tasks"), await board.get("/api/events")]
        assert answers[0].json()["schema_state"] == "UNKNOWN"
        assert all(PASSWORD not in answer.text and "Traceback" not in answer.text for answer in answers)
        assert answers[1].headers["retry-after"]
    assert PASSWORD not in caplog.text


async def test_m64_a_dashboard_outlives_an_outage(database_url: str, db: AsyncConnection[Any]) -> None:
    network = Network(database_url)
    await network.open()
    try:
        async with a_board(network.url) as board:
            task = await given_task(db)
            assert (await board.get(f"/api/tasks/{task}")).status_code == 200
            network.cut()
            for endpoint in READING:
                assert refusal(await board.ask(endpoint, **THERE))[0] == 503
            assert refusal(await board.act(f"/api/tasks/{task}/cancel"))[0] == 503
            network.mend()

            async def is_back() -> bool:
                return (await board.get(f"/api/tasks/{task}")).status_code == 200

            await eventually(is_back)
            assert (await board.act(f"/api/tasks/{task}/cancel")).status_code == 200
    finally:
        await network.close()


async def test_m64_a_database_that_falls_silent_is_503(
    database_url: str, db: AsyncConnection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "READ_S", 0.5)
    network = Network(database_url)
    await network.open()
    try:
        async with a_board(network.url) as board:
            assert (await board.get("/api/tasks")).status_code == 200
            network.freeze()
            assert refusal(await board.get("/api/tasks")) == (503, "DATABASE_UNAVAILABLE")
            network.mend()

            async def is_back() -> bool:
                return (await board.get("/api/tasks")).status_code == 200

            await eventually(is_back)
    finally:
        await network.close()


async def test_m64_a_statement_that_fails_says_what_the_database_says(
    database_url: str, db: AsyncConnection[Any]
) -> None:
    await db.execute("ALTER TABLE horsies_schedule_state RENAME TO elsewhere")
    async with a_board(database_url) as board:
        answer = await board.get("/api/schedules")
        assert refusal(answer) == (503, "DB_OPERATION_FAILED") and "horsies_schedule_state" in answer.text
        assert (await board.get("/api/tasks")).status_code == 200


def counted(answers: list[MonitoringResult[int | None]]) -> tuple[Callable[[], Awaitable[Any]], list[int]]:
    """A database that gives these answers one after the other, the last one for ever; and how often it was asked."""
    asked: list[int] = []

    async def read() -> MonitoringResult[int | None]:
        asked.append(1)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    return read, asked


AWAY: MonitoringResult[int | None] = Err(
    MonitoringQueryError(MonitoringErrorCode.DB_OPERATION_FAILED, "it is away", retryable=True)
)


@pytest.mark.parametrize(
    ("found", "state", "seconds"),
    [
        (Ok(SCHEMA_VERSION), SchemaState.MATCH, KNOWN_S),
        (Ok(1), SchemaState.MISMATCH, KNOWN_S),
        (Ok(None), SchemaState.ABSENT, UNKNOWN_S),
        (AWAY, SchemaState.UNKNOWN, UNKNOWN_S),
    ],
)
async def test_m70_what_is_known_is_remembered_for_a_while(
    found: MonitoringResult[int | None], state: SchemaState, seconds: float
) -> None:
    now = [1_000.0]
    read, asked = counted([found])
    check = SchemaCheck(read, clock=lambda: now[0])
    for _ in range(3):
        assert (await check.look()).state is state
    assert len(asked) == 1
    now[0] += seconds - 0.1
    await check.look()
    assert len(asked) == 1
    now[0] += 0.2
    await check.look()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("found", "reads", "acts"),
    [(Ok(SCHEMA_VERSION), None, None), (Ok(1), None, 409), (Ok(None), 503, 503), (AWAY, 503, 503)],
)
def test_m70_what_each_state_allows(found: MonitoringResult[int | None], reads: int | None, acts: int | None) -> None:
    facts = judged(found)

    def refused(judge: Callable[[], None]) -> int | None:
        try:
            judge()
        except Refusal as refusal:
            return refusal.status
        return None

    assert (refused(facts.refuse_reading), refused(facts.refuse_acting)) == (reads, acts)


async def test_m15_times_are_in_utc_whatever_the_server_thinks(database_url: str, db: AsyncConnection[Any]) -> None:
    task = await given_task(db, sent_at="2026-01-02T03:04:05Z")
    row = await (await db.execute("SELECT current_database()")).fetchone()
    assert row is not None
    await db.execute(f"ALTER DATABASE \"{row[0]}\" SET timezone = 'Asia/Kolkata'".encode())
    async with a_board(database_url) as board:
        detail = json.loads((await board.get(f"/api/tasks/{task}")).text)
        assert detail["sent_at"] == "2026-01-02T03:04:05Z"
