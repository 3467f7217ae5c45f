"""What a worker makes of its settings, before it does anything (W-02, W-04, W-06, W-07, W-25, W-41, W-60, T-10)."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
from typing import Any

import psycopg
import pytest

from horsies import AppConfig, Horsies, PostgresConfig
from horsies.core.errors import ConfigurationError
from horsies.core.loop import DatabaseGone, Patience
from horsies.core.models.queues import CustomQueueConfig, QueueMode
from horsies.core.models.recovery import WorkerResilienceConfig
from horsies.core.worker.config import (
    Plan,
    WorkerConfig,
    cpu_limit,
    identify,
    usable_processors,
)
from tests.each import each

QUEUES = [
    CustomQueueConfig(name="slow", priority=50),
    CustomQueueConfig(name="fast", priority=1, max_concurrency=None),
    CustomQueueConfig(name="other", priority=50),
]


def plan(postgres: dict[str, Any] | None = None, config: dict[str, Any] | None = None, **app: Any) -> Plan:
    broker = PostgresConfig(database_url="postgresql://u:p@h/d", **(postgres or {}))
    settings = {"app_locator": "shop:app", **(config or {})}
    return Plan.of(Horsies(AppConfig(broker=broker, **app)), WorkerConfig(**settings))


def test_w02_a_worker_is_named_after_host_and_process_and_anew_each_time() -> None:
    one, two = identify(), identify()
    assert re.fullmatch(rf"{re.escape(socket.gethostname()[:200])}:{os.getpid()}:[0-9a-f]{{8}}", one.worker_id)
    assert one.worker_id != two.worker_id and one.liveness_key != two.liveness_key
    assert (one.hostname, one.pid) == (socket.gethostname(), os.getpid())
    assert len(one.worker_id) <= 255


def test_w04_defaults_of_a_worker() -> None:
    assert {name: value for name, value in WorkerConfig() if name not in ("loglevel", "log_format")} == {
        "dsn": None,
        "queues": None,
        "processes": None,
        "max_claim_batch": 0,
        "max_claim_per_worker": 0,
        "app_locator": None,
        "imports": (),
        "max_tasks_per_child": 0,
        "max_memory_per_child_mb": None,
        "worker_recovery": None,
        "heartbeat_interval": None,
        "sweep_interval": None,
        "sweep_threshold": None,
        "recovery_delay": None,
        "concurrency": None,
        "run_ahead_ms": 20,
        "max_held_bytes": 64 * 1024 * 1024,
        "shutdown_grace_ms": None,
        "metrics_port": None,
        "metrics_host": "127.0.0.1",
        "with_scheduler": False,
    }


@each(
    "wrong",
    [
        {"processes": 0},
        {"concurrency": 0},
        {"max_claim_batch": -1},
        {"max_claim_per_worker": -1},
        {"max_memory_per_child_mb": 0},
        {"run_ahead_ms": -1},
        {"shutdown_grace_ms": -1},
        {"procesess": 2},
    ],
)
def test_w04_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WorkerConfig(**wrong)


def test_w04_the_password_of_another_database_is_not_shown() -> None:
    assert "sesame" not in repr(WorkerConfig(dsn="postgresql://u:sesame@h/d"))
    elsewhere = plan(config={"dsn": "postgresql://u:sesame@h2/d"})
    assert "h2" in elsewhere.postgres.display_url() and "sesame" not in repr(elsewhere.postgres)


def test_w06_the_default_queue_or_all_configured_ones_in_claiming_order() -> None:
    assert plan().queues == ["default"]
    custom = plan(queue_mode=QueueMode.CUSTOM, custom_queues=QUEUES)
    assert custom.queues == ["fast", "slow", "other"]  # W-22: by priority, then as configured


def test_w06_a_queue_that_the_app_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(ConfigurationError, match="'mail'") as caught:
        plan(queue_mode=QueueMode.CUSTOM, custom_queues=QUEUES, config={"queues": ("fast", "mail")})
    assert "fast, slow, other" in (caught.value.help_text or "")


@each(
    ("config", "prefetch", "effective"),
    [({"processes": 3}, 0, 3), ({"processes": 3, "concurrency": 2}, 0, 6), ({"processes": 3}, 4, 7),
     ({"processes": 3, "max_claim_per_worker": 2}, 4, 2)],
)  # fmt: skip
def test_w25_the_automatic_limit_is_what_the_slots_and_the_buffer_hold(
    config: dict[str, Any], prefetch: int, effective: int
) -> None:
    lease = 120_000 if prefetch else None
    found = plan(config=config, prefetch_buffer=prefetch, claim_lease_ms=lease)
    assert found.max_claim_per_worker == effective
    assert f"max_claim_per_worker={effective} " in found.headline()  # W-07


def test_w07_the_headline_has_every_limit() -> None:
    line = plan(config={"processes": 2, "max_claim_batch": 9}, cluster_wide_cap=8).headline()
    for part in ("processes=2 ", "cluster_wide_cap=8 ", "max_claim_per_worker=2 ", "max_claim_batch=9 "):
        assert part in line


def test_w07_the_line_behind_it_says_what_was_chosen_by_default() -> None:
    assert plan(config={"processes": 2, "concurrency": 3}).defaults() is None
    found = plan()
    cores = usable_processors()
    assert found.processes == cores and f"processes={cores} concurrency=1 " in found.headline()
    assert found.defaults() == (
        f"chosen by default: processes={cores}, one for each usable processor; "
        "concurrency=1, as the app has no async tasks"
    )
    found.heed_kinds(has_async=True)
    assert "concurrency=100, async tasks at a time in each process" in str(found.defaults())
    assert f"concurrency=100 cluster_wide_cap=None max_claim_per_worker={100 * cores} " in found.headline()
    fixed = plan(config={"processes": 2, "concurrency": 3})
    fixed.heed_kinds(has_async=True)
    assert fixed.concurrency == fixed.limits.concurrency == 3 and fixed.limits.top_concurrency is None


@each(
    ("text", "processors"),
    [
        ("200000 100000", 2.0),
        ("50000 100000", 0.5),
        ("max 100000", math.inf),
        ("-1 100000", math.inf),
        ("0 100000", math.inf),
        ("100000 0", math.inf),
        ("nonsense", math.inf),
        ("", math.inf),
        (None, math.inf),
    ],
)
def test_w04_the_processors_that_a_control_group_allows(text: str | None, processors: float) -> None:
    assert cpu_limit(text) == processors


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be bound to processors here")
def test_w04_a_process_that_is_bound_to_one_processor_uses_one() -> None:
    first = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, [{first}]);"
        "from horsies.core.worker.config import usable_processors; print(usable_processors())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "1"
    assert 1 <= usable_processors() <= len(os.sched_getaffinity(0))


def test_t10_the_workers_pool_is_its_own_or_inherited() -> None:
    assert (plan().pool_size, plan().pool_overflow) == (3, 2)
    inherited = plan({"worker_pool_size": None, "worker_max_overflow": None, "pool_size": 7, "max_overflow": 8})
    assert (inherited.pool_size, inherited.pool_overflow) == (7, 8)


def test_w41_a_memory_limit_has_to_leave_room_for_a_warm_child() -> None:
    limited = plan(config={"max_memory_per_child_mb": 100})
    assert limited.refuse_too_small_memory_limit(79) is None
    assert "close to the 81 MB" in str(limited.refuse_too_small_memory_limit(81))
    for warmed in (100, 101):
        with pytest.raises(ConfigurationError, match="max_memory_per_child_mb=100") as caught:
            limited.refuse_too_small_memory_limit(warmed)
        assert "at least" in (caught.value.help_text or "")
    assert plan().refuse_too_small_memory_limit(10_000) is None


def failures(patience: Patience, count: int) -> list[float]:
    return [patience.failed(psycopg.OperationalError("away")) for _ in range(count)]


def test_w60_the_pauses_grow_and_a_success_begins_again() -> None:
    patience = Patience("claimer", WorkerResilienceConfig(db_retry_initial_ms=1000, db_retry_max_ms=8000))
    pauses = failures(patience, 6)
    for pause, nominal in zip(pauses, (1, 2, 4, 8, 8, 8), strict=True):
        assert 0.75 * nominal <= pause <= 1.25 * nominal
    patience.succeeded()
    assert failures(patience, 1)[0] <= 1.25


def test_w60_the_last_of_the_allowed_failures_in_a_row_ends_it() -> None:
    patience = Patience("claimer", WorkerResilienceConfig(db_retry_max_attempts=3))
    failures(patience, 2)
    patience.succeeded()
    failures(patience, 2)
    with pytest.raises(DatabaseGone, match=r"claimer: 3 tries in a row failed, the last: .*away"):
        failures(patience, 1)


def test_w60_without_a_limit_it_never_ends() -> None:
    assert len(failures(Patience("claimer", WorkerResilienceConfig()), 200)) == 200
