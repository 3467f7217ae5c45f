"""One check of the scheduler on a real database: what is sent, and what the state says then (S-30 to S-39)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import CronSchedule, CustomQueueConfig, HourlySchedule, IntervalSchedule, PayloadPolicy, QueueMode
from horsies.core.scheduler import fire
from horsies.core.scheduler.plan import config_hash, slot_task_id
from horsies.core.schema.install import lock_key
from tests.scheduler_support import Report, Schedules, check_once, make_app, schedule, scheduler_of
from tests.support import eventually

HOUR = timedelta(hours=1)


@pytest.fixture
async def rows(database_url: str) -> Schedules:
    rows = Schedules(database_url)
    await rows.away_from_the_hour()
    return rows


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "horsies.scheduler" and r.levelno >= logging.WARNING]


async def test_s30_s31_first_sight_writes_the_state_and_sends_nothing(database_url: str, rows: Schedules) -> None:
    one = schedule()
    await check_once(make_app(database_url, one))
    state = await rows.state()
    assert state["next_run_at"] == await rows.hour() + HOUR
    assert (state["last_run_at"], state["last_task_id"], state["run_count"]) == (None, None, 0)
    assert state["config_hash"] == config_hash(one) and await rows.sent() == []


async def test_s32_s33_s34_what_is_due_is_sent_once_for_its_slot(database_url: str, rows: Schedules) -> None:
    app = make_app(database_url, schedule(kwargs={"number": 7}))
    async with scheduler_of(app) as scheduler:
        await scheduler.check()
        slot = await rows.move(await rows.hour())
        await scheduler.check()
        await scheduler.check()
    (task,) = await rows.sent()
    assert task["id"] == slot_task_id("s", slot) and task["status"] == "PENDING"
    assert (task["task_name"], task["kwargs"], task["args"]) == ("tick", '{"number":7}', None)
    assert (task["queue_name"], task["priority"], len(task["enqueue_sha"])) == ("default", 100, 64)
    state = await rows.state()
    assert (state["last_run_at"], state["last_task_id"], state["run_count"]) == (slot, task["id"], 1)
    assert state["next_run_at"] == slot + HOUR


async def test_s34_one_slot_is_one_task_even_if_the_state_was_lost(database_url: str, rows: Schedules) -> None:
    app = make_app(database_url, schedule())
    await check_once(app)
    slot = await rows.move(await rows.hour())
    for _ in range(2):
        await check_once(app)
        await rows.move(slot)
    await rows.all("DELETE FROM horsies_schedule_state RETURNING 1")
    await check_once(app)
    await rows.move(slot)
    await check_once(app)
    assert [task["id"] for task in await rows.sent()] == [slot_task_id("s", slot)]
    assert (await rows.state())["run_count"] == 0, "nothing new was sent since the row was lost"


async def test_s35_after_three_hours_without_a_scheduler_one_task_is_sent(database_url: str, rows: Schedules) -> None:
    app = make_app(database_url, schedule())
    await check_once(app)
    await rows.move(await rows.hour(2))
    await check_once(app)
    latest = await rows.hour()
    assert [task["id"] for task in await rows.sent()] == [slot_task_id("s", latest)]
    state = await rows.state()
    assert (state["last_run_at"], state["next_run_at"], state["run_count"]) == (latest, latest + HOUR, 1)


async def test_s36_after_three_hours_every_missed_run_is_sent_the_oldest_first(
    database_url: str, rows: Schedules
) -> None:
    app = make_app(database_url, schedule(catch_up_missed=True))
    await check_once(app)
    await rows.move(await rows.hour(2))
    await check_once(app)
    slots = [await rows.hour(ago) for ago in (2, 1, 0)]
    assert [task["id"] for task in await rows.sent()] == [slot_task_id("s", slot) for slot in slots]
    state = await rows.state()
    assert (state["last_run_at"], state["next_run_at"], state["run_count"]) == (slots[2], slots[2] + HOUR, 3)


async def test_s36_at_most_so_many_in_one_check_and_the_rest_in_later_ones(database_url: str, rows: Schedules) -> None:
    most = fire.MOST_SLOTS + 20
    app = make_app(
        database_url,
        schedule(pattern=CronSchedule.parse("* * * * *"), catch_up_missed=True, max_catch_up_runs=most),
    )
    async with scheduler_of(app) as scheduler:
        await scheduler.check()
        first = await rows.move((await rows.now(minutes=-most - 29)).replace(second=0, microsecond=0))
        await scheduler.check()
        assert [task["id"] for task in await rows.sent()] == [
            slot_task_id("s", first + n * timedelta(minutes=1)) for n in range(most)
        ]
        await scheduler.step()
        assert len(await rows.sent()) == most, "a step between two checks is not a check"
        await scheduler.check()
        state = await rows.state()
        assert state["run_count"] == len(await rows.sent()) >= most + 30


async def test_s37_another_pattern_moves_the_next_run_and_says_so(
    database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await check_once(make_app(database_url, schedule()))
    await rows.move(await rows.hour(5))
    await rows.all("UPDATE horsies_schedule_state SET run_count = 5 RETURNING 1")
    other = schedule(pattern=HourlySchedule(minute=59, second=59), catch_up_missed=True)
    await check_once(make_app(database_url, other))
    state = await rows.state()
    assert state["next_run_at"] > await rows.hour() and state["next_run_at"].minute == 59
    assert (state["config_hash"], state["run_count"]) == (config_hash(other), 5)
    assert await rows.sent() == [], "missed slots of the old pattern are dropped"
    assert len(warnings(caplog)) == 1 and "'s'" in warnings(caplog)[0]


async def test_s37_other_arguments_do_not_move_the_next_run(
    database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await check_once(make_app(database_url, schedule()))
    await rows.move(await rows.hour())
    await check_once(make_app(database_url, schedule(kwargs={"number": 2}, catch_up_missed=True)))
    assert [task["kwargs"] for task in await rows.sent()] == ['{"number":2}'] and warnings(caplog) == []


async def test_s37_of_two_configurations_of_one_name_the_last_one_seen_holds_and_each_change_is_told(
    database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = schedule(), schedule(pattern=HourlySchedule(minute=59))
    async with (
        scheduler_of(make_app(database_url, one)) as first,
        scheduler_of(make_app(database_url, two)) as second,
    ):
        await first.check()
        for _ in range(3):
            await second.check()
            assert (await rows.state())["config_hash"] == config_hash(two)
            await first.check()
            assert (await rows.state())["config_hash"] == config_hash(one)
        assert len(warnings(caplog)) == 6
    # One of them is gone, and the other goes on at once.
    await rows.move(await rows.hour())
    await check_once(make_app(database_url, one))
    assert len(await rows.sent()) == 1


async def test_s38_disabled_and_unknown_schedules_keep_their_state(database_url: str, rows: Schedules) -> None:
    await check_once(make_app(database_url, schedule("off"), schedule("gone"), schedule("on")))
    for name in ("off", "gone", "on"):
        await rows.move(await rows.hour(1), name)
    before = await rows.states()
    await check_once(make_app(database_url, schedule("off", enabled=False), schedule("on")))
    after = await rows.states()
    assert (after["off"], after["gone"]) == (before["off"], before["gone"])
    assert [task["id"] for task in await rows.sent()] == [slot_task_id("on", await rows.hour())]
    await check_once(make_app(database_url, schedule("off")))
    assert (await rows.state("off"))["last_run_at"] == await rows.hour(), "the rules for missed slots apply"


async def test_s39_t17_what_cannot_be_sent_leaves_its_state_and_the_others_go_on(
    database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    bad = schedule("bad", kwargs={"number": 10**80})
    app = make_app(database_url, bad, schedule("good"), payload=PayloadPolicy(reject_bytes=60))
    async with scheduler_of(app) as scheduler:
        await scheduler.check()
        slot = await rows.move(await rows.hour(), "bad")
        await rows.move(slot, "good")
        await scheduler.check()
        await scheduler.check()
        assert [task["id"] for task in await rows.sent()] == [slot_task_id("good", slot)]
        assert (await rows.state("bad"))["next_run_at"] == slot and (await rows.state("bad"))["run_count"] == 0
        assert "'bad'" in warnings(caplog)[0] and "reject_bytes" in warnings(caplog)[0]
        # It is tried again, and nothing of it was lost.
        assert app.config.schedule is not None
        app.config.schedule.schedules[0] = schedule("bad")

        async def is_sent() -> bool:
            await scheduler.check()
            return (await rows.state("bad"))["last_run_at"] == slot

        await eventually(is_sent, 20)


async def test_s39_what_the_database_refuses_is_alone_with_its_problem(
    db: AsyncConnection[Any], database_url: str, rows: Schedules, caplog: pytest.LogCaptureFixture
) -> None:
    await db.execute("ALTER TABLE horsies_tasks ADD CONSTRAINT never CHECK (kwargs <> '{\"number\":13}')")
    many = [schedule(f"s{n:02}", kwargs={"number": n}) for n in range(30)]
    async with scheduler_of(make_app(database_url, *many)) as scheduler:
        await scheduler.check()
        await rows.all("UPDATE horsies_schedule_state SET next_run_at = date_trunc('hour', now()) RETURNING 1")
        await scheduler.check()
        states = await rows.states()
        assert [name for name, state in states.items() if state["run_count"] != 1] == ["s13"]
        assert len(await rows.sent()) == 29 and len(warnings(caplog)) == 1 and "'s13'" in warnings(caplog)[0]
        await db.execute("ALTER TABLE horsies_tasks DROP CONSTRAINT never")
        await scheduler.check()
    assert (await rows.state("s13"))["run_count"] == 1


async def test_s32_d62_what_another_holds_is_left_to_it(
    db: AsyncConnection[Any], database_url: str, rows: Schedules
) -> None:
    names = ["locked", "busy", "new", "free"]
    app = make_app(database_url, *(schedule(name) for name in names))
    async with scheduler_of(make_app(database_url, *(schedule(name) for name in names if name != "new"))) as earlier:
        await earlier.check()
    for name in ("locked", "busy", "free"):
        await rows.move(await rows.hour(), name)
    async with scheduler_of(app) as scheduler:
        async with db.transaction():
            for name in ("locked", "new"):
                await db.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(f"horsies:schedule:{name}")])
            await db.execute("SELECT 1 FROM horsies_schedule_state WHERE schedule_name = 'busy' FOR UPDATE")
            async with asyncio.timeout(1.5):  # it waits for nobody: the time limit of locks is longer
                await scheduler.check()
            assert [name for name, state in (await rows.states()).items() if state["run_count"]] == ["free"]
            assert "new" not in await rows.states()
        await scheduler.check()
    assert sorted(name for name, state in (await rows.states()).items() if state["run_count"]) == [
        "busy",
        "free",
        "locked",
    ]
    assert "new" in await rows.states()


async def test_s41_schedulers_that_check_at_the_same_moment_send_each_slot_once(
    database_url: str, rows: Schedules
) -> None:
    many = [schedule(f"s{n}", catch_up_missed=True) for n in range(40)]
    async with (
        scheduler_of(make_app(database_url, *many)) as one,
        scheduler_of(make_app(database_url, *many)) as two,
        scheduler_of(make_app(database_url, *many)) as three,
    ):
        everybody = (one, two, three)
        await asyncio.gather(*(scheduler.check() for scheduler in everybody))
        hour = await rows.hour()
        await rows.all("UPDATE horsies_schedule_state SET next_run_at = %s RETURNING 1", hour - 2 * HOUR)
        for _ in range(3):
            await asyncio.gather(*(scheduler.check() for scheduler in everybody))
    wanted = {slot_task_id(f"s{n}", hour - ago * HOUR) for n in range(40) for ago in range(3)}
    assert {task["id"] for task in await rows.sent()} == wanted
    assert {state["run_count"] for state in (await rows.states()).values()} == {3}


async def test_s32_a_state_that_somebody_moves_or_deletes_is_noticed_at_the_next_check(
    database_url: str, rows: Schedules
) -> None:
    async with scheduler_of(make_app(database_url, schedule("moved"), schedule("deleted"))) as scheduler:
        await scheduler.check()
        await rows.move(await rows.hour(), "moved")
        await rows.all("DELETE FROM horsies_schedule_state WHERE schedule_name = 'deleted' RETURNING 1")
        await scheduler.check()
    states = await rows.states()
    assert states["moved"]["run_count"] == 1 and states["deleted"]["next_run_at"] == await rows.hour() + HOUR


async def test_s03_s32_a_schedule_may_name_another_queue(database_url: str, rows: Schedules) -> None:
    queues = [CustomQueueConfig(name="usual", priority=50), CustomQueueConfig(name="urgent", priority=2)]
    app = make_app(
        database_url, schedule(queue_name="urgent"), queue_mode=QueueMode.CUSTOM, custom_queues=queues
    )  # fmt: skip
    await check_once(app)
    await rows.move(await rows.hour())
    await check_once(app)
    assert [(task["queue_name"], task["priority"]) for task in await rows.sent()] == [("urgent", 2)]


async def test_s32_arguments_travel_as_the_task_declares_them(database_url: str, rows: Schedules) -> None:
    app = make_app(database_url, schedule(task_name="report", args=(Report(title="monthly", pages=3),)))
    await check_once(app)
    await rows.move(await rows.hour())
    await check_once(app)
    assert [task["args"] for task in await rows.sent()] == ['[{"title":"monthly","pages":3}]']


async def test_s02_s32_a_step_waits_for_the_next_run_or_the_next_check(database_url: str, rows: Schedules) -> None:
    pattern = IntervalSchedule(hours=1)
    async with scheduler_of(make_app(database_url, schedule(pattern=pattern), interval=60)) as scheduler:
        pause = await scheduler.step()
        assert 50 < pause <= 60
        await rows.move(await rows.now(seconds=5))
        await scheduler.check()
        pause = await scheduler.step()
        assert 0 < pause <= 5.1
        await rows.move(await rows.now(seconds=-1))
        await scheduler.step()
        assert (await rows.state())["run_count"] == 1, "also between two checks"
