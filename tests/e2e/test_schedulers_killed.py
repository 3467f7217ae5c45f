"""Any number of schedulers, killed and started at random: every slot is sent, and none twice (S-34, S-41)."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from datetime import datetime, timedelta

import pytest

from horsies.core.scheduler.plan import slot_task_id
from tests.scheduler_support import Schedules, as_json
from tests.worker_support import ROOT

pytestmark = pytest.mark.e2e

SECOND = timedelta(seconds=1)


async def fire_under_fire(url: str, *, seconds: float, schedulers: int, schedules: int) -> str:
    """What the crowd said at its end, after every slot was found exactly once."""
    every_second = {"type": "interval", "seconds": 1}
    names = [f"s{n}" for n in range(schedules)]
    variables = as_json(*({"name": name, "pattern": every_second, "catch_up_missed": True} for name in names))
    seed = random.SystemRandom().randrange(10**6)
    command = [sys.executable, "-m", "tests.e2e.scheduler_crowd", str(seconds), str(schedulers), str(seed)]
    crowd = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": url, "SCHEDULES": variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await crowd.communicate()
    assert crowd.returncode == 0, f"seed {seed}: {out.decode()}{err.decode()}"
    rows = Schedules(url)
    sent = {task["id"] for task in await rows.sent()}
    begun: dict[str, datetime] = {}
    for name, state in (await rows.states()).items():
        begun[name] = first = state["last_run_at"] - (state["run_count"] - 1) * SECOND
        slots = [first + n * SECOND for n in range(state["run_count"])]
        missing = [slot for slot in slots if slot_task_id(name, slot) not in sent]
        assert missing == [] and state["next_run_at"] == slots[-1] + SECOND, f"seed {seed}: {name}"
        assert slot_task_id(name, first - SECOND) not in sent, f"seed {seed}: {name} counts wrongly"
        assert state["run_count"] >= seconds - 2, f"seed {seed}: {name} has stood still"
    assert len(sent) == sum(state["run_count"] for state in (await rows.states()).values()), f"seed {seed}"
    assert set(begun) == set(names)
    return f"{len(sent)} slots; {out.decode().strip()}"


async def test_s34_s41_schedulers_that_are_killed_send_each_slot_once(database_url: str) -> None:
    await fire_under_fire(database_url, seconds=2.5, schedulers=4, schedules=8)


@pytest.mark.slow("ten schedulers, for minutes")
@pytest.mark.timeout(900)
async def test_s34_s41_ten_schedulers_killed_for_minutes_send_each_slot_once(database_url: str) -> None:
    print(await fire_under_fire(database_url, seconds=180, schedulers=10, schedules=50))
