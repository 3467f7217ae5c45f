"""`app.check(live=True)`: whether what waits in the database can be run by the present code (M-20)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb
from pydantic import BaseModel, field_validator

from horsies import AppConfig, CustomQueueConfig, Horsies, QueueMode, TaskError, TaskResult, WorkflowContext
from horsies.core.checks import live
from horsies.core.errors import HorsiesError
from horsies.core.types.status import TaskStatus
from tests.conftest import with_database
from tests.factories import given_task
from tests.given_server import database_name
from tests.role_support import a_role, as_role
from tests.unit.checks.examples import PAGE


class Order(BaseModel):
    id: int

    @field_validator("id")
    @classmethod
    def _is_no_secret(cls, value: int) -> int:
        if value == 13:
            raise RuntimeError("not thirteen")
        return value


def app_on(url: str, **settings: Any) -> Horsies:
    app = Horsies(AppConfig.for_database_url(url, **settings))
    queue = "fast" if "custom_queues" in settings else None

    @app.task("shop.price", queue_name=queue)
    def price(order: Order, amount: int = 1) -> TaskResult[int, TaskError]:
        return TaskResult(ok=amount)

    @app.task("shop.told", queue_name=queue)
    def told(workflow_ctx: WorkflowContext | None, name: str) -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    return app


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    app = app_on(database_url)
    yield app
    app.get_broker().close()


SOUND = '{"order": {"id": 1}}'
OLD = '{"order": 1}'


async def test_m20_what_can_be_run_is_not_told(db: AsyncConnection, app: Horsies) -> None:
    await given_task(db, task_name="shop.price", kwargs=SOUND)
    await given_task(db, task_name="shop.price", args='[{"id": 1}, 2]')
    await given_task(db, task_name="shop.told", kwargs='{"name": "x", "workflow_ctx": null}')
    # Not waiting any more, or none of ours.
    await given_task(db, task_name="gone", status=TaskStatus.COMPLETED)
    await given_task(db, task_name="gone", status=TaskStatus.RUNNING)
    await given_task(db, task_name="gone", queue_name="another app's")
    await given_task(db, task_name="shop.price", kwargs=OLD, queue_name="another app's")
    assert app.check(live=True) == []


async def test_m20_arguments_that_the_code_cannot_read(db: AsyncConnection, app: Horsies) -> None:
    await given_task(db, task_name="shop.price", kwargs=SOUND, enqueued_at="2026-01-01")
    first = await given_task(db, task_name="shop.price", kwargs=OLD, enqueued_at="2026-01-02")
    await given_task(db, task_name="shop.price", kwargs="{}", enqueued_at="2026-01-03")
    await given_task(db, task_name="shop.price", kwargs="no JSON", enqueued_at="2026-01-04")
    await given_task(db, task_name="shop.price", kwargs='{"order": {"id": 13}}', enqueued_at="2026-01-05")
    await given_task(db, task_name="shop.price", kwargs=OLD, status=TaskStatus.CLAIMED)
    [error] = app.check(live=True)
    assert error.code == "HRS-218"
    assert error.message == "task 'shop.price' cannot read the arguments of 4 of the 5 waiting tasks"
    assert error.notes[0].startswith(f"for example {first}: order: ")
    assert len(error.notes) == 2, "it was no sample"
    assert error.location == app.tasks["shop.price"].location
    assert '@app.task("shop.price"' in str(error)


async def test_m20_tasks_whose_name_no_module_knows(db: AsyncConnection, app: Horsies) -> None:
    first = "4be9ffe6-a10d-4d92-b2f6-47c0d1a6d7f4"
    await given_task(db, id=first, task_name="shop.prise", enqueued_at="2026-01-01")
    for _ in range(2):
        await given_task(db, task_name="shop.prise", enqueued_at="2026-01-02")
    other = await given_task(db, task_name="zzz")
    errors = app.check(live=True)
    assert [error.code for error in errors] == ["HRS-300", "HRS-300"]
    assert errors[0].message == "no module defines the task 'shop.prise', but 3 of that name wait in queue 'default'"
    assert errors[0].notes[0] == f"for example {first}" and "renamed to shop.price?" in str(errors[0].help_text)
    assert "'zzz', but 1 of" in errors[1].message and errors[1].notes[0] == f"for example {other}"
    assert "renamed" not in str(errors[1].help_text)
    assert f"\n```text\n{errors[0]}\n```\n" in PAGE.read_text(), "the page shows it as it is"


async def test_m20_a_sample_is_told_to_be_one(
    db: AsyncConnection, app: Horsies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST", 6)
    monkeypatch.setattr(live, "STEP", 3)
    for day in range(1, 10):
        await given_task(db, task_name="shop.price", kwargs=SOUND if day == 2 else OLD, enqueued_at=f"2026-01-0{day}")
    await given_task(db, task_name="gone", enqueued_at="2026-01-01")
    unknown, unreadable = app.check(live=True)
    assert "but at least 1 of that name" in unknown.message
    assert unreadable.message == "task 'shop.price' cannot read the arguments of 4 of the first 5 waiting tasks"
    assert unreadable.notes[-1] == "only the first 6 waiting tasks of each queue were checked"


async def test_m20_each_queue_of_the_app_is_looked_at(db: AsyncConnection, database_url: str) -> None:
    queues = [CustomQueueConfig(name="fast"), CustomQueueConfig(name="slow")]
    app = app_on(database_url, queue_mode=QueueMode.CUSTOM, custom_queues=queues)
    for queue in ("fast", "slow", "slow", "default"):
        await given_task(db, task_name="gone", queue_name=queue)
    try:
        [error] = app.check(live=True)
    finally:
        app.get_broker().close()
    assert error.message == "no module defines the task 'gone', but 3 of that name wait in queues 'fast', 'slow'"


async def test_m20_a_look_changes_nothing(empty_database_url: str) -> None:
    app = app_on(empty_database_url)
    try:
        assert app.check(live=True) == []
    finally:
        app.get_broker().close()
    async with await AsyncConnection.connect(empty_database_url) as conn:
        tables = await (await conn.execute("SELECT relname FROM pg_class WHERE relname ~ 'horsies'")).fetchall()
    assert tables == []


async def test_m20_tables_of_an_older_version_are_not_looked_at(db: AsyncConnection, app: Horsies) -> None:
    await db.execute("ALTER TABLE horsies_tasks DROP COLUMN is_waiting")
    [warning] = app.check(live=True)
    assert (warning.code, warning.severity) == ("HRS-211", "warning")


async def test_m20_errors_before_leave_the_database_alone(db: AsyncConnection, app: Horsies) -> None:
    await given_task(db, task_name="gone")
    app.discover_tasks(["no_such_module_live"])
    found: list[HorsiesError] = app.check(live=True)
    assert [error.code for error in found] == ["HRS-206"]


DAILY = {"type": "daily", "time": "03:00:00"}


async def given_schedule(db: AsyncConnection, name: str, **definition: Any) -> None:
    definition = {
        "name": name,
        "task_name": "shop.price",
        "pattern": DAILY,
        "kwargs": {"order": {"id": 1}},
    } | definition
    await db.execute("INSERT INTO horsies_schedules (name, definition) VALUES (%s, %s)", [name, Jsonb(definition)])


async def test_m20_s04_schedules_that_were_put_in_place_at_run_time(db: AsyncConnection, app: Horsies) -> None:
    await given_schedule(db, "a sound one")
    await given_schedule(db, "b", task_name="gone")
    await given_schedule(db, "c", kwargs={"order": {"id": "one"}})
    await given_schedule(db, "d", timezone="Mars/Olympus", max_catch_up_runs=0)
    await given_schedule(db, "e", pattern={"type": "yearly"})
    errors = app.check(live=True)
    assert [str(error.code) for error in errors] == ["HRS-300", *["HRS-205"] * 4]
    assert "no task 'gone'" in errors[0].message and "order.id: " in errors[1].message
    assert [error.message.partition(":")[0] for error in errors[2:]] == ["schedule 'd'", "schedule 'd'", "schedule 'e'"]
    assert all(error.location is None and "app.schedules.remove" in error.notes[-1] for error in errors)


async def test_m20_a_schema_that_is_too_new_is_told(db: AsyncConnection, app: Horsies) -> None:
    await db.execute("UPDATE horsies_meta SET value = '99' WHERE key = 'breaking_version'")
    [error] = app.check(live=True)
    assert "is too new for this code" in str(error)


async def test_m20_a_database_that_nobody_can_use_is_told(server_url: str) -> None:
    """Of another encoding, and where the tables are missing and the role may not create them."""
    name = database_name(f"odd_{uuid.uuid4().hex[:8]}")
    create = SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'")
    async with await AsyncConnection.connect(server_url, autocommit=True) as maintenance:
        await maintenance.execute(create.format(Identifier(name)))
        try:
            assert "has the encoding LATIN1" in await found_in(with_database(server_url, name))
        finally:
            await maintenance.execute(SQL("DROP DATABASE {}").format(Identifier(name)))
        await maintenance.execute(SQL("CREATE DATABASE {} TEMPLATE template0").format(Identifier(name)))
        try:
            url = with_database(server_url, name)
            async with await AsyncConnection.connect(url, autocommit=True) as conn:
                await conn.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
            with a_role(url) as role:
                said = await found_in(as_role(url, role))
            assert "may not create them" in said and "horsies init-db" in said
        finally:
            await maintenance.execute(SQL("DROP DATABASE {}").format(Identifier(name)))


async def found_in(url: str) -> str:
    app = app_on(url)
    try:
        [error] = app.check(live=True)
        return f"{error} {error.notes} {error.help_text}"
    finally:
        await app.get_broker().close_async()
