"""Questions that are asked again and again (M-80): when they are due, and what happens without an answer."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringQueryError, MonitoringResult
from horsies.core.types import Err, Ok
from horsies.tui import polls
from horsies.tui.polls import Feed, Poll, ServerClock
from tests.support import eventually
from tests.tui_support import NOW


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


AWAY: MonitoringResult[int] = Err(
    MonitoringQueryError(MonitoringErrorCode.DB_OPERATION_FAILED, "refused", retryable=True)
)


async def answering(value: int) -> MonitoringResult[int]:
    return Ok(value)


async def test_m80_a_poll_is_due_after_its_pause() -> None:
    clock = Hand()
    poll = Poll(lambda: answering(7), 2.0)
    assert poll.is_due(clock.time) and poll.value is None and poll.age_s(clock.time) is None
    await poll.ask(clock)
    assert poll.value == 7 and not poll.is_due(101.9) and poll.is_due(102.0)
    assert poll.age_s(105.0) == 5.0
    poll.hurry()
    assert poll.is_due(100.1)


async def test_m80_a_poll_whose_answer_takes_long_pauses_longer() -> None:
    clock = Hand()

    async def slow() -> MonitoringResult[int]:
        clock.time += 0.5
        return Ok(1)

    poll = Poll(slow, 2.0)
    await poll.ask(clock)
    assert not poll.is_due(clock.time + 4.9) and poll.is_due(clock.time + 5.0), "ten times as long as it took"


async def test_m80_without_an_answer_the_last_one_stays_and_the_problem_is_said() -> None:
    clock = Hand()
    answers = [Ok(1), AWAY, AWAY, Ok(2)]

    async def next_answer() -> MonitoringResult[int]:
        return answers.pop(0)

    poll = Poll(next_answer, 60.0)
    await poll.ask(clock)
    assert poll.trouble(clock.time) is None
    clock.time = 160.0
    await poll.ask(clock)
    assert poll.value == 1 and poll.trouble(165.0) == ("refused", 5.0)
    assert poll.is_due(161.0), "it is tried again soon, whatever its pause"
    clock.time = 170.0
    await poll.ask(clock)
    assert poll.trouble(175.0) == ("refused", 15.0), "since the first failure"
    await poll.ask(clock)
    assert (poll.value, poll.trouble(clock.time)) == (2, None)


async def test_m80_an_answer_that_does_not_come_is_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Hand()
    poll = Poll(lambda: asyncio.Event().wait(), 2.0)  # type: ignore[arg-type,return-value]
    asking = asyncio.create_task(poll.ask(clock))
    await asyncio.sleep(0)
    assert poll.trouble(102.9) is None and poll.trouble(104.0) == ("no answer", 4.0)
    assert not poll.is_due(1_000.0), "it is not asked twice at the same time"
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    monkeypatch.setattr(polls, "PATIENCE_S", 0.01)
    await poll.ask(clock)
    assert poll.problem == "no answer within 0.01 s"


async def test_m80_a_mistake_of_ours_is_said_and_does_not_end_the_program(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> MonitoringResult[int]:
        raise ZeroDivisionError("oh")

    poll = Poll(broken, 2.0)
    await poll.ask()
    assert poll.problem is not None and "oh" in poll.problem and "could not be asked" in caplog.text


async def test_m80_a_feed_asks_what_is_wanted_and_nothing_else() -> None:
    wanted, other = Poll(lambda: answering(1), 60.0), Poll(lambda: answering(2), 60.0)
    front = [wanted]
    changes: list[None] = []
    feed = Feed(lambda: front, lambda: changes.append(None), 60.0)
    running = asyncio.create_task(feed.run())
    await eventually(lambda: wanted.value == 1)
    assert other.value is None and len(changes) == 1
    front[:] = [other]
    feed.ring()
    await eventually(lambda: other.value == 2)
    other.value = None
    feed.refresh()
    await eventually(lambda: other.value == 2, what="a refresh does not wait for the pause")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await feed.close()


async def test_m80_a_feed_that_is_closed_asks_nothing_more() -> None:
    forever = Poll(lambda: asyncio.Event().wait(), 2.0)  # type: ignore[arg-type,return-value]
    feed = Feed(lambda: [forever], lambda: None, 60.0)
    feed.tick()
    feed.tick()
    await asyncio.wait_for(feed.close(), 5)
    assert [task for task in asyncio.all_tasks() if "tui" in task.get_name()] == []


def test_m80_ages_follow_the_clock_of_the_database() -> None:
    clock = ServerClock(lambda: NOW)
    assert clock.now() == NOW
    clock.set(NOW + timedelta(minutes=5))
    assert clock.now() == NOW + timedelta(minutes=5)
