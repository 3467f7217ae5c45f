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

from horsies.core.models import task_pg, workflow_pg
from horsies.core.types.status import TaskAttemptOutcome, TaskStatus
from tests.store.catalog import Column, columns_of, constraints_of, indexes_of, snapshot

STAMP = "timestamp with time zone"
NOW = Column(STAMP, True, "now()")
INSTANT = Column(STAMP, False, None)
TEXT = Column("text", False, None)
INT = Column("integer", False, None)
COUNTER = Column("integer", True, "0")
FLAG = Column("boolean", True, "false")
JSON = Column("jsonb", False, None)
OBJECT = Column("jsonb", True, "'{}'::jsonb")
FLOAT = Column("double precision", False, None)


def chars(length: int, *, required: bool = False, default: str | None = None) -> Column:
    text = None if default is None else f"'{default}'::character varying"
    return Column(f"character varying({length})", required or default is not None, text)


TASKS = {
    "id": chars(36, required=True),
    "task_name": chars(255, required=True),
    "queue_name": chars(100, default="default"),
    "priority": Column("integer", True, "100"),
    "args": TEXT,
    "kwargs": TEXT,
    "status": chars(20, default="PENDING"),
    "sent_at": NOW,
    "enqueued_at": NOW,
    "claimed_at": INSTANT,
    "started_at": INSTANT,
    "completed_at": INSTANT,
    "failed_at": INSTANT,
    "result": TEXT,
    "failed_reason": TEXT,
    "error_code": TEXT,
    "claimed": FLAG,
    "claimed_by_worker_id": chars(255),
    "good_until": INSTANT,
    "retry_count": COUNTER,
    "max_retries": COUNTER,
    "next_retry_at": INSTANT,
    "task_options": TEXT,
    "worker_pid": INT,
    "worker_hostname": chars(255),
    "worker_process_name": chars(255),
    "claim_expires_at": INSTANT,
    "enqueue_sha": chars(64),
    "created_at": NOW,
    "updated_at": NOW,
}
TASKS_ADDED = {
    "finalizing_at": INSTANT,
    "claim_seq": COUNTER,
    "flags": OBJECT,
    "recovery_enrolled": FLAG,
    "start_failures": COUNTER,
    "workflow_id": chars(36),
    "idempotency_key": chars(255),
}
ATTEMPTS = {
    "id": Column("bigint", True, "nextval('horsies_task_attempts_id_seq'::regclass)"),
    "task_id": chars(36, required=True),
    "attempt": Column("integer", True, None),
    "outcome": chars(32, required=True),
    "will_retry": Column("boolean", True, None),
    "started_at": INSTANT,
    "finished_at": Column(STAMP, True, None),
    "error_code": TEXT,
    "error_message": TEXT,
    "failed_reason": TEXT,
    "worker_id": chars(255),
    "worker_hostname": chars(255),
    "worker_process_name": chars(255),
    "worker_pid": INT,
    "created_at": NOW,
}
HEARTBEATS = {
    "id": Column("integer", True, "identity"),
    "task_id": chars(36, required=True),
    "sender_id": chars(255, required=True),
    "role": chars(20, required=True),
    "sent_at": NOW,
    "hostname": chars(255),
    "pid": INT,
}
WORKER_STATES = {
    "id": Column("integer", True, "identity"),
    "worker_id": chars(255, required=True),
    "snapshot_at": NOW,
    "hostname": chars(255),
    "pid": INT,
    "processes": INT,
    "queues": Column("character varying[]", False, None),
    "tasks_running": INT,
    "tasks_claimed": INT,
    "memory_usage_mb": FLOAT,
    "cpu_percent": FLOAT,
    "memory_percent": FLOAT,
    "max_claim_batch": INT,
    "max_claim_per_worker": INT,
    "cluster_wide_cap": INT,
    "queue_priorities": JSON,
    "queue_max_concurrency": JSON,
    "recovery_config": JSON,
    "worker_started_at": INSTANT,
    "children_memory_mb": FLOAT,
}
SCHEDULE_STATE = {
    "schedule_name": chars(255, required=True),
    "last_run_at": INSTANT,
    "next_run_at": INSTANT,
    "last_task_id": chars(36),
    "run_count": COUNTER,
    "config_hash": chars(64),
    "updated_at": NOW,
}
SCHEDULES = {
    "name": chars(255, required=True),
    "definition": Column("jsonb", True, None),
    "paused": FLAG,
    "created_at": NOW,
    "updated_at": NOW,
}
WORKERS = {
    "worker_id": chars(255, required=True),
    "started_at": NOW,
    "last_heartbeat_at": NOW,
    "hostname": chars(255),
    "pid": INT,
    "boot_id": chars(64),
    "pid_namespace": chars(64),
    "process_start": Column("bigint", False, None),
    "liveness_key": Column("bigint", False, None),
    "sweeping": FLAG,
    "queues": Column("character varying[]", False, None),
    "recovery": JSON,
    "metadata": OBJECT,
}
WORKFLOWS = {
    "id": chars(36, required=True),
    "name": chars(255, required=True),
    "definition_key": chars(255, required=True),
    "status": chars(20, default="PENDING"),
    "on_error": chars(10, default="FAIL"),
    "output_index": INT,
    "success_policy": JSON,
    "result": TEXT,
    "error": TEXT,
    "error_code": TEXT,
    "parent_workflow_id": chars(36),
    "parent_task_index": INT,
    "root_workflow_id": chars(36),
    "depth": COUNTER,
    "good_until": INSTANT,
    "open_nodes": Column("integer", True, None),
    "sent_at": NOW,
    "created_at": NOW,
    "updated_at": NOW,
    "started_at": INSTANT,
    "paused_at": INSTANT,
    "completed_at": INSTANT,
}
INT_LIST = Column("integer[]", True, "'{}'::integer[]")
WORKFLOW_TASKS = {
    "id": Column("bigint", True, "nextval('horsies_workflow_tasks_id_seq'::regclass)"),
    "workflow_id": chars(36, required=True),
    "task_index": Column("integer", True, None),
    "node_id": chars(140, required=True),
    "node_type": chars(16, required=True),
    "task_name": chars(255, required=True),
    "task_kwargs": TEXT,
    "queue_name": chars(100),
    "priority": INT,
    "task_options": TEXT,
    "flags": JSON,
    "good_until": INSTANT,
    "dependencies": INT_LIST,
    "dependents": INT_LIST,
    "deps_total": COUNTER,
    "deps_completed": COUNTER,
    "deps_failed": COUNTER,
    "deps_skipped": COUNTER,
    "args_from": OBJECT,
    "workflow_ctx_from": Column("integer[]", False, None),
    "join_type": chars(10, default="all"),
    "min_success": INT,
    "allow_failed_deps": FLAG,
    "status": chars(20, default="PENDING"),
    "task_id": chars(36),
    "previous_task_ids": Column("character varying(36)[]", True, "'{}'::character varying[]"),
    "map_index": INT,
    "map_position": INT,
    "map_options": JSON,
    "sub_workflow_key": chars(255),
    "sub_workflow_id": chars(36),
    "sub_workflow_summary": TEXT,
    "result": TEXT,
    "error_code": TEXT,
    "created_at": NOW,
    "updated_at": NOW,
    "ready_at": INSTANT,
    "enqueued_at": INSTANT,
    "started_at": INSTANT,
    "completed_at": INSTANT,
}
META = {"key": chars(64, required=True), "value": Column("text", True, None)}
WAITING = {
    "topic": chars(120, required=True),
    "holder": chars(255, required=True),
    "until": Column(STAMP, True, None),
}
TABLES = {
    "horsies_tasks": TASKS | TASKS_ADDED,
    "horsies_task_attempts": ATTEMPTS,
    "horsies_heartbeats": HEARTBEATS,
    "horsies_worker_states": WORKER_STATES,
    "horsies_schedule_state": SCHEDULE_STATE,
    "horsies_schedules": SCHEDULES,
    "horsies_workers": WORKERS,
    "horsies_workflows": WORKFLOWS,
    "horsies_workflow_tasks": WORKFLOW_TASKS,
    "horsies_meta": META,
    "horsies_waiting": WAITING,
}
RULE_OF_TABLE = {
    "horsies_tasks": "d10_d11",
    "horsies_task_attempts": "d20",
    "horsies_heartbeats": "d25",
    "horsies_worker_states": "d30",
    "horsies_schedule_state": "d35",
    "horsies_schedules": "d36",
    "horsies_workers": "d40",
    "horsies_workflows": "d45",
    "horsies_workflow_tasks": "d50",
    "horsies_meta": "d55",
    "horsies_waiting": "d60",
}
INDEXES = {
    "horsies_tasks": {
        "UNIQUE (id)",
        "(queue_name, priority, enqueued_at, id) WHERE ((status)::text = 'PENDING'::text)",
        "(claimed_by_worker_id) WHERE claimed",
        "(good_until) WHERE (((status)::text = 'PENDING'::text) AND (good_until IS NOT NULL))",
        "(next_retry_at) WHERE (((status)::text = 'PENDING'::text) AND (next_retry_at IS NOT NULL))",
        "(error_code) WHERE (error_code IS NOT NULL)",
        "(COALESCE(completed_at, failed_at, updated_at)) WHERE ((status)::text = ANY ((ARRAY["
        "'COMPLETED'::character varying, 'FAILED'::character varying, 'CANCELLED'::character varying, "
        "'EXPIRED'::character varying])::text[]))",
        "UNIQUE (task_name, idempotency_key) WHERE (idempotency_key IS NOT NULL)",
    },
    "horsies_task_attempts": {
        "UNIQUE (id)",
        "UNIQUE (task_id, attempt)",
        "(error_code) WHERE (error_code IS NOT NULL)",
        "(finished_at DESC)",
    },
    "horsies_heartbeats": {"UNIQUE (id)", "(task_id, role, sent_at DESC)", "(sent_at)"},
    "horsies_worker_states": {"UNIQUE (id)", "(worker_id, snapshot_at DESC)", "(snapshot_at)"},
    "horsies_schedule_state": {"UNIQUE (schedule_name)"},
    "horsies_schedules": {"UNIQUE (name)"},
    "horsies_workers": {"UNIQUE (worker_id)", "(last_heartbeat_at)"},
    "horsies_workflows": {
        "UNIQUE (id)",
        "(status)",
        "(name)",
        "(definition_key)",
        "(parent_workflow_id)",
        "(completed_at)",
    },
    "horsies_workflow_tasks": {
        "UNIQUE (id)",
        "UNIQUE (workflow_id, task_index)",
        "UNIQUE (workflow_id, node_id)",
        "UNIQUE (task_id) WHERE (task_id IS NOT NULL)",
        "(workflow_id, status)",
        "(sub_workflow_id)",
    },
    "horsies_meta": {"UNIQUE (key)"},
    "horsies_waiting": {"UNIQUE (topic, holder)"},
}
FOREIGN_KEYS = {
    "horsies_task_attempts": {"FOREIGN KEY (task_id) REFERENCES horsies_tasks(id) ON DELETE CASCADE"},
    "horsies_workflows": {"FOREIGN KEY (parent_workflow_id) REFERENCES horsies_workflows(id) ON DELETE CASCADE"},
    "horsies_workflow_tasks": {
        "FOREIGN KEY (workflow_id) REFERENCES horsies_workflows(id) ON DELETE CASCADE",
        "FOREIGN KEY (task_id) REFERENCES horsies_tasks(id) ON DELETE SET NULL",
        "FOREIGN KEY (sub_workflow_id) REFERENCES horsies_workflows(id) ON DELETE SET NULL",
    },
}


