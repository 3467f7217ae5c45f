"""What the contract says about each table: columns with types and defaults, indexes, foreign keys."""

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
    "is_held": FLAG,
    "sent_by": chars(63),
    # Generated from the others, for the indexes.
    "is_waiting": Column("boolean", True, "((status)::text = 'PENDING'::text)"),
    "ended_at": Column(
        STAMP,
        False,
        "\nCASE\n    WHEN ((status)::text = ANY ((ARRAY['COMPLETED'::character varying, 'FAILED'::character varying,"
        " 'CANCELLED'::character varying, 'EXPIRED'::character varying])::text[]))"
        " THEN COALESCE(completed_at, failed_at, updated_at)\n    ELSE NULL::timestamp with time zone\nEND",
    ),
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
    "names_hash": chars(64),
    "drain_requested_at": INSTANT,
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
    "is_over": Column("boolean", True, "(((status)::text = 'RUNNING'::text) AND (open_nodes = 0))"),
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
    "queues": Column("text[]", False, None),
    "wake_key": Column("bigint", False, None),
    "leaves": Column("text[]", False, None),
}
KNOWN_NAMES = {
    "names_hash": chars(64, required=True),
    "names": Column("text[]", True, None),
    "since": NOW,
    "seen_at": NOW,
}
LEFT_TASKS = {"task_id": chars(36, required=True), "left_at": NOW, "reason": TEXT}
BIG = Column("bigint", True, None)
LOAD = {
    "queue_name": chars(100, required=True),
    "number": BIG,
    "held": BIG,
    "running": BIG,
    "after_xid": Column("bigint", True, "0"),
    "open_xids": Column("bigint[]", True, "'{}'::bigint[]"),
    "used_at": NOW,
}
LOAD_MOVES = {
    "queue_name": chars(100, required=True),
    "xid": BIG,
    "id": Column("bigint", True, "identity"),
    "held": Column("integer", True, None),
    "running": Column("integer", True, None),
}
NUMBER = Column("integer", True, None)
PROGRESS = {
    "task_id": chars(36, required=True),
    "claim_seq": NUMBER,
    "attempt": NUMBER,
    "done": Column("double precision", True, None),
    "total": FLOAT,
    "message": TEXT,
    "first_done": Column("double precision", True, None),
    "first_at": NOW,
    "updated_at": NOW,
}
LOGS = {
    "task_id": chars(36, required=True),
    "claim_seq": NUMBER,
    "first_line": NUMBER,
    "last_line": NUMBER,
    "attempt": NUMBER,
    "lines": Column("text", True, None),
    "written_at": NOW,
}
COUNT = Column("bigint", True, "0")
SUM = Column("double precision", True, "0")
BUCKETS = Column("bigint[]", True, "'{}'::bigint[]")
ROLLUP = {
    "span": NUMBER,
    "start_at": Column(STAMP, True, None),
    "queue_name": chars(100, required=True),
    "task_name": chars(255, required=True),
    "error_code": chars(255, required=True),
    "completed": COUNT,
    "failed": COUNT,
    "retried": COUNT,
    "expired": COUNT,
    "cancelled": COUNT,
    "wait_seconds": SUM,
    "wait_counts": BUCKETS,
    "run_seconds": SUM,
    "run_counts": BUCKETS,
    "example_id": chars(36),
    "waiting": Column("bigint", False, None),
    "oldest_due_seconds": FLOAT,
    "running": Column("bigint", False, None),
}
AUDIT = {
    "id": Column("bigint", True, "identity"),
    "at": NOW,
    "ended_at": INSTANT,
    "actor": chars(255, required=True),
    "action": chars(64, required=True),
    "target_kind": chars(32, required=True),
    "target_ids": Column("text[]", True, "'{}'::text[]"),
    "outcome": chars(32, default="begun"),
    "details": OBJECT,
}
TASK_DEFAULTS = {
    "task_name": chars(255, required=True),
    "queue_name": chars(100, required=True),
    "priority": NUMBER,
    "max_retries": Column("integer", True, "0"),
    "task_options": TEXT,
    "flags": TEXT,
    "queues": OBJECT,
    "reject_bytes": Column("integer", False, None),
    "published_at": NOW,
}
EARLY_TASKS = {
    "task_id": chars(36, required=True),
    "task_name": chars(255, required=True),
    "queue_name": chars(100),
    "priority": Column("integer", False, None),
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
    "horsies_load": LOAD,
    "horsies_load_moves": LOAD_MOVES,
    "horsies_task_progress": PROGRESS,
    "horsies_task_logs": LOGS,
    "horsies_known_names": KNOWN_NAMES,
    "horsies_left_tasks": LEFT_TASKS,
    "horsies_rollup": ROLLUP,
    "horsies_audit": AUDIT,
    "horsies_task_defaults": TASK_DEFAULTS,
    "horsies_early_tasks": EARLY_TASKS,
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
    "horsies_load": "d56",
    "horsies_load_moves": "d56",
    "horsies_task_progress": "d22",
    "horsies_task_logs": "d23",
    "horsies_known_names": "d57",
    "horsies_left_tasks": "d58",
    "horsies_rollup": "d59",
    "horsies_audit": "d59a",
    "horsies_task_defaults": "d59b",
    "horsies_early_tasks": "d59c",
}


def among(*states: str) -> str:
    """As PostgreSQL writes `status IN (…)`."""
    listed = ", ".join(f"'{state}'::character varying" for state in states)
    return f"((status)::text = ANY ((ARRAY[{listed}])::text[]))"


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
    "horsies_schedules": {"UNIQUE (name)"},
    "horsies_workers": {"UNIQUE (worker_id)", "(last_heartbeat_at)"},
    "horsies_workflows": {
        "UNIQUE (id)",
        "(status)",
        "(name)",
        "(definition_key)",
        "(parent_workflow_id)",
        "(completed_at)",
        "(id) WHERE is_over",
        f"(good_until, id) WHERE ((good_until IS NOT NULL) AND {among('PENDING', 'RUNNING', 'PAUSED')})",
    },
    "horsies_workflow_tasks": {
        "UNIQUE (id)",
        "UNIQUE (workflow_id, task_index)",
        "UNIQUE (workflow_id, node_id)",
        "UNIQUE (task_id) WHERE (task_id IS NOT NULL)",
        "(workflow_id, status, task_index)",
        "(sub_workflow_id) WHERE (sub_workflow_id IS NOT NULL)",
        f"(workflow_id, task_index) WHERE {among('READY', 'ENQUEUED', 'RUNNING')}",
    },
    "horsies_meta": {"UNIQUE (key)"},
    "horsies_waiting": {"UNIQUE (topic, holder)"},
    "horsies_load": {"UNIQUE (queue_name, number)"},
    "horsies_load_moves": {"UNIQUE (queue_name, xid, id)"},
    "horsies_task_progress": {"UNIQUE (task_id)"},
    "horsies_task_logs": {"UNIQUE (task_id, claim_seq, first_line)", "(written_at)"},
    "horsies_known_names": {"UNIQUE (names_hash)"},
    "horsies_left_tasks": {"UNIQUE (task_id)", "(left_at)"},
    "horsies_rollup": {"UNIQUE (span, start_at, queue_name, task_name, error_code)"},
    "horsies_audit": {"UNIQUE (id)", "(at)", "USING gin (target_ids)"},
    "horsies_task_defaults": {"UNIQUE (task_name)"},
    "horsies_early_tasks": {"UNIQUE (task_id)", "(task_name, task_id)"},
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
