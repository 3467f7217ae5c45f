"""Writes docs/configuration.md from the settings themselves, so that names, defaults and limits cannot drift.

Run `python docs/generate.py` after a change of a setting or an option; with `--check` it only says whether it is due.
What a setting means is written here, beside its name; a setting without a meaning is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from horsies import (
    AppConfig,
    CustomQueueConfig,
    PayloadPolicy,
    PostgresConfig,
    RecoveryConfig,
    RetryPolicy,
    WorkerRecoveryConfig,
    WorkerResilienceConfig,
)
from horsies.cli.main import app as command_line
from horsies.core.worker.config import WorkerConfig

TARGET = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

Every setting with its type, default and limits. This page is written by `python docs/generate.py` from the code; a test
keeps it up to date. A value outside of its limits, or a name that does not exist, is refused when the object is built,
all mistakes at once. Settings are immutable.

"""

MEANINGS: dict[type[BaseModel], dict[str, str]] = {
    AppConfig: {
        "broker": "where the database is",
        "queue_mode": "one queue named `default`, or queues of your own",
        "custom_queues": "the queues of `QueueMode.CUSTOM`",
        "cluster_wide_cap": "most tasks CLAIMED or RUNNING in all workers together",
        "prefetch_buffer": "tasks a worker may claim beyond its slots; makes queue limits soft",
        "claim_lease_ms": "how long a claim holds without renewal; `None` means 60 000; needed with `prefetch_buffer`",
        "max_claim_renew_age_ms": "claims older than this are not renewed but left to expire",
        "recovery": "when single tasks are taken for dead",
        "worker_recovery": "sweeping of whole workers that are gone",
        "resilience": "how a worker waits for its database",
        "schedule": "tasks that are sent by the clock (to come)",
        "payload": "how large arguments and results may be",
        "exception_mapper": "exception class to error code, for exceptions that leave a task",
        "default_unhandled_error_code": "the code of exceptions that no mapper knows",
        "resend_on_transient_err": "try a send again by itself when the database fails (3 times, 200, 400, 800 ms)",
    },
    PostgresConfig: {
        "database_url": "`postgresql://…`, `postgresql+psycopg://…` or `embedded:DIRECTORY`; never shown",
        "session_database_url": "a direct address for LISTEN and the schema, when `database_url` leads to a pooler",
        "pgbouncer_transaction_mode": "no prepared statements; needs `session_database_url`",
        "pool_size": "connections a producer keeps",
        "max_overflow": "connections a producer may open beyond that",
        "worker_pool_size": "the same for a worker, beside its listener and its heart; `None`: as a producer",
        "worker_max_overflow": "the same for a worker; `None`: as a producer",
        "notify": "when an insert rings: always, only when somebody waits, or never (then polling finds tasks)",
        "pool_timeout": "seconds to wait for a connection",
        "pool_recycle": "seconds after which a connection is replaced",
        "pool_pre_ping": "look whether a connection still answers before it is used",
        "echo": "log every statement",
        "tcp_keepalives": "notice a server that is gone without a word",
        "tcp_keepalives_idle": "seconds of silence before the first probe",
        "tcp_keepalives_interval": "seconds between probes",
        "tcp_keepalives_count": "probes without an answer until the connection counts as lost",
        "tcp_user_timeout_ms": "the same for data under way; 0 leaves it to the operating system",
    },
    CustomQueueConfig: {
        "name": "1 to 52 letters, digits, `_`, `.` or `-`",
        "priority": "1 is served first",
        "max_concurrency": "most tasks of the queue in all workers together; `None`: no limit, 0: claim none",
    },
    PayloadPolicy: {
        "warn_bytes": "warn about arguments and results above this",
        "reject_bytes": "refuse to send arguments above this",
    },
    WorkerResilienceConfig: {
        "db_retry_initial_ms": "first pause after a failure of the database",
        "db_retry_max_ms": "the pauses double up to this",
        "db_retry_max_attempts": "failures in a row after which the worker gives up; 0: never",
        "notify_poll_interval_ms": "how often to look without having been notified",
    },
    RecoveryConfig: {
        "auto_requeue_stale_claimed": "give back claims whose worker is silent",
        "claimed_stale_threshold_ms": "how long that silence must last",
        "auto_fail_stale_running": "recover running tasks whose child is silent",
        "running_stale_threshold_ms": "how long that silence must last",
        "finalizing_stale_threshold_ms": "the same while a result waits to be written",
        "crashed_worker_recovery_grace_ms": "pause before workflow states are repaired",
        "check_interval_ms": "time between looks, also for tasks past their deadline",
        "runner_heartbeat_interval_ms": "time between signs of life of running tasks",
        "claimer_heartbeat_interval_ms": "time between signs of life and renewals of claims",
        "heartbeat_retention_hours": "how long heartbeats are kept; `None`: for ever",
        "worker_state_retention_hours": "how long snapshots of workers are kept",
        "terminal_record_retention_hours": "how long ended tasks are kept",
        "worker_state_snapshot_interval_ms": "time between snapshots",
        "use_liveness_evidence": "act sooner when a worker is proven to be gone",
    },
    WorkerRecoveryConfig: {
        "enabled": "setting anything else enables it, unless this says `False`",
        "heartbeat_interval": "time between refreshes of the worker's row",
        "sweep_interval": "time between sweeps",
        "sweep_threshold": "silence after which a worker counts as gone",
        "recovery_delay": "pause before a recovered task may run again",
        "resilient_sweep_threshold_multiplier": "so many times longer for workers that hold resilient tasks",
        "resilient_job_flags": "flags that make a task resilient",
        "max_recoveries_per_task": "after so many only the task's own retry policy brings it back; `None`: no limit",
    },
    RetryPolicy: {
        "auto_retry_for": "error codes that are retried",
        "max_retries": "how often",
        "intervals": "seconds before each retry (`fixed`), or one base that doubles (`exponential`)",
        "backoff_strategy": "`fixed` or `exponential`",
        "jitter": "vary each pause by a quarter",
    },
    WorkerConfig: {
        "dsn": "another database than the app's",
        "queues": "serve only these",
        "processes": "child processes",
        "max_claim_batch": "most tasks from one queue in one pass; 0: automatic",
        "max_claim_per_worker": "most tasks claimed and not started; 0: automatic",
        "app_locator": "where children find the app; by itself if a module holds it",
        "imports": "more modules for children to import",
        "max_tasks_per_child": "replace a child after so many tasks; 0: never, else at least 2",
        "max_memory_per_child_mb": "replace a child that uses more",
        "worker_recovery": "instead of the app's",
        "heartbeat_interval": "shortcut into `worker_recovery`",
        "sweep_interval": "shortcut into `worker_recovery`",
        "sweep_threshold": "shortcut into `worker_recovery`",
        "recovery_delay": "shortcut into `worker_recovery`",
        "concurrency": "async tasks at a time in each child",
        "run_ahead_ms": "work of very short tasks to hold for each child, see [workers](workers.md#run-ahead); 0: none",
        "shutdown_grace_ms": "cut off tasks that run this long after the stop; `None`: wait",
        "loglevel": "of the children",
        "log_format": "of the children: `text` or `json`",
    },
}