async def insert_task(db: AsyncConnection, **columns: object) -> str:
    """Insert a row with plain SQL, giving only what is named."""
    row: dict[str, object] = {"id": str(uuid.uuid4()), "task_name": "t"} | columns
    names = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    await db.execute(f"INSERT INTO horsies_tasks ({names}) VALUES ({values})", row)  # noqa: S608
    return str(row["id"])


@pytest.mark.parametrize("table", TABLES, ids=[f"{RULE_OF_TABLE[name]}-{name}" for name in TABLES])
async def test_every_table_has_exactly_the_columns_of_its_rule(db: AsyncConnection, table: str) -> None:
    assert await columns_of(db, table) == TABLES[table]


async def test_d70_there_are_no_other_tables(db: AsyncConnection) -> None:
    assert {str(row[0]) for row in (await snapshot(db))["columns"]} == set(TABLES)


async def test_d01_every_timestamp_has_a_zone(db: AsyncConnection) -> None:
    kinds = {str(row[2]) for row in (await snapshot(db))["columns"] if "timestamp" in str(row[2])}
    assert kinds == {STAMP}


@pytest.mark.parametrize("table", TABLES, ids=[f"{RULE_OF_TABLE[name]}-{name}" for name in TABLES])
async def test_d12_every_table_has_exactly_the_indexes_of_its_rule(db: AsyncConnection, table: str) -> None:
    assert set((await indexes_of(db, table)).values()) == INDEXES[table]


@pytest.mark.parametrize("table", TABLES)
async def test_d20_d45_d50_foreign_keys_and_what_a_deletion_does(db: AsyncConnection, table: str) -> None:
    found = {text for text in await constraints_of(db, table) if text.startswith("FOREIGN KEY")}
    assert found == FOREIGN_KEYS.get(table, set())


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


async def test_d10_the_models_are_what_the_database_has(db: AsyncConnection) -> None:
    assert set(task_pg.Base.metadata.tables) == set(TABLES)
    for name, table in task_pg.Base.metadata.tables.items():
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


async def test_d20_d72_attempts_go_with_their_task(db: AsyncConnection) -> None:
    task_id = await insert_task(db)
    await insert_attempt(db, task_id, 1)
    await db.execute("DELETE FROM horsies_tasks WHERE id = %s", [task_id])
    assert await (await db.execute("SELECT count(*) FROM horsies_task_attempts")).fetchone() == (0,)


async def test_d20_an_attempt_needs_its_task(db: AsyncConnection) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        await insert_attempt(db, str(uuid.uuid4()), 1)


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
        task_pg.WaitingModel(topic="monitor", holder="m", until=soon),
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
