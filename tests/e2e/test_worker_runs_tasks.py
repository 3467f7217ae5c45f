"""A task from send() to get() through a real worker, and everything its code may do wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from horsies import OperationalErrorCode, OutcomeCode, TaskHandle
from horsies.core.models.tasks import ContractCode
from tests.e2e.conftest import load
from tests.worker_support import ROOT, Rows, make_worker, running_worker

pytestmark = pytest.mark.e2e

PATIENCE_MS = 30_000
PLAIN = ROOT / "tests" / "apps" / "plain.py"


async def send(task: Any, *args: Any, **kwargs: Any) -> TaskHandle[Any]:
    handle: TaskHandle[Any] = (await task.send_async(*args, **kwargs)).unwrap()
    return handle


async def result_of(handle: TaskHandle[Any]) -> Any:
    return await handle.get_async(timeout_ms=PATIENCE_MS)


async def outcome(task: Any, *args: Any) -> Any:
    return await result_of(await send(task, *args))


async def test_w30_a_task_runs_in_a_child_and_its_result_comes_back(basic: Any, rows: Rows) -> None:
    async with running_worker(basic.app) as worker:
        handle = await send(basic.add, 1, b=2)
        assert (await result_of(handle)).unwrap() == 3
        row, (attempt,) = await rows.task(handle.task_id), await rows.attempts(handle.task_id)
    assert row["status"] == "COMPLETED" and row["claimed_by_worker_id"] == worker.worker_id
    assert row["sent_at"] <= row["claimed_at"] <= row["started_at"] <= row["completed_at"]
    assert row["worker_pid"] != worker.me.pid and row["worker_process_name"].startswith("horsies-child")
    assert (attempt["attempt"], attempt["outcome"], attempt["worker_id"]) == (1, "COMPLETED", worker.worker_id)
    assert row["finalizing_at"] is None, "a result that is written at once needs no mark (L-30)"


async def test_l20_errors_and_exceptions_are_failures(shared: Any, shared_rows: Rows) -> None:
    domain, raised = await send(shared.fail, "CARD_DECLINED"), await send(shared.boom)
    assert (await result_of(domain)).unwrap_err().error_code == "CARD_DECLINED"
    error = (await result_of(raised)).unwrap_err()
    assert error.error_code is OperationalErrorCode.UNHANDLED_EXCEPTION
    assert error.exception["type"] == "RuntimeError" and "boom" in error.exception["traceback"]
    row, (attempt,) = await shared_rows.task(domain.task_id), await shared_rows.attempts(domain.task_id)
    assert (row["status"], row["error_code"], row["failed_reason"]) == ("FAILED", "CARD_DECLINED", None)
    assert (attempt["outcome"], attempt["error_code"], attempt["error_message"]) == (
        "FAILED",
        "CARD_DECLINED",
        "as told",
    )


@pytest.mark.parametrize("how", ["sys.exit", "interrupt", "base"])
async def test_t88_no_exception_of_a_task_ends_its_child(shared: Any, how: str) -> None:
    before = (await outcome(shared.pid)).unwrap()
    error = (await outcome(shared.die, how)).unwrap_err()
    assert error.error_code is OperationalErrorCode.UNHANDLED_EXCEPTION
    assert (await outcome(shared.pid)).unwrap() == before


async def test_t26_a_wrong_result_type_is_an_error_result(shared: Any) -> None:
    assert (await outcome(shared.wrong_type)).unwrap_err().error_code is ContractCode.RETURN_TYPE_MISMATCH


async def test_t106_a_result_that_cannot_be_serialized_fails_its_task_only(shared: Any) -> None:
    bad, good = await send(shared.unserializable), await send(shared.add, 1, 1)
    assert (await result_of(bad)).unwrap_err().error_code is OperationalErrorCode.WORKER_SERIALIZATION_ERROR
    assert (await result_of(good)).unwrap() == 2


async def test_a_result_of_50_megabytes_arrives(shared: Any) -> None:
    assert len((await outcome(shared.big, 50_000_000)).unwrap()) == 50_000_000


async def test_nul_characters_and_lone_surrogates_lose_nothing(shared: Any, shared_rows: Rows) -> None:
    assert (await outcome(shared.nul)).unwrap() == "a\x00b"
    nul, surrogate = await send(shared.odd_error, "a\x00b"), await send(shared.odd_error, "surrogate")
    assert (await result_of(nul)).unwrap_err().error_code == "ODD"
    unwritable = (await result_of(surrogate)).unwrap_err()
    assert unwritable.error_code is OperationalErrorCode.WORKER_SERIALIZATION_ERROR and "ODD" in unwritable.message
    (attempt,) = await shared_rows.attempts(nul.task_id)
    assert attempt["error_message"] == "a\ufffdb"  # a TEXT column holds no NUL; the result itself is complete


async def test_a_task_that_prints_megabytes_is_fine(shared: Any) -> None:
    assert (await outcome(shared.loud, 3_000_000)).unwrap() == 3_000_000


async def test_w31_a_copy_made_by_fork_neither_reports_nor_reads(
    shared: Any, shared_rows: Rows, shared_traces: Path
) -> None:
    handle = await send(shared.forks, "fork")
    assert (await result_of(handle)).unwrap() > 0
    answers = [(await outcome(shared.add, n, 0)).unwrap() for n in range(5)]
    assert answers == [0, 1, 2, 3, 4]
    assert len(await shared_rows.attempts(handle.task_id)) == 1


async def test_threads_that_never_end_do_not_keep_the_worker(basic: Any) -> None:
    async with running_worker(basic.app):
        assert (await outcome(basic.threads)).unwrap() >= 3


@pytest.mark.parametrize("args", ["[1", '["one", 2]', "[1]", "[1, 2, 3]", "{}", '[1, 2]" OR 1=1', "null"])
async def test_t106_a_row_edited_by_hand_fails_alone(shared: Any, shared_rows: Rows, args: str) -> None:
    await shared_rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args)"
        " VALUES ('bad', 'add', %s), ('good', 'add', '[1, 2]') RETURNING id",
        args,
    )
    bad, good = await shared_rows.until("bad", "FAILED"), await shared_rows.until("good", "COMPLETED")
    assert bad["error_code"] == "WORKER_SERIALIZATION_ERROR"
    (attempt,) = await shared_rows.attempts("bad")  # L-28
    assert attempt["outcome"] == "FAILED" and "'add'" in attempt["error_message"]
    assert good["result"].replace(" ", "") == '{"ok":3}'


async def test_t78_a_retry_is_made_after_its_interval_and_the_history_is_kept(shared: Any, shared_rows: Rows) -> None:
    handle = await send(shared.flaky, "flaky", 1)
    waiting = await shared_rows.until(handle.task_id, "PENDING", "RUNNING", "COMPLETED")
    assert waiting["error_code"] is None
    assert (await result_of(handle)).unwrap() == 2
    row, attempts = await shared_rows.task(handle.task_id), await shared_rows.attempts(handle.task_id)
    assert (row["status"], row["retry_count"], row["error_code"]) == ("COMPLETED", 1, None)
    assert [(a["attempt"], a["outcome"], a["will_retry"]) for a in attempts] == [
        (1, "FAILED", True),
        (2, "COMPLETED", False),
    ]
    assert (row["started_at"] - attempts[0]["finished_at"]).total_seconds() >= 1


async def test_t79_the_last_failure_is_final(shared: Any, shared_rows: Rows) -> None:
    handle = await send(shared.flaky, "never", 99)
    assert (await result_of(handle)).unwrap_err().error_code == "FLAKY"
    row, attempts = await shared_rows.task(handle.task_id), await shared_rows.attempts(handle.task_id)
    assert (row["status"], row["retry_count"], row["error_code"]) == ("FAILED", 2, "FLAKY")
    assert [a["will_retry"] for a in attempts] == [True, True, False]


async def test_l07_a_waiting_task_expires_and_its_waiter_hears_of_it(basic: Any, rows: Rows) -> None:
    await rows.all(
        "INSERT INTO horsies_tasks (id, task_name, args, good_until)"
        " VALUES ('late', 'add', '[1, 2]', now() - interval '1 s') RETURNING id"
    )
    async with running_worker(basic.app):
        row = await rows.until("late", "EXPIRED")
        result = await basic.app.get_broker().get_result_async("late")
    assert result.unwrap_err().error_code is OutcomeCode.TASK_EXPIRED
    assert row["claimed"] is False and await rows.attempts("late") == []


async def test_w30a_async_tasks_run_side_by_side_in_one_child(basic: Any, traces: Path) -> None:
    async with running_worker(basic.app, concurrency=4):
        handles = [await send(basic.ameet, 4, "many") for _ in range(4)]
        pids = {(await result_of(handle)).unwrap() for handle in handles}
    assert len(pids) == 1


async def test_w30a_w04_by_default_async_tasks_run_side_by_side_and_sync_ones_alone(
    basic: Any, traces: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "horsies.worker")
    async with running_worker(basic.app, concurrency=None) as worker:
        await result_of(await send(basic.nap, 0.0, "first"))
        assert worker.plan.limits.concurrency == 1, "no async task has come: claims are plain"
        handles = [await send(basic.ameet, 4, "four") for _ in range(4)]
        handles += [await send(basic.nap, 0.2, "alone") for _ in range(3)]
        for handle in handles:
            await result_of(handle)
        assert worker.plan.limits.concurrency == 100
    assert [line.split()[1] for line in (traces / "four").read_text().splitlines()] == ["begin"] * 4 + ["end"] * 4
    assert [line.split()[1] for line in (traces / "alone").read_text().splitlines()] == ["begin", "end"] * 3
    assert "chosen by default: concurrency=100, async tasks at a time in each process" in caplog.text


async def test_w30a_w21b_an_app_without_async_tasks_is_claimed_for_as_before(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its claims tell no kinds of tasks, and may start tasks at once."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    plain: Any = load(PLAIN)
    caplog.set_level("INFO", "horsies.worker")
    async with running_worker(plain.app, app_locator=f"{PLAIN}:app", concurrency=None) as worker:
        handles = [await send(plain.add, n, 1) for n in range(20)]
        assert [(await result_of(handle)).unwrap() for handle in handles] == [n + 1 for n in range(20)]
        assert worker.plan.limits.top_concurrency is None and worker.plan.limits.concurrency == 1
    await plain.app.get_broker().close_async()
    assert "concurrency=1, as the app has no async tasks" in caplog.text


async def test_w30a_a_sync_task_takes_the_whole_child(basic: Any, traces: Path) -> None:
    async with running_worker(basic.app, concurrency=4):
        handles = [await send(basic.nap, 0.3, "one") for _ in range(3)]
        for handle in handles:
            await result_of(handle)
    assert [line.split()[1] for line in (traces / "one").read_text().splitlines()] == ["begin", "end"] * 3


async def test_w81_run_once_processes_what_is_claimable_and_returns(basic: Any, rows: Rows) -> None:
    handles = [await send(basic.add, n, n) for n in range(20)]
    later = (await basic.add.schedule_async(3600, 1, 1)).unwrap()
    assert await make_worker(basic.app).run_once() == 0
    assert [(await result_of(handle)).unwrap() for handle in handles] == [2 * n for n in range(20)]
    assert await rows.status(later.task_id) == "PENDING"
    assert await rows.all("SELECT * FROM horsies_workers") == []


async def test_a_thousand_tasks_run_exactly_once(basic: Any, rows: Rows, traces: Path) -> None:
    async with running_worker(basic.app, processes=2):
        handles = [await send(basic.pid, "thousand") for _ in range(1000)]
        results = await asyncio.gather(*(result_of(handle) for handle in handles))
    assert all(result.is_ok() for result in results)
    assert len((traces / "thousand").read_text().splitlines()) == 1000
    ((attempts,),) = [tuple(r.values()) for r in await rows.all("SELECT count(*) FROM horsies_task_attempts")]
    assert attempts == 1000
