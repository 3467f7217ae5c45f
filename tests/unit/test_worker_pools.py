"""How a worker shares out its connections, and that its caretaker does it no harm."""

from __future__ import annotations

import logging

import psycopg
import pytest

from horsies.core.worker.background import harmless
from horsies.core.worker.startup import ConnectionShares, share_connections
from tests.each import each


@each(
    ("keep", "most", "shares"),
    [
        (1, 1, ConnectionShares(database=1, bulk=0, care=0, patient=0, flows=0)),
        (1, 2, ConnectionShares(database=1, bulk=1, care=0, patient=0, flows=0)),
        (1, 3, ConnectionShares(database=1, bulk=1, care=1, patient=0, flows=0)),
        (2, 4, ConnectionShares(database=1, bulk=1, care=1, patient=1, flows=0)),
        (3, 3, ConnectionShares(database=1, bulk=2, care=0, patient=0, flows=0)),
        (3, 5, ConnectionShares(database=1, bulk=2, care=1, patient=1, flows=0)),
        (3, 6, ConnectionShares(database=1, bulk=2, care=1, patient=1, flows=1)),
        (5, 15, ConnectionShares(database=10, bulk=2, care=1, patient=1, flows=1)),
    ],
)
def test_t11_never_more_connections_than_allowed_and_one_for_claims(
    keep: int, most: int, shares: ConnectionShares
) -> None:
    assert share_connections(keep, most) == shares
    assert sum(shares) == most


async def test_r16_a_mistake_in_a_service_of_recovery_is_logged_and_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def mistaken() -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        await harmless("reaper", mistaken)()
    assert "reaper failed" in caplog.text


async def test_w60_a_database_that_fails_is_for_the_patience_of_the_service() -> None:
    async def away() -> None:
        raise psycopg.OperationalError("away")

    with pytest.raises(psycopg.OperationalError):
        await harmless("reaper", away)()
