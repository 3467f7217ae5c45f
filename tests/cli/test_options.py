"""Options as the rules list them: names, defaults and limits (M-02 to M-13)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from horsies.cli.options import LogLevel
from tests.cli.test_help import commands
from tests.e2e.cli_support import APP, run

# What M-02 says of each option: its default, and the smallest value that is allowed.
OF_A_WORKER: dict[str, tuple[Any, float | None]] = {
    "--processes": (None, 1),
    "--loglevel": (LogLevel.INFO, None),
    "--max-claim-batch": (0, 0),
    "--max-claim-per-worker": (0, 0),
    "--max-tasks-per-child": (0, 0),
    "--concurrency": (None, 1),
    "--run-ahead-ms": (20, 0),
    "--max-held-bytes": (64 * 1024 * 1024, 1),
    "--max-memory-per-child-mb": (None, 1),
    "--worker-recovery": (None, None),
    "--heartbeat-interval": (None, None),
    "--sweep-interval": (None, None),
    "--sweep-threshold": (None, None),
    "--recovery-delay": (None, None),
    "--shutdown-grace": (None, None),
}
DURATIONS = ("--heartbeat-interval", "--sweep-interval", "--sweep-threshold", "--recovery-delay", "--shutdown-grace")


def options_of(command: str) -> dict[str, Any]:
    return {name: option for option in commands()[command].params for name in option.opts}


def parsed(command: str, *words: str) -> dict[str, Any]:
    with commands()[command].make_context(command, [*words]) as context:
        return dict(context.params)


def refused(command: str, *words: str) -> str:
    """What is said about it."""
    with pytest.raises(Exception) as caught:
        parsed(command, *words)
    return str(caught.value.format_message())  # type: ignore[attr-defined]  # of click, or of Typer's own copy of it


def test_m02_a_worker_has_these_options_and_defaults() -> None:
    known = options_of("worker")
    unset = parsed("worker", "shop")
    assert {name: unset[known[name].name] for name in OF_A_WORKER} == {
        name: default for name, (default, _) in OF_A_WORKER.items()
    }
    assert "--no-worker-recovery" in known["--worker-recovery"].secondary_opts
    assert parsed("worker", "shop", "--no-worker-recovery")["worker_recovery"] is False
    for level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        assert parsed("worker", "shop", "--loglevel", level)["loglevel"] == level
    for name in DURATIONS:
        assert parsed("worker", "shop", name, "5m")[known[name].name] == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("name", "least"), [(name, least) for name, (_, least) in OF_A_WORKER.items() if least is not None]
)
def test_m02_a_value_below_its_limit_is_refused(name: str, least: int) -> None:
    option = options_of("worker")[name].name
    assert parsed("worker", "shop", name, str(least))[option] == least
    assert name in refused("worker", "shop", name, str(least - 1))


def test_m03_m04_a_scheduler_and_a_check_take_a_module_and_a_log_level() -> None:
    assert parsed("scheduler", "shop")["loglevel"] is LogLevel.INFO
    assert parsed("scheduler", "shop", "--loglevel", "debug")["loglevel"] is LogLevel.DEBUG
    assert parsed("check", "shop")["loglevel"] is LogLevel.WARNING
    assert parsed("check", "shop")["live"] is False
    assert parsed("check", "shop", "--live")["live"] is True


def test_m04_a_check_logs_warnings_unless_told_otherwise(tmp_path: Path) -> None:
    talk = "\nimport logging\nlogging.getLogger('shop').warning('careful')\nlogging.getLogger('shop').info('welcome')\n"
    (tmp_path / "shop.py").write_text(APP + talk)
    usual, loud = run("check", "shop", cwd=tmp_path), run("check", "shop", "--loglevel", "info", cwd=tmp_path)
    assert usual.returncode == loud.returncode == 0
    assert "careful" in usual.stderr and "welcome" not in usual.stderr
    assert "careful" in loud.stderr and "welcome" in loud.stderr


def test_m07_m08_m09_m10_commands_have_the_options_of_their_rules() -> None:
    assert parsed("init-db", "shop")["module"] == "shop"
    swept = parsed(
        "sweep-stale-workers", "shop", "--sweep-threshold", "5m", "--recovery-delay", "2h", "--dry-run", "--json"
    )
    assert (swept["sweep_threshold"], swept["recovery_delay"]) == (timedelta(minutes=5), timedelta(hours=2))
    assert swept["dry_run"] and swept["as_json"]
    assert parsed("workers", "shop")["threshold"] == timedelta(minutes=5)
    assert parsed("workers", "shop", "--threshold", "30", "--json")["threshold"] == timedelta(seconds=30)
    assert parsed("force-unlock", "shop", "a", "b")["what"] == ["shop", "a", "b"]
    assert parsed("recover-workflows", "shop")["module"] == "shop"
    assert parsed("stale-tasks", "shop", "--minutes", "3")["minutes"] == 3


@pytest.mark.parametrize(
    "command",
    [
        *("sweep-stale-workers", "workers", "force-unlock", "recover-workflows", "stale-tasks", "init-db"),
        *("tasks", "task", "explain", "cancel", "rerun", "run-now", "queues", "purge"),
    ],
)
def test_m13_a_database_url_does_instead_of_a_module(command: str) -> None:
    ids = ["x"] if command in ("force-unlock", "task", "explain", "cancel", "rerun", "run-now") else []
    given = parsed(command, *ids, "--database-url", "postgresql://h/x")
    assert given["database_url"] == "postgresql://h/x" and given.get("module") is None
