"""The recovery options of `horsies worker`: what the worker registers is what counts (M-02, R-06 to R-08)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.cli_support import APP, Started, run

pytestmark = pytest.mark.e2e

ENABLED = APP.replace(
    "app = Horsies(AppConfig.for_database_url(",
    "from horsies import WorkerRecoveryConfig\n"
    "app = Horsies(AppConfig.for_database_url(worker_recovery=WorkerRecoveryConfig(recovery_delay=9), url=",
)
DURATIONS = ("heartbeat_interval", "sweep_interval", "sweep_threshold", "recovery_delay")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    (tmp_path / "swept.py").write_text(ENABLED)
    return tmp_path


def registered(url: str) -> dict[int, tuple[bool, dict[str, Any]]]:
    """Of each worker by its pid: does it take part, and with which settings?"""
    with psycopg.connect(url) as conn:
        rows = conn.execute("SELECT pid, sweeping, recovery -> 'worker_recovery' FROM horsies_workers").fetchall()
    return {pid: (sweeping, settings) for pid, sweeping, settings in rows}


CASES: list[tuple[str, list[str], bool, list[int]]] = [
    # app, options, takes part, milliseconds of the four durations
    ("shop", ["--sweep-interval", "7s"], True, [30_000, 7_000, 300_000, 30_000]),
    ("shop", ["--recovery-delay", "0", "--sweep-threshold", "2m"], True, [30_000, 60_000, 120_000, 0]),
    ("swept", ["--heartbeat-interval", "10"], True, [10_000, 60_000, 300_000, 9_000]),
    ("swept", ["--no-worker-recovery", "--sweep-interval", "1h"], False, [30_000, 3_600_000, 300_000, 9_000]),
]


def test_r07_the_options_decide_for_this_worker_r06(project: Path, database_url: str) -> None:
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Started("worker", app, *options, cwd=project, SHOP_DATABASE_URL=database_url))
            for app, options, _, _ in CASES
        ]
        pids = [int(worker.until_it_says(r"worker ready: .*").split(":")[-2]) for worker in workers]
        found = registered(database_url)
    for pid, (_, options, takes_part, durations) in zip(pids, CASES, strict=True):
        sweeping, settings = found[pid]
        assert (sweeping, settings["enabled"]) == (takes_part, takes_part), options
        assert [settings[name] for name in DURATIONS] == durations, options


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--sweep-threshold", "59s"], ["sweep_threshold", "heartbeat_interval"]),
        (["--sweep-interval", "0"], ["sweep_interval"]),
    ],
)
def test_r08_impossible_durations_are_refused_by_name(project: Path, options: list[str], named: list[str]) -> None:
    done = run("worker", "shop", *options, cwd=project)
    assert done.returncode == 1
    assert "error[HRS-204]" in done.stderr and "Traceback" not in done.stderr
    assert all(name in done.stderr for name in named)
