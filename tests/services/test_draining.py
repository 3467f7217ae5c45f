"""Asking a worker to drain (M-49c, W-55), up to the worker itself."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.store import workers
from horsies.core.worker.questions import DRAIN, nonce_of
from horsies.monitoring import WorkerActionErrorCode, drain_worker, list_workers
from tests.doorbell_support import listening
from tests.factories import given_worker
from tests.proof_pairs.other_kinds import _REGISTRATION

Db = AsyncConnection[Any]


def registration(worker_id: str, age_s: float) -> dict[str, Any]:
    return {**_REGISTRATION, "worker_id": worker_id, "age": age_s}


async def test_m49c_w55_a_worker_is_told_and_learns_of_it_with_its_heartbeat(
    broker: PostgresBroker, db: Db, database_url: str
) -> None:
    assert not (await workers.register(db, registration("w1", 60.0))).is_draining
    await workers.register(db, registration("w2", 60.0))
    async with listening(database_url, "horsies_worker_ping") as heard:
        done = (await drain_worker(broker, "w1")).unwrap()
        assert [json.loads(payload) for _, payload in await heard()] == [{"drain": "w1"}]
    assert done.worker_id == "w1" and abs(done.requested_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert (await workers.register(db, registration("w1", 60.0))).is_draining
    assert not (await workers.register(db, registration("w2", 60.0))).is_draining
    shown = {one.worker_id: one.is_draining for one in (await list_workers(broker)).unwrap()}
    assert shown == {"w1": True, "w2": False}
    assert (await drain_worker(broker, "w1")).unwrap().requested_at >= done.requested_at, "once more does no harm"


async def test_w55_a_later_worker_with_the_same_id_is_not_affected(db: Db) -> None:
    await workers.register(db, registration("w1", 600.0))
    await db.execute("UPDATE horsies_workers SET drain_requested_at = now() - interval '1 min'")
    assert (await workers.register(db, registration("w1", 600.0))).is_draining
    assert not (await workers.register(db, registration("w1", 5.0))).is_draining, "it started after the request"


async def test_m49c_an_unknown_worker_and_a_broken_database_are_told(broker: PostgresBroker, db: Db) -> None:
    for unknown in ("nobody", "", "a\0b"):
        problem = (await drain_worker(broker, unknown)).unwrap_err()
        assert problem.code is WorkerActionErrorCode.WORKER_NOT_FOUND
    await given_worker(db, "w1")
    await db.execute("ALTER TABLE horsies_workers RENAME TO elsewhere")
    problem = (await drain_worker(broker, "w1")).unwrap_err()
    assert problem.code is WorkerActionErrorCode.DB_OPERATION_FAILED and not problem.retryable


@pytest.mark.parametrize(
    ("payload", "meant"),
    [
        ('{"drain": "w1"}', DRAIN),
        ('{"drain": "w2"}', None),
        ('{"drain": ["w1"]}', None),
        ('["drain"]', None),
        ('{"id": "n", "target": null}', "n"),
        ('{"id": ""}', None),
        ("drain", None),
        ('{"drain": "w1"}' + " " * 600, None),
    ],
)
def test_w55_d61_what_is_not_for_this_worker_is_ignored(payload: str, meant: str | None) -> None:
    assert nonce_of(payload, "w1") == meant
