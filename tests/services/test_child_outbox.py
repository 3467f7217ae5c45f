"""Reports of very short tasks are kept in memory that the supervisor shares, and sent together (W-30): whatever happens
to the child, it still tells which tasks have ended, and in which one it was."""

from __future__ import annotations

import asyncio

import pytest

from horsies.core.child.wire import Frame, Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import Child, start_child

pytestmark = pytest.mark.asyncio(loop_scope="module")

BRIEF = 12
ROUNDS = 20


async def brief_child(launcher: Launcher, number: int) -> Child:
    """One that knows that these tasks are brief."""
    child = await start_child(launcher, name=f"horsies-child-{number}")
    await child.ready()
    for _ in range(3):
        await child.done(child.run("brief_or_not"))
    return child


def give(child: Child, **last: object) -> list[int]:
    """Brief tasks and one that is not, all at once; their tokens."""
    orders = [child.order("brief_or_not") for _ in range(BRIEF)] + [child.order("brief_or_not", **last)]
    child.tell(*(frame for _, frame in orders))
    return [token for token, _ in orders]


def said(frames: list[Frame], kind: Kind) -> set[int]:
    return {number for found, number, _ in frames if found is kind}


async def test_w35_a_killed_child_has_told_what_had_ended_and_what_it_was_in(launcher: Launcher) -> None:
    kept = 0
    for number in range(ROUNDS):
        child = await brief_child(launcher, number)
        tokens = give(child, is_last=True)
        await child.code()
        assert child.process.outbox is not None
        left = child.process.outbox.left()
        frames = [*await child.hear_all(), *left]
        assert said(frames, Kind.DONE) & set(tokens) == set(tokens[:-1])
        assert tokens[-1] in said(frames, Kind.STARTED)
        kept += len(left)
        if kept:  # on a busy machine no task may be brief
            return
    pytest.fail("nothing was ever kept")


@pytest.mark.parametrize("holds_interpreter", [False, True])
async def test_w30_what_a_child_keeps_is_known_while_its_code_takes_longer_than_before(
    launcher: Launcher, holds_interpreter: bool
) -> None:
    kept = 0
    for number in range(ROUNDS):
        child = await brief_child(launcher, number)
        tokens = give(child, seconds=1.0, holds_interpreter=holds_interpreter)
        overheard: list[Frame] = []
        heard = asyncio.create_task(hear_until_done(child, tokens[-1]))

        while not heard.done():
            assert child.process.outbox is not None
            overheard += child.process.outbox.lying()
            await asyncio.wait([heard], timeout=0.05)  # as often as a worker looks
        frames = heard.result()
        assert said(frames, Kind.DONE) == set(tokens)  # in the end
        assert said(overheard, Kind.DONE) <= set(tokens[:-1])
        assert len(said(overheard, Kind.STARTED)) == [kind for kind, _, _ in overheard].count(Kind.STARTED)  # once
        kept += len(overheard)
        if kept:
            assert tokens[-1] in said(overheard, Kind.STARTED)
            return
    pytest.fail("nothing was ever kept")


async def hear_until_done(child: Child, last: int) -> list[Frame]:
    frames = [await child.hear()]
    while frames[-1][:2] != (Kind.DONE, last):
        frames.append(await child.hear())
    return frames


async def test_a_report_larger_than_the_outbox_is_sent_with_what_was_kept(launcher: Launcher) -> None:
    child = await start_child(launcher)
    await child.ready()
    for _ in range(3):
        await child.answer("echo", 1)
    orders = [child.order("echo", value) for value in (1, "x" * 200_000, 2, 3)]
    child.tell(*(frame for _, frame in orders))
    frames = await hear_until_done(child, orders[-1][0])
    assert [number for kind, number, _ in frames if kind is Kind.DONE] == [token for token, _ in orders]
