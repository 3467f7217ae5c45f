"""Which worker of a team makes a tick of the reaper (R-15)."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from horsies.core.store import workers
from tests.factories import given_worker
from tests.store.test_arrows import Db

EVERY = 30.0


async def given_team(db: Db, team: str, *names: str, **metadata: object) -> None:
    for name in names:
        await given_worker(db, name, metadata=Jsonb({"team": team, "kept": 1} | metadata))


async def move_marks(db: Db, seconds: float) -> None:
    await db.execute(
        "UPDATE horsies_workers SET metadata = metadata"
        " || jsonb_build_object('reaped_at', (metadata ->> 'reaped_at')::float8 + %s) WHERE metadata ? 'reaped_at'",
        [seconds],
    )


async def test_r15_one_of_a_team_has_the_turn_until_the_interval_is_over(db: Db) -> None:
    await given_team(db, "a", "w1", "w2")
    assert await workers.take_turn(db, "w1", "a", EVERY) is None
    assert await workers.take_turn(db, "w2", "a", EVERY) == pytest.approx(0, abs=5)
    await move_marks(db, -20)
    assert await workers.take_turn(db, "w2", "a", EVERY) == pytest.approx(20, abs=5)
    await move_marks(db, -11)
    assert await workers.take_turn(db, "w2", "a", EVERY) is None
    assert await workers.take_turn(db, "w1", "a", EVERY) is not None


async def test_r15_another_team_has_its_own_turns(db: Db) -> None:
    await given_team(db, "a", "w1")
    await given_team(db, "b", "w2")
    assert await workers.take_turn(db, "w1", "a", EVERY) is None
    assert await workers.take_turn(db, "w2", "b", EVERY) is None


async def test_r15_a_worker_that_starts_makes_a_tick_whoever_made_one_before(db: Db) -> None:
    await given_team(db, "a", "w1", "w2")
    assert await workers.take_turn(db, "w1", "a", EVERY) is None
    assert await workers.take_turn(db, "w2", "a", 0) is None


@pytest.mark.parametrize("mark", [9e9, -1, "soon", None, {}])
async def test_r15_a_clock_that_was_set_back_and_odd_values_keep_nobody_from_it(db: Db, mark: object) -> None:
    await given_team(db, "a", "w1", reaped_at=mark)
    await given_team(db, "a", "w2")
    assert await workers.take_turn(db, "w2", "a", EVERY) is None


async def test_r15_a_worker_whose_row_was_deleted_makes_its_ticks(db: Db) -> None:
    assert await workers.take_turn(db, "w1", "a", EVERY) is None
