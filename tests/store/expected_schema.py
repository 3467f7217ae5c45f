"""What users of the tables can rely on: the columns that the documentation has named from the beginning, with types and
defaults, their indexes, and what is deleted with what. The table models say what else there is."""

from __future__ import annotations

from tests.store.catalog import Column

STAMP = "timestamp with time zone"
NOW = Column(STAMP, True, "now()")
INSTANT = Column(STAMP, False, None)
TEXT = Column("text", False, None)
INT = Column("integer", False, None)
COUNTER = Column("integer", True, "0")
FLAG = Column("boolean", True, "false")
JSON = Column("jsonb", False, None)
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
    "finalizing_at": INSTANT,
    "claim_seq": COUNTER,
    "flags": Column("jsonb", True, "'{}'::jsonb"),
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
TABLES = {
    "horsies_tasks": TASKS,
    "horsies_task_attempts": ATTEMPTS,
    "horsies_heartbeats": HEARTBEATS,
    "horsies_worker_states": WORKER_STATES,
    "horsies_schedule_state": SCHEDULE_STATE,
    "horsies_meta": {"key": chars(64, required=True), "value": Column("text", True, None)},
}
INDEXES = {
    "horsies_tasks": {
        "UNIQUE (id)",
        "(queue_name, priority, is_held, enqueued_at, id) WHERE is_waiting",
        "(workflow_id, id) WHERE (is_held AND is_waiting)",
        "(claimed_by_worker_id) WHERE claimed",
        "(good_until) WHERE (is_waiting AND (good_until IS NOT NULL))",
        "(next_retry_at) WHERE (is_waiting AND (next_retry_at IS NOT NULL))",
        "(error_code) WHERE (error_code IS NOT NULL)",
        "(ended_at) WHERE (ended_at IS NOT NULL)",
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
}
# PostgreSQL 18 says NOT ENFORCED after these two: `test_keys_to_tasks.py`.
ATTEMPTS_KEY = "FOREIGN KEY (task_id) REFERENCES horsies_tasks(id) ON DELETE CASCADE"
NODES_KEY = "FOREIGN KEY (task_id) REFERENCES horsies_tasks(id) ON DELETE SET NULL"
FOREIGN_KEYS = {
    "horsies_task_attempts": {ATTEMPTS_KEY},
    "horsies_workflows": {"FOREIGN KEY (parent_workflow_id) REFERENCES horsies_workflows(id) ON DELETE CASCADE"},
    "horsies_workflow_tasks": {
        "FOREIGN KEY (workflow_id) REFERENCES horsies_workflows(id) ON DELETE CASCADE",
        NODES_KEY,
        "FOREIGN KEY (sub_workflow_id) REFERENCES horsies_workflows(id) ON DELETE SET NULL",
    },
}
