"""The tables are what the contract says: columns with their types and defaults, constraints, indexes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import AsyncConnection
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from horsies.core.models import fleet_pg, task_pg, workflow_pg
from horsies.core.schema.create import METADATA
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus
from tests.store.catalog import columns_of, constraints_of, indexes_of, snapshot
from tests.store.expected_schema import FOREIGN_KEYS, INDEXES, STAMP, TABLES


async def insert_task(db: AsyncConnection, **columns: object) -> str:
    """Insert a row with plain SQL, giving only what is named."""
    row: dict[str, object] = {"id": str(uuid.uuid4()), "task_name": "t"} | columns
    names = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    await db.execute(f"INSERT INTO horsies_tasks ({names}) VALUES ({values})", row)  # noqa: S608
    return str(row["id"])


@pytest.mark.parametrize("table", TABLES)
async def test_d10_d11_d20_d25_d30_d35_d55_the_documented_columns_are_there(
    frozen: AsyncConnection, table: str
) -> None:
    found = await columns_of(frozen, table)
    assert {name: found.get(name) for name in TABLES[table]} == TABLES[table]


async def test_d01_every_timestamp_has_a_zone(frozen: AsyncConnection) -> None:
    kinds = {str(row[2]) for row in (await snapshot(frozen))["columns"] if "timestamp" in str(row[2])}
    assert kinds == {STAMP}


@pytest.mark.parametrize("table", INDEXES)
async def test_d12_d20_d25_d30_the_documented_indexes_are_there(frozen: AsyncConnection, table: str) -> None:
    assert INDEXES[table] <= set((await indexes_of(frozen, table)).values())


@pytest.mark.parametrize("table", FOREIGN_KEYS)
async def test_d20_d45_d50_foreign_keys_and_what_a_deletion_does(frozen: AsyncConnection, table: str) -> None:
    constraints = await constraints_of(frozen, table)
    found = {text.removesuffix(" NOT ENFORCED") for text in constraints if text.startswith("FOREIGN KEY")}
    assert found == FOREIGN_KEYS[table]


async def test_d10_a_plain_insert_of_id_name_queue_and_args_works(db: AsyncConnection) -> None:
    task_id = str(uuid.uuid4())
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, queue_name, args) VALUES (%s, 'add', 'default', '[1, 2]')",
        [task_id],
    )
    cursor = await db.execute(
        "SELECT status, priority, claimed, retry_count, max_retries, claim_seq, flags, sent_at = enqueued_at, "
        "enqueued_at <= now(), created_at = updated_at FROM horsies_tasks WHERE id = %s",
        [task_id],
    )
    assert await cursor.fetchone() == ("PENDING", 100, False, 0, 0, 0, {}, True, True, True)


async def test_d10_d36_d40_the_models_are_what_the_database_has(db: AsyncConnection) -> None:
    assert set(METADATA.tables) == {str(row[0]) for row in (await snapshot(db))["columns"]}
    for name, table in METADATA.tables.items():
        assert [column.name for column in table.columns] == list(await columns_of(db, name))


@pytest.mark.parametrize(
    ("column", "wrong", "right"),
    [
        ("priority", 0, 1),
        ("priority", 101, 100),
        ("retry_count", -1, 0),
        ("max_retries", -1, 0),
        ("status", "DONE", "EXPIRED"),
        ("status", "pending", "PENDING"),
    ],
)
async def test_d13_a_value_out_of_range_is_refused(
    db: AsyncConnection, column: str, wrong: object, right: object
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        await insert_task(db, **{column: wrong})
    await insert_task(db, **{column: right})


@pytest.mark.parametrize("status", list(TaskStatus))
async def test_d13_each_of_the_seven_statuses_is_allowed(db: AsyncConnection, status: TaskStatus) -> None:
    await insert_task(db, status=status.value)


async def insert_attempt(db: AsyncConnection, task_id: str, attempt: int, outcome: str = "FAILED") -> None:
    await db.execute(
        "INSERT INTO horsies_task_attempts (task_id, attempt, outcome, will_retry, started_at, finished_at) "
        "VALUES (%s, %s, %s, FALSE, now(), now())",
        [task_id, attempt, outcome],
    )


async def test_d20_an_attempt_number_is_given_once(db: AsyncConnection) -> None:
    task_id = await insert_task(db)
    await insert_attempt(db, task_id, 1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        await insert_attempt(db, task_id, 1)
    await insert_attempt(db, task_id, 2)


async def test_d20_only_the_three_outcomes_are_allowed(db: AsyncConnection) -> None:
    task_id = await insert_task(db)
    for number, outcome in enumerate(TaskAttemptOutcome, start=1):
        await insert_attempt(db, task_id, number, outcome.value)
    with pytest.raises(psycopg.errors.CheckViolation):
        await insert_attempt(db, task_id, 9, "CANCELLED")


async def test_d25_a_heartbeat_has_one_of_two_roles_and_needs_no_task(db: AsyncConnection) -> None:
    insert = "INSERT INTO horsies_heartbeats (task_id, sender_id, role) VALUES ('gone', 'w', %s)"
    for role in ("claimer", "runner"):
        await db.execute(insert, [role])
    with pytest.raises(psycopg.errors.CheckViolation):
        await db.execute(insert, ["parent"])


@pytest.mark.parametrize(
    ("table", "insert"),
    [
        ("horsies_heartbeats", "INSERT INTO horsies_heartbeats (task_id, sender_id, role) VALUES ('t', 'w', 'runner')"),
        ("horsies_worker_states", "INSERT INTO horsies_worker_states (worker_id) VALUES ('w')"),
    ],
)
async def test_d25_ids_begin_again_when_they_run_out(db: AsyncConnection, table: str, insert: str) -> None:
    await db.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), 2147483646)", [table])
    for _ in range(2):
        await db.execute(insert)
    cursor = await db.execute(f"SELECT id FROM {table} ORDER BY id")  # noqa: S608
    assert await cursor.fetchall() == [(1,), (2147483647,)]


async def test_t57_one_idempotency_key_per_task_name(db: AsyncConnection) -> None:
    await insert_task(db, task_name="a", idempotency_key="k")
    await insert_task(db, task_name="b", idempotency_key="k")
    with pytest.raises(psycopg.errors.UniqueViolation):
        await insert_task(db, task_name="a", idempotency_key="k")


@pytest.mark.parametrize(
    ("table", "column", "wrong"),
    [
        ("horsies_workflows", "status", "SKIPPED"),
        ("horsies_workflows", "on_error", "fail"),
        ("horsies_workflow_tasks", "status", "PAUSED"),
        ("horsies_workflow_tasks", "node_type", "NODE"),
        ("horsies_workflow_tasks", "join_type", "some"),
    ],
)
async def test_d45_d50_only_known_names_are_allowed(db: AsyncConnection, table: str, column: str, wrong: str) -> None:
    await db.execute("INSERT INTO horsies_workflows (id, name, definition_key, open_nodes) VALUES ('w', 'n', 'k', 1)")
    await db.execute(
        "INSERT INTO horsies_workflow_tasks (workflow_id, task_index, node_id, node_type, task_name) "
        "VALUES ('w', 0, 'a', 'TASK', 't')"
    )
    with pytest.raises(psycopg.errors.CheckViolation):
        await db.execute(f"UPDATE {table} SET {column} = %s", [wrong])  # noqa: S608


async def test_d60_the_table_of_those_who_wait_is_unlogged(db: AsyncConnection) -> None:
    storage = {str(row[0]): row[1] for row in (await snapshot(db))["storage"]}
    assert [name for name, kind in storage.items() if kind == "u"] == ["horsies_waiting"]


async def test_the_queue_table_leaves_room_and_is_vacuumed_early(db: AsyncConnection) -> None:
    options = {str(row[0]): row[2] for row in (await snapshot(db))["storage"]}["horsies_tasks"]
    assert isinstance(options, list)
    assert {"fillfactor=75", "autovacuum_vacuum_scale_factor=0.01"} <= set(options)


@pytest.fixture
def session(database_url: str) -> Iterator[Session]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    with Session(engine) as opened:
        yield opened
    engine.dispose()


@pytest.mark.parametrize("status", list(TaskStatus))
def test_t03_a_loaded_status_is_the_member(session: Session, status: TaskStatus) -> None:
    session.add(task_pg.TaskModel(id="x", task_name="t", status=status))
    session.commit()
    session.expire_all()
    loaded = session.scalars(select(task_pg.TaskModel)).one()
    assert loaded.status is status
    assert loaded.status == status.value
    assert loaded.sent_at.tzinfo is not None


def test_d71_rows_of_every_model_can_be_written_and_read(session: Session) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    rows = [
        task_pg.TaskModel(id="t", task_name="t", flags={"a": 1}),
        task_pg.TaskHeartbeatModel(task_id="t", sender_id="w", role="runner"),
        task_pg.WorkerStateModel(worker_id="w", queues=["a", "b"], queue_priorities={"a": 1}),
        task_pg.WorkerModel(worker_id="w", metadata_={"zone": "x"}, process_start=2**40),
        task_pg.ScheduleStateModel(schedule_name="s"),
        task_pg.ScheduleModel(name="s", definition={"task": "t"}),
        fleet_pg.WaitingModel(topic="monitor", holder="m", until=soon),
        workflow_pg.WorkflowModel(id="f", name="f", definition_key="f", open_nodes=1),
    ]
    session.add_all(rows)
    session.flush()
    session.add_all(
        [
            task_pg.TaskAttemptModel(
                task_id="t", attempt=1, outcome=TaskAttemptOutcome.COMPLETED, will_retry=False, finished_at=soon
            ),
            workflow_pg.WorkflowTaskModel(
                workflow_id="f", task_index=0, node_id="a", node_type="TASK", task_name="t", task_id="t"
            ),
        ]
    )
    session.commit()
    session.expire_all()
    assert session.scalars(select(task_pg.WorkerModel)).one().metadata_ == {"zone": "x"}
    assert session.scalars(select(task_pg.TaskAttemptModel)).one().outcome is TaskAttemptOutcome.COMPLETED
    node = session.scalars(select(workflow_pg.WorkflowTaskModel)).one()
    assert (node.dependencies, node.args_from, node.join_type) == ([], {}, "all")
