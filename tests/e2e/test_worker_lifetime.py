"""How a worker starts, recycles its children, stops, and dies."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from horsies import TaskHandle
from horsies.core.worker.config import WorkerConfig
from horsies.core.worker.service import Worker
from horsies.monitoring import list_workers
from tests.support import eventually
from tests.worker_support import BASIC, ONE_AT_A_TIME, ROOT, Rows, WorkerProcess, running_worker

pytestmark = pytest.mark.e2e


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def begun(traces: Path, name: str) -> int:
    path = traces / name
    await eventually(lambda: path.exists() and path.read_text(), what=f"{name} has begun")
    return int(path.read_text().split()[0])


# Start and registration


async def test_w03_a_worker_registers_before_it_claims_and_leaves_no_row(basic: Any, rows: Rows) -> None:
    handle = await send(basic.add, 1, 2)
    async with running_worker(basic.app) as worker:
        claimed = await rows.until(handle.task_id, "COMPLETED")
        (row,) = await rows.all("SELECT * FROM horsies_workers")
        held = await rows.all(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
            " AND ((classid::bigint << 32) | objid::bigint) = %s",
            row["liveness_key"],
        )
    assert row["worker_id"] == worker.worker_id == claimed["claimed_by_worker_id"]
    assert (row["pid"], row["hostname"], row["queues"], row["sweeping"]) == (
        os.getpid(),
        worker.me.hostname,
        ["default"],
        False,
    )
    assert row["started_at"] <= claimed["claimed_at"]
    assert row["recovery"]["running_stale_threshold_ms"] == 300_000
    assert len(held) == 1
    assert await rows.all("SELECT * FROM horsies_workers") == []


async def test_r40_the_row_is_refreshed_and_comes_back_when_deleted(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app, heartbeat_interval=1) as worker:
        first = await eventually(lambda: rows.all("SELECT * FROM horsies_workers"))
        assert first[0]["sweeping"] is True

        async def refreshed() -> bool:
            found = await rows.all("SELECT * FROM horsies_workers")
            return bool(found) and found[0]["last_heartbeat_at"] > first[0]["last_heartbeat_at"]

        await eventually(refreshed)
        await rows.all("DELETE FROM horsies_workers RETURNING worker_id")
        again = await eventually(lambda: rows.all("SELECT * FROM horsies_workers"))
        assert again[0]["worker_id"] == worker.worker_id


async def test_r10_w70_long_tasks_leave_heartbeats_of_their_child_short_ones_none(
    basic: Any, rows: Rows, traces: Path
) -> None:
    async with running_worker(basic.app) as worker:
        short = await send(basic.add, 1, 1)
        await short.get_async(timeout_ms=30_000)
        handle = await send(basic.nap, 60, "long")
        pid = await begun(traces, "long")
        beats = await eventually(
            lambda: rows.all("SELECT * FROM horsies_heartbeats WHERE task_id = %s ORDER BY id", handle.task_id)
        )
        (traces / "long.go").touch()
    assert {(b["role"], b["sender_id"], b["pid"]) for b in beats} == {("runner", f"{worker.worker_id}/{pid}", pid)}
    assert await rows.all("SELECT * FROM horsies_heartbeats WHERE task_id = %s", short.task_id) == []


async def test_w71_snapshots_are_written_also_when_idle(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app, processes=1) as worker:

        async def two() -> list[dict[str, Any]] | None:
            found = await rows.all("SELECT * FROM horsies_worker_states ORDER BY id")
            return found if len(found) >= 2 else None

        found = await eventually(two)
        assert found is not None
    first, second = found[:2]
    assert first["worker_id"] == second["worker_id"] == worker.worker_id
    assert second["snapshot_at"] > first["snapshot_at"] and first["worker_started_at"] <= first["snapshot_at"]
    assert (first["processes"], first["queues"], first["tasks_running"]) == (1, ["default"], 0)
    assert first["memory_usage_mb"] > 1 and first["children_memory_mb"] > 1
    assert first["recovery_config"]["worker_recovery"]["enabled"] is False


async def test_w71_m41_settings_are_written_once_and_found_with_every_snapshot(basic: Any, rows: Rows) -> None:
    """With 1,000 queues they would be most of what an idle worker writes."""
    columns = ("queues", "queue_priorities", "queue_max_concurrency", "recovery_config")
    async with running_worker(basic.app, processes=1) as worker:

        async def three() -> list[dict[str, Any]] | None:
            found = await rows.all("SELECT * FROM horsies_worker_states ORDER BY id")
            return found if len(found) >= 3 else None

        found = await eventually(three)
        newest = (await basic.app.get_worker_state_async(worker.worker_id)).unwrap()
        history = (await basic.app.get_worker_state_history_async(worker.worker_id, limit=2)).unwrap()
        [listed] = (await basic.app.list_worker_states_async()).unwrap()
        [shown] = (await list_workers(basic.app.get_broker())).unwrap()
    assert found is not None
    assert [[bool(row[name]) for name in columns] for row in found] == [[True] * 4, *[[False] * 4] * (len(found) - 1)]
    assert all(row["queues"] == [] for row in found[1:]), "a list, for older readers"
    for state in (newest, *history, listed):
        assert state is not None and state.id > found[0]["id"]
        assert {name: getattr(state, name) for name in columns} == {name: found[0][name] for name in columns}
    assert (shown.queue_priorities, shown.queues) == (found[0]["queue_priorities"], ("default",))


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("broken_import.py", "no_such_module_anywhere"),
        ("broken_hook.py", "the_hook_that_fails"),
        ("duplicate.py", "HRS-301"),
    ],
)
async def test_w03_an_app_with_errors_does_not_start(
    database_url: str, rows: Rows, traces: Path, module: str, said: str
) -> None:
    with WorkerProcess(database_url, locator=str(ROOT / "tests" / "apps" / module)) as worker:
        code, output = await asyncio.to_thread(worker.wait, 60)
    assert code == 1
    assert said in output
    assert await rows.all("SELECT * FROM horsies_workers") == []


# Recycling (W-41)


async def test_w41_a_child_leaves_after_its_number_of_tasks(basic: Any, traces: Path) -> None:
    async with running_worker(basic.app, processes=1, max_tasks_per_child=3):
        handles = [await send(basic.pid) for _ in range(10)]
        pids = [(await handle.get_async(timeout_ms=60_000)).unwrap() for handle in handles]
    runs = [pids.count(pid) for pid in dict.fromkeys(pids)]
    assert max(runs) <= 3 and len(runs) >= 4


async def test_w41_nothing_is_left_of_children_that_have_been_replaced(basic: Any) -> None:
    """Also while nobody collects garbage: an idle worker does not."""
    gc.disable()
    try:
        async with running_worker(basic.app, processes=1, max_tasks_per_child=2) as worker:
            for handle in [await send(basic.pid) for _ in range(16)]:
                (await handle.get_async(timeout_ms=60_000)).unwrap()
            await eventually(
                lambda: len(worker._children.usable) == 1 and len(outboxes()) == 1, what="the last one waits alone"
            )
    finally:
        gc.enable()


def outboxes() -> list[int]:
    """The descriptors of this process that are memory for reports of children."""
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            if "horsies-outbox" in os.readlink(f"/proc/self/fd/{fd}"):
                found.append(fd)
    return found


async def test_w41_a_child_that_has_grown_is_replaced(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app, max_memory_per_child_mb=400):
        before = (await (await send(basic.pid)).get_async(timeout_ms=30_000)).unwrap()
        fat = (await (await send(basic.grow, 500)).get_async(timeout_ms=30_000)).unwrap()
        assert fat == before
        after = (await (await send(basic.pid)).get_async(timeout_ms=30_000)).unwrap()
    assert after != before
    assert await rows.all("SELECT 1 FROM horsies_task_attempts WHERE outcome <> 'COMPLETED'") == []


async def test_w45_hooks_run_once_in_each_child_before_any_task(database_url: str, traces: Path) -> None:
    locator = str(ROOT / "tests" / "apps" / "hooked.py")
    with WorkerProcess(database_url, "--processes", "2", locator=locator) as worker:
        await eventually(lambda: (traces / "hook").exists() and len((traces / "hook").read_text().split()) == 2)
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 0, output
    assert len(set((traces / "hook").read_text().split())) == 2


async def test_w03_a_fork_server_that_dies_before_it_is_ready_ends_the_worker_with_a_word(
    basic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hang = "import sys, time\nif any('forkserver.py' in word for word in sys.orig_argv):\n    time.sleep(600)\n"
    (tmp_path / "sitecustomize.py").write_text(hang)  # Python imports this before anything else
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    worker = Worker(basic.app, WorkerConfig(app_locator=f"{ROOT / 'tests' / 'apps' / 'basic.py'}:app", **ONE_AT_A_TIME))
    running = asyncio.create_task(worker.run())

    def fork_server() -> psutil.Process | None:
        found = psutil.Process().children()
        return next((one for one in found if "forkserver.py" in " ".join(one.cmdline())), None)

    (await eventually(fork_server)).kill()
    assert await asyncio.wait_for(running, 60) == 1
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["the worker stops: the fork server was killed by SIGKILL before it was ready"]


async def lose_the_first_child(rows: Rows, traces: Path, the_next_will: str) -> None:
    pid = await begun(traces, "hook")
    await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers"), what="the worker is ready")
    (traces / the_next_will).touch()
    psutil.Process(pid).kill()


async def test_w45_a_hook_that_fails_in_a_later_child_stops_the_worker(
    database_url: str, rows: Rows, traces: Path
) -> None:
    with WorkerProcess(database_url, locator=str(ROOT / "tests" / "apps" / "hooked.py")) as worker:
        await lose_the_first_child(rows, traces, the_next_will="fail")
        code, output = await asyncio.to_thread(worker.wait, 60)
    assert code == 1 and "leave_a_trace" in output


async def test_w50_a_child_that_only_starts_ends_with_its_worker_without_a_word(
    database_url: str, rows: Rows, traces: Path
) -> None:
    with WorkerProcess(database_url, locator=str(ROOT / "tests" / "apps" / "hooked.py")) as worker:
        await lose_the_first_child(rows, traces, the_next_will="dawdle")
        await eventually(lambda: len((traces / "hook").read_text().split()) == 2, what="another child starts")
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 0 and "ERROR" not in output, output


async def test_d12_sessions_of_a_worker_never_read_the_whole_table(basic: Any) -> None:
    async with running_worker(basic.app) as worker:
        await (await send(basic.noop)).get_async(timeout_ms=30_000)
        async with worker._database.connection() as conn:
            assert await (await conn.execute("SHOW enable_seqscan")).fetchone() == ("off",)


async def test_w41_a_memory_limit_below_a_warm_child_refuses_to_start(basic: Any) -> None:
    assert (
        await Worker(basic.app, WorkerConfig(app_locator=BASIC, max_memory_per_child_mb=1, **ONE_AT_A_TIME)).run() == 1
    )


async def test_w41_max_tasks_per_child_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tasks_per_child"):
        WorkerConfig(max_tasks_per_child=1)


# Stopping (W-50 to W-54)


async def test_w50_sigterm_finishes_what_runs_and_hands_back_the_rest(
    basic: Any, database_url: str, rows: Rows, traces: Path
) -> None:
    running = await send(basic.nap, 1.0, "running")
    waiting = [await send(basic.nap, 30, "waiting") for _ in range(3)]
    with WorkerProcess(database_url) as worker:
        await begun(traces, "running")
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 0, output
    assert await rows.status(running.task_id) == "COMPLETED"
    for handle in waiting:
        row = await rows.task(handle.task_id)
        assert (row["status"], row["claimed"], row["claimed_by_worker_id"]) == ("PENDING", False, None)
    assert await rows.all("SELECT * FROM horsies_workers") == []
    assert "worker ready" in output and "processes=1" in output  # W-07


async def test_w52_a_second_signal_cuts_off_and_says_so(
    basic: Any, database_url: str, rows: Rows, traces: Path
) -> None:
    handle = await send(basic.nap, 60, "cut")
    with WorkerProcess(database_url) as worker:
        pid = await begun(traces, "cut")
        worker.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)  # two signals at the same instant are one
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 1, output
    row, (attempt,) = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert (row["status"], row["error_code"], attempt["outcome"]) == ("FAILED", "WORKER_CRASHED", "WORKER_FAILURE")
    assert "SHUTDOWN" in row["failed_reason"]
    assert not psutil.pid_exists(pid)


async def test_w52_after_the_grace_an_enrolled_worker_gives_its_tasks_back_uncharged(
    basic: Any, database_url: str, rows: Rows, traces: Path
) -> None:
    handle = await send(basic.nap, 60, "grace")
    with WorkerProcess(database_url, "--shutdown-grace", "1", "--recovery-delay", "30") as worker:
        await begun(traces, "grace")
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 1, output
    row, (attempt,) = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert (row["status"], row["retry_count"], row["next_retry_at"]) == ("PENDING", 0, None)
    assert (attempt["outcome"], attempt["will_retry"]) == ("WORKER_FAILURE", True)


async def test_w54_children_of_a_killed_worker_are_gone_within_moments(
    basic: Any, database_url: str, rows: Rows, traces: Path
) -> None:
    await send(basic.spin, 60.0)
    handle = await send(basic.nap, 60, "orphan")
    with WorkerProcess(database_url, "--processes", "2") as worker:
        pid = await begun(traces, "orphan")
        family = psutil.Process(worker.process.pid).children(recursive=True)
        assert pid in {process.pid for process in family}
        worker.process.kill()
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive
    assert await rows.status(handle.task_id) == "RUNNING"  # the reaper's business


async def test_w28_the_claims_of_a_dead_worker_are_taken_over_when_their_lease_ends(basic: Any, rows: Rows) -> None:
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args, status, claimed, claimed_by_worker_id, claimed_at,"
        " claim_expires_at, claim_seq) VALUES ('t', 'add', '[1, 2]', 'CLAIMED', TRUE, 'dead', now(),"
        " now() + interval '1 s', 1) RETURNING id"
    )
    async with running_worker(basic.app) as worker:
        row = await rows.until("t", "COMPLETED")
    assert (row["claimed_by_worker_id"], row["claim_seq"]) == (worker.worker_id, 2)
    assert [a["attempt"] for a in await rows.attempts("t")] == [1]


async def test_t47_a_module_that_sends_while_it_is_imported_writes_nothing(database_url: str, rows: Rows) -> None:
    locator = str(ROOT / "tests" / "apps" / "sends_on_import.py")
    with WorkerProcess(database_url, locator=locator) as worker:
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers"))
        code, output = await asyncio.to_thread(worker.stop)
    assert code == 0, output
    assert "SEND_SUPPRESSED" in output
    assert await rows.all("SELECT id FROM horsies_tasks") == []
