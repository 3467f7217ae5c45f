"""Every metric: its name, kind, labels and meaning. Tests check page, dashboard and alert rules against it.

Names of a worker's own numbers begin with `horsies_worker_`, those of a scheduler with `horsies_scheduler_`; the others
are read from the database, and every process that exposes them reports the same values.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One metric; the name of a counter ends in `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        if self.kind == "histogram":
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


# Read from the database: what is in the queues.
TASKS = Metric(
    "horsies_tasks",
    "gauge",
    "Tasks by status, queue and name; ended tasks only of the last hour.",
    ("status", "queue", "task"),
)
QUEUE_TASKS = Metric(
    "horsies_queue_tasks",
    "gauge",
    "Tasks of a queue that have not ended: due, scheduled for later, claimed, running. See horsies_queue_estimated.",
    ("queue", "state"),
)
QUEUE_OLDEST = Metric(
    "horsies_queue_oldest_due_seconds",
    "gauge",
    "How long the oldest due task of a queue has been waiting; 0 if there is none.",
    ("queue",),
)
QUEUE_ESTIMATED = Metric(
    "horsies_queue_estimated",
    "gauge",
    "1 if more tasks wait in a queue than are counted: their number is estimated from a sample of the table.",
    ("queue",),
)
QUEUE_ENDED = Metric(
    "horsies_queue_ended_last_minute", "gauge", "Tasks of a queue that ended in the last minute.", ("queue",)
)
QUEUE_LIMIT = Metric(
    "horsies_queue_max_concurrency", "gauge", "The concurrency limit of a queue, if it has one.", ("queue",)
)
QUEUE_WORKERS = Metric("horsies_queue_live_workers", "gauge", "Live workers that serve a queue.", ("queue",))
WORKFLOWS = Metric("horsies_workflows", "gauge", "Workflows by status.", ("status",))
WORKERS = Metric("horsies_workers", "gauge", "Registered workers: live, or silent for too long.", ("state",))
SILENCE = Metric("horsies_workers_longest_silence_seconds", "gauge", "The longest silence of a registered worker.")
SCHEDULE_LAG = Metric(
    "horsies_schedule_lag_seconds", "gauge", "How long the next run of a schedule has been overdue.", ("schedule",)
)
SCHEDULE_NEXT = Metric(
    "horsies_schedule_next_run_timestamp_seconds",
    "gauge",
    "When a schedule runs next, seconds since 1970.",
    ("schedule",),
)
NOTIFY_USAGE = Metric(
    "horsies_notify_queue_usage_ratio", "gauge", "How full the server's notification queue is, 0 to 1."
)
LISTENERS = Metric(
    "horsies_notify_listeners", "gauge", "Sessions that listen for notifications, as far as this user can see them."
)
SESSIONS = Metric("horsies_database_sessions", "gauge", "Sessions of this database.")
OLDEST_TRANSACTION = Metric(
    "horsies_database_oldest_transaction_seconds", "gauge", "The age of the oldest open transaction of this database."
)

# About the reading itself.
DATABASE_UP = Metric("horsies_database_up", "gauge", "1 if the last reading of the database succeeded.")
READING_AGE = Metric("horsies_reading_age_seconds", "gauge", "How old the numbers from the database are.")
READING_SECONDS = Metric("horsies_reading_seconds", "gauge", "How long the last reading of the database took.")
READING_MISSING = Metric(
    "horsies_reading_missing",
    "gauge",
    "1 if this part of the last reading failed; its numbers are absent.",
    ("part",),
)
READING_ERRORS = Metric("horsies_reading_errors_total", "counter", "Readings of the database that failed.")

# What a scheduler knows of itself.
CHECK_AGE = Metric(
    "horsies_scheduler_check_age_seconds", "gauge", "How long ago this scheduler's last check succeeded."
)
SCHEDULER_READY = Metric("horsies_scheduler_ready", "gauge", "1 if /readyz would answer 200.")

# What a worker knows of itself.
INFO = Metric(
    "horsies_worker_info", "gauge", "Always 1; the labels identify the worker.", ("worker_id", "hostname", "version")
)
READY = Metric("horsies_worker_ready", "gauge", "1 if /readyz would answer 200.")
SLOTS = Metric("horsies_worker_slots", "gauge", "Tasks that can run at the same time.")
IN_HAND = Metric(
    "horsies_worker_tasks_in_hand", "gauge", "Tasks that this worker holds: claimed, started, settling.", ("phase",)
)
ENDED = Metric(
    "horsies_worker_tasks_total",
    "counter",
    "Outcomes written: completed, failed, retried, expired, handed_back; lost: another worker has the task by now.",
    ("queue", "task", "outcome"),
)
QUEUE_SECONDS = Metric(
    "horsies_worker_task_queue_seconds",
    "histogram",
    "From when a task was due (for a plain send: sent) to its first start.",
    ("queue",),
)
RUN_SECONDS = Metric(
    "horsies_worker_task_run_seconds", "histogram", "From the start of a task's code to its end.", ("task",)
)
CLAIM_SIZE = Metric("horsies_worker_claim_batch_size", "histogram", "Tasks that one claim pass took.")
CLAIM_SECONDS = Metric("horsies_worker_claim_seconds", "histogram", "How long a claim pass takes.")
START_SIZE = Metric("horsies_worker_start_batch_size", "histogram", "Tasks that one statement made RUNNING.")
START_SECONDS = Metric("horsies_worker_start_seconds", "histogram", "How long making them RUNNING takes.")
FINALIZE_SIZE = Metric("horsies_worker_finalize_batch_size", "histogram", "Outcomes that were written together.")
FINALIZE_SECONDS = Metric("horsies_worker_finalize_seconds", "histogram", "How long writing outcomes takes.")
ABORTS = Metric(
    "horsies_worker_start_aborts_total", "counter", "Claimed tasks that were not run, by reason.", ("reason",)
)
CRASHES = Metric("horsies_worker_crashed_tasks_total", "counter", "Tasks whose child process died while it ran them.")
RECOVERED = Metric(
    "horsies_worker_recovered_tasks_total",
    "counter",
    "Tasks of other workers that this worker recovered: requeued, retried, failed, expired.",
    ("what",),
)
EXPIRED = Metric(
    "horsies_worker_expired_waiting_total", "counter", "Waiting tasks past their deadline that this worker ended."
)
SWEEPS = Metric("horsies_worker_sweeps_total", "counter", "Sweeps by this worker that found dead workers.")
SWEPT = Metric("horsies_worker_swept_workers_total", "counter", "Dead workers that this worker swept.")
CHILDREN = Metric("horsies_worker_children", "gauge", "Child processes: ready, starting, retiring.", ("state",))
CHILD_ENDS = Metric(
    "horsies_worker_child_ends_total", "counter", "Child processes that ended, expected or not.", ("how",)
)
MEMORY = Metric(
    "horsies_worker_memory_bytes", "gauge", "Resident memory of the supervisor and of all children.", ("part",)
)
LISTENING = Metric(
    "horsies_worker_listener_connected",
    "gauge",
    "1 while the worker receives notifications; absent if it polls, behind a transaction pooler.",
)
LOSSES = Metric("horsies_worker_listener_losses_total", "counter", "How often the listening session was lost.")
HEARD = Metric("horsies_worker_notifications_total", "counter", "Notifications that this worker has received.")
LOOP_LAG = Metric(
    "horsies_worker_loop_lag_seconds",
    "gauge",
    "The largest delay of the supervisor's event loop since the last scrape.",
)


def metrics() -> Iterator[Metric]:
    """All metrics, in the order above."""
    for value in globals().values():
        if isinstance(value, Metric):
            yield value
