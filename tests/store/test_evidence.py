"""The statements that gather evidence about workers (R-100): who could be judged, and whose session is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.schema.install import lock_key
from horsies.core.store import tasks, workers
from horsies.core.types.status import TaskStatus
from tests.factories import given_task, given_worker, task_row
from tests.support import eventually

Db = AsyncConnection[Any]

PLACE = {"hostname": "host", "boot_id": "boot", "pid_namespace": "ns"}


class Me(NamedTuple):
    worker_id: str = "me"
    hostname: str = "host"
    boot_id: str | None = "boot"
    pid_namespace: str | None = "ns"


async def given(db: Db, worker_id: str, *, age_s: float = 0, interval_ms: int | None = 30_000, **columns: Any) -> None:
    recovery = None if interval_ms is None else Jsonb({"worker_recovery": {"heartbeat_interval": interval_ms}})
    row = {**PLACE, "pid": 42, "process_start": 7, "liveness_key": lock_key(worker_id), "recovery": recovery}
    await given_worker(db, worker_id, **{**row, **columns})
    await db.execute(
        "UPDATE horsies_workers SET last_heartbeat_at = now() - make_interval(secs => %s) WHERE worker_id = %s",
        [age_s, worker_id],
    )


async def found(db: Db, **me: Any) -> dict[str, bool]:
    return {row.worker_id: row.is_silent for row in await workers.neighbours(db, Me(**me))}


async def test_r100_the_others_of_the_same_host_boot_and_namespace_are_looked_at(frozen: Db) -> None:
    await given(frozen, "me")
    await given(frozen, "w1", sweeping=True)
    await given(frozen, "w2", hostname="another")
    await given(frozen, "w3", boot_id="another")
    await given(frozen, "w4", pid_namespace="another")
    await given(frozen, "w5", hostname=None)
    await given(frozen, "w6", boot_id=None)
    await given(frozen, "w7", pid_namespace=None)
    await given(frozen, "w8", liveness_key=None)
    (row,) = await workers.neighbours(frozen, Me())
    assert row == ("w1", "host", "boot", "ns", 42, 7, lock_key("w1"), True, False)
    assert await found(frozen, boot_id=None) == {}


async def test_r100_silent_is_who_has_missed_two_of_his_own_intervals(frozen: Db) -> None:
    await given(frozen, "w1", age_s=60, interval_ms=30_000)
    await given(frozen, "w2", age_s=60.001, interval_ms=30_000)
    await given(frozen, "w3", age_s=60.001, interval_ms=31_000)
    await given(frozen, "w4", age_s=10_000, interval_ms=None)
    assert await found(frozen) == {"w1": False, "w2": True, "w3": False, "w4": False}


async def test_r100_the_silent_of_other_hosts_are_looked_at_while_they_hold_claims(frozen: Db) -> None:
    for worker_id in ("w1", "w2", "w3", "w4"):
        await given(frozen, worker_id, age_s=100, hostname="another")
    await given(frozen, "w5", hostname="another")
    await given_task(frozen, status=TaskStatus.CLAIMED, claimed_by_worker_id="w1")
    await given_task(frozen, status=TaskStatus.RUNNING, claimed_by_worker_id="w2")
    await given_task(frozen, status=TaskStatus.CLAIMED, claimed_by_worker_id="w3", recovery_enrolled=True)
    await given_task(frozen, status=TaskStatus.CLAIMED, claimed_by_worker_id="w5")
    assert await found(frozen) == {"w1": True}


@pytest.fixture
async def other(module_url: str) -> AsyncIterator[Db]:
    async with await AsyncConnection.connect(module_url, autocommit=True) as conn:
        yield conn


@pytest.mark.parametrize("key", [1, -1, lock_key("a"), lock_key("b"), -(2**63), 2**63 - 1, 2**32, 2**31])
async def test_d62_r100_a_lock_is_held_as_long_as_its_session_lives(frozen: Db, other: Db, key: int) -> None:
    assert await workers.held_liveness(frozen, [key]) == set()
    await workers.hold_liveness(other, key)
    assert await workers.held_liveness(frozen, [key, 5]) == {key}
    await other.close()

    async def is_free() -> bool:
        return not await workers.held_liveness(frozen, [key])

    await eventually(is_free)


async def test_d62_r100_locks_of_other_kinds_and_databases_do_not_count(frozen: Db, other: Db, server_url: str) -> None:
    key = (3 << 32) | 4
    await other.execute("SELECT pg_advisory_lock(3, 4)")  # the same halves, but a key of two numbers
    async with await AsyncConnection.connect(server_url, autocommit=True) as elsewhere:
        await workers.hold_liveness(elsewhere, key)
        assert await workers.held_liveness(frozen, [key]) == set()


async def test_r69_a_lease_that_ran_out_beside_all_detectors_is_taken_over_without_hook_or_delay(frozen: Db) -> None:
    """Also of a dead worker whose tasks are enrolled: nothing was interrupted."""
    columns = {"claimed_by_worker_id": "w1", "recovery_enrolled": True, "queue_name": "q"}
    over = await given_task(frozen, status=TaskStatus.CLAIMED, claim_expires_at="2020-01-01", **columns)
    await given_task(frozen, status=TaskStatus.CLAIMED, claim_expires_at="2100-01-01", **columns)
    me = tasks.Claimant("me", timedelta(seconds=60), enrolled=False)
    (claimed,) = await tasks.claim_expired(frozen, me, ["q"], 10)
    assert (claimed.id, claimed.claim_seq) == (over, 2)
    row = await task_row(frozen, over)
    assert (row["claimed_by_worker_id"], row["recovery_enrolled"], row["failed_reason"]) == ("me", False, None)


async def test_r100_the_row_goes_when_nothing_of_the_worker_is_left(frozen: Db) -> None:
    await given(frozen, "w1")
    await given(frozen, "w2")
    task_id = await given_task(frozen, status=TaskStatus.RUNNING, claimed_by_worker_id="w1")
    assert not await workers.delete_row(frozen, "w1")
    await frozen.execute("UPDATE horsies_tasks SET status = 'FAILED', claimed = FALSE WHERE id = %s", [task_id])
    assert await workers.delete_row(frozen, "w1")
    assert not await workers.delete_row(frozen, "w1")
    rows = await (await frozen.execute("SELECT worker_id FROM horsies_workers")).fetchall()
    assert rows == [("w2",)]
