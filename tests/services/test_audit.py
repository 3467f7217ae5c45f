"""The record of what people do (M-49b): written before and after, whatever comes of it, and read page by page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies import monitoring
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.monitoring.history import AuditEntry
from horsies.core.monitoring import audit as audit_queries
from horsies.core.store import audit
from horsies.core.types import Err, Ok
from horsies.core.types.status import TaskStatus
from horsies.monitoring import AuditOutcome, Deed, audited, cancel_task, list_audit, record_audit
from tests.factories import given_audit, given_task, task_row
from tests.support import eventually

Db = AsyncConnection[Any]


def cancelling(task_id: str, **more: Any) -> Deed:
    return Deed("ann", "task.cancel", "task", (task_id,), more)


async def entries(broker: PostgresBroker, **wanted: Any) -> list[AuditEntry]:
    return list((await list_audit(broker, **wanted)).unwrap().items)


async def test_m49b_what_was_done_is_written_down(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db)
    done = await audited(broker, cancelling(task_id, reason="wrong order"), lambda: cancel_task(broker, task_id))
    assert isinstance(done, Ok) and (await task_row(db, task_id))["status"] == "CANCELLED"
    [entry] = await entries(broker, target_id=task_id)
    assert (entry.actor, entry.action, entry.target_kind, entry.target_ids) == (
        "ann",
        "task.cancel",
        "task",
        (task_id,),
    )
    assert (entry.outcome, entry.details) == (AuditOutcome.DONE, {"reason": "wrong order"})
    assert entry.ended_at is not None and entry.at <= entry.ended_at


async def test_m49b_what_was_refused_is_written_down_with_the_reason(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db, status=TaskStatus.COMPLETED)
    refused = await audited(broker, cancelling(task_id), lambda: cancel_task(broker, task_id))
    assert isinstance(refused, Err)
    [entry] = await entries(broker)
    assert (entry.outcome, entry.details["code"]) == (AuditOutcome.REFUSED, "TASK_NOT_CANCELLABLE")
    assert "is COMPLETED" in entry.details["message"]


async def test_m49b_what_was_refused_before_it_began_is_one_entry(broker: PostgresBroker) -> None:
    assert (await record_audit(broker, cancelling("t", why="may not act"), AuditOutcome.REFUSED)).unwrap() > 0
    [entry] = await entries(broker, actor="ann")
    assert (entry.outcome, entry.details) == (AuditOutcome.REFUSED, {"why": "may not act"})
    assert entry.ended_at == entry.at


async def test_m49b_a_failure_of_the_database_is_written_down_as_one(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db)
    await db.execute("ALTER TABLE horsies_tasks RENAME TO elsewhere")
    failed = await audited(broker, cancelling(task_id), lambda: cancel_task(broker, task_id))
    assert isinstance(failed, Err)
    [entry] = await entries(broker)
    assert (entry.outcome, entry.details["code"]) == (AuditOutcome.FAILED, "DB_OPERATION_FAILED")


async def test_m49b_an_exception_is_written_down_and_raised(broker: PostgresBroker) -> None:
    async def broken() -> Ok[None]:
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        await audited(broker, cancelling("t"), broken)
    [entry] = await entries(broker)
    assert (entry.outcome, entry.details) == (AuditOutcome.FAILED, {"message": "RuntimeError: no luck"})


async def test_m49b_what_cannot_be_written_down_is_not_done(broker: PostgresBroker, db: Db) -> None:
    task_id = await given_task(db)
    await db.execute("ALTER TABLE horsies_audit RENAME TO elsewhere")
    refused = await audited(broker, cancelling(task_id), lambda: cancel_task(broker, task_id))
    assert isinstance(refused, Err) and "was not written down, and not made" in refused.err_value.message
    assert (await task_row(db, task_id))["status"] == "PENDING"


async def test_m49b_what_was_done_stays_done_if_the_end_cannot_be_written(
    broker: PostgresBroker, db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    task_id = await given_task(db)

    async def cancel_and_lose() -> monitoring.TaskActionResult:
        done = await cancel_task(broker, task_id)
        await db.execute("ALTER TABLE horsies_audit RENAME TO elsewhere")
        return done

    done = await audited(broker, cancelling(task_id), cancel_and_lose)
    assert isinstance(done, Ok) and "was not written down" in caplog.text
    await db.execute("ALTER TABLE elsewhere RENAME TO horsies_audit")
    [entry] = await entries(broker)
    assert (entry.outcome, entry.ended_at) == (AuditOutcome.BEGUN, None), "it is not known what came of it"


async def test_m49b_an_action_that_is_interrupted_has_failed(broker: PostgresBroker) -> None:
    begun = asyncio.Event()

    async def endless() -> Ok[None]:
        begun.set()
        await asyncio.Event().wait()
        return Ok(None)

    acting = asyncio.create_task(audited(broker, cancelling("t"), endless))
    await begun.wait()
    acting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acting
    [entry] = await entries(broker)
    assert (entry.outcome, entry.ended_at is None) == (AuditOutcome.FAILED, False)
    assert entry.details == {"message": "it was interrupted, and a part of it may be done"}


async def test_m49b_what_was_done_is_written_down_also_if_nobody_waits_for_it(broker: PostgresBroker, db: Db) -> None:
    done = asyncio.Event()

    async def act() -> Ok[None]:
        await db.execute("LOCK TABLE horsies_audit IN SHARE MODE")
        done.set()
        return Ok(None)

    async with db.transaction():
        acting = asyncio.create_task(audited(broker, cancelling("t"), act))
        await done.wait()
        await asyncio.sleep(0.1)  # now it waits to write that it is done
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting

    async def is_written() -> bool:
        return [entry.outcome for entry in await entries(broker)] == [AuditOutcome.DONE]

    await eventually(is_written)


async def test_m49b_an_entry_is_completed_once(broker: PostgresBroker, db: Db) -> None:
    number = (await record_audit(broker, cancelling("t"))).unwrap()
    assert await audit.complete(db, number, AuditOutcome.DONE)
    assert not await audit.complete(db, number, AuditOutcome.FAILED)
    assert [entry.outcome for entry in await entries(broker)] == [AuditOutcome.DONE]


async def test_m49b_ids_and_details_may_be_known_only_afterwards(broker: PostgresBroker) -> None:
    async def act() -> Ok[list[str]]:
        return Ok(["a", "b"])

    deed = Deed("ann", "tasks.cancel", "task", details={"queues": ["mail"]})
    await audited(broker, deed, act, ids_of=lambda ids: ids, details_of=lambda ids: {"changed": len(ids)})
    [entry] = await entries(broker, target_id="b")
    assert (entry.target_ids, entry.details) == (("a", "b"), {"queues": ["mail"], "changed": 2})


async def test_m49b_what_comes_from_a_request_is_cut_and_cleaned(broker: PostgresBroker) -> None:
    deed = Deed("a\0nn" * 200, "x" * 300, "k" * 99, ["\ud800" + "i" * 999] * 5_000, {"a\0": ["b\0", float("nan")]})
    assert (await record_audit(broker, deed)).unwrap()
    [entry] = await entries(broker)
    assert (len(entry.actor), len(entry.action), len(entry.target_kind)) == (255, 64, 32)
    assert len(entry.target_ids) == audit.MOST_IDS and {len(one) for one in entry.target_ids} == {audit.LONGEST_ID}
    assert "\0" not in str(entry.details) and next(iter(entry.details.values()))[1] == "NaN"
    deep: Any = "end"
    for _ in range(5_000):
        deep = [deep]
    for details in ({"x": "y" * 20_000}, {"deep": deep}, {"odd": object()}):
        assert (await record_audit(broker, Deed("ann", "a", "k", (), details))).unwrap()


async def test_m49b_pages_follow_each_other(broker: PostgresBroker, db: Db) -> None:
    for number in range(7):
        await given_audit(db, target_ids=[f"t{number}"], actor="ann" if number % 2 else "bob")
    found: list[str] = []
    after = None
    for _ in range(4):
        page = (await list_audit(broker, limit=2, after=after)).unwrap()
        found += [entry.target_ids[0] for entry in page.items]
        after = page.next_cursor
        assert not page.is_partial
    assert found == [f"t{number}" for number in reversed(range(7))] and after is None
    assert [entry.target_ids[0] for entry in await entries(broker, actor="bob")] == ["t6", "t4", "t2", "t0"]
    assert await entries(broker, actor="ann", target_id="t0") == []


async def test_m49b_a_search_that_stops_says_where_to_go_on(
    broker: PostgresBroker, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_queries, "LOOK", 3)
    await given_audit(db, actor="rare")
    for _ in range(5):
        await given_audit(db)
    first = (await list_audit(broker, actor="rare")).unwrap()
    assert (first.items, first.is_partial) == ((), True)
    second = (await list_audit(broker, actor="rare", after=first.next_cursor)).unwrap()
    assert [entry.actor for entry in second.items] == ["rare"]


@pytest.mark.parametrize("wrong", [{"after": "x"}, {"after": "-1"}, {"after": "9" * 30}, {"limit": 0}, {"actor": "\0"}])
async def test_m49b_a_wrong_question_is_refused(broker: PostgresBroker, wrong: dict[str, Any]) -> None:
    problem = (await list_audit(broker, **wrong)).unwrap_err()
    assert problem.code is monitoring.MonitoringErrorCode.INVALID_ARGUMENT


async def test_d59a_odd_rows_are_read(broker: PostgresBroker, db: Db) -> None:
    later = datetime.now(UTC) + timedelta(days=400)
    await given_audit(db, details=Jsonb([1]), outcome="undone", target_ids=[None, "a"], at=later)
    [entry] = await entries(broker)
    assert (entry.details, entry.outcome, entry.target_ids) == ({}, "undone", ("a",))