def page() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for model, meanings in MEANINGS.items():
        parts.append(f"## {model.__name__}\n\n{' '.join((model.__doc__ or '').split())}\n\n")
        parts.append(table(("field", "type", "default", "limits", "meaning"), fields(model, meanings)))
    parts.append("## `horsies worker`\n\nDurations `D`: seconds, or a number with `s`, `m` or `h`.\n\n")
    parts.append(table(("option", "default", "meaning"), options()))
    return "".join(parts).rstrip() + "\n"


def fields(model: type[BaseModel], meanings: dict[str, str]) -> Iterator[tuple[str, ...]]:
    missing = set(model.model_fields) ^ set(meanings)
    if missing:
        raise SystemExit(
            f"docs/generate.py: {model.__name__} has no meaning, or no field, for {', '.join(sorted(missing))}"
        )
    for name, field in model.model_fields.items():
        yield f"`{name}`", code(type_name(field.annotation)), default(field), limits(field), meanings[name]


def options() -> Iterator[tuple[str, ...]]:
    group: Any = typer.main.get_command(command_line)
    for option in group.commands["worker"].params:
        if option.param_type_name == "option" and option.name != "help":
            names = " / ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            unset = option.show_default if isinstance(option.show_default, str) else "none"
            yield names, unset if option.default is None else f"`{option.default}`", option.help or ""


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return {"SecretStr": "str", "NoneType": "None"}.get(annotation.__name__, annotation.__name__)
    parts = [type_name(part) for part in get_args(annotation) if part is not Ellipsis]
    origin = str(getattr(annotation, "__origin__", ""))
    if "Literal" in origin or "Literal" in str(annotation)[:16]:
        return " | ".join(repr(part) for part in get_args(annotation))
    if "Annotated" in str(annotation)[:18]:
        return parts[0]
    container = getattr(annotation, "__origin__", None)
    if container in (list, dict, tuple, type):
        return f"{container.__name__}[{', '.join(parts)}]"
    return " | ".join(dict.fromkeys(parts)) if parts else str(annotation)


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "all defaults"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}` s"
    return code(
        f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else repr(getattr(value, "value", value))
    )


def limits(field: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "at least", "max_length": "at most"}
    found = [
        f"{sign} {getattr(rule, name):_}"
        for rule in field.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join(found)


def code(text: str) -> str:
    return f"`{text}`"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page():
        return 0
    print("docs/configuration.md is out of date: run python docs/generate.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
