"""Whether a child that says nothing is alive: real children whose code holds the interpreter (W-01, R-101)."""

import asyncio
from pathlib import Path

import pytest

from horsies.core.worker import children
from horsies.core.worker.launcher import Launcher
from horsies.core.worker.liveness import MEASURE_S, VitalSigns, is_working
from tests.services.children import Child, start_child
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

INTERVALS = {"shortest": (1.0, 0.25), "default": (30.0, 1.0)}  # between heartbeats, and between two looks
LOOK_FOR_S = 5.0  # in this time a thread that waits for the interpreter uses several hundredths of a second


BURNS = pytest.mark.slow("burns a core for five seconds")


@pytest.fixture(params=["shortest", pytest.param("default", marks=BURNS)])
def intervals(request: pytest.FixtureRequest) -> tuple[float, float]:
    return INTERVALS[request.param]


async def silent(child: Child, silent_s: float) -> children.Child:
    """The child as its supervisor knows it when it has not reported for that long."""
    known = children.Child(child.process)
    known.last_heard -= silent_s + 1.0
    return known


@pytest.mark.parametrize("waiting", [0, pytest.param(20, marks=BURNS)], ids=["one thread waits", "many threads wait"])
async def test_w01_threads_that_wait_for_the_interpreter_are_no_sign_of_life(
    launcher: Launcher, tmp_path: Path, intervals: tuple[float, float], waiting: int
) -> None:
    interval_s, every_s = intervals
    child = await start_child(launcher, beat_interval_ms=300)
    await child.ready()
    child.run("hold_the_interpreter", str(tmp_path / "it"), seconds=600, waiting=waiting)
    await eventually((tmp_path / "it").exists)
    known, signs = await silent(child, interval_s), VitalSigns(interval_s)
    await asyncio.sleep(every_s)  # what it used before it got stuck is not looked at
    seen = []
    for _ in range(int(LOOK_FOR_S / every_s)):
        seen.append(bool(signs.look([known])))
        await asyncio.sleep(every_s)
    assert not any(seen), seen


async def test_w01_c_code_that_works_with_the_interpreter_held_is_a_sign_of_life(
    launcher: Launcher, tmp_path: Path, intervals: tuple[float, float]
) -> None:
    """Not at every look, because a busy machine may give it nothing for a while; often enough to be left alone."""
    interval_s, every_s = intervals
    child = await start_child(launcher, beat_interval_ms=300)
    await child.ready()
    child.run("match_for_ever", str(tmp_path / "it"))
    await eventually((tmp_path / "it").exists)
    known, signs = await silent(child, interval_s), VitalSigns(interval_s)
    for _ in range(3):
        await eventually(lambda: signs.look([known]) == {child.pid}, every=every_s, what="a sign of life")
        await asyncio.sleep(MEASURE_S)  # so that the next look measures again


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({1: 5.0}, {1: 5.09}, False),
        ({1: 5.0}, {1: 5.11}, True),
        ({1: 5.0}, {1: 5.0, 2: 0.1}, True),  # a thread that is new
        (dict.fromkeys(range(50), 1.0), dict.fromkeys(range(50), 1.02), False),  # they add up to half a processor
        ({1: 5.0}, {}, False),
    ],
)
async def test_w01_one_thread_must_work_for_a_twentieth_of_the_time(
    before: dict[int, float], after: dict[int, float], expected: bool
) -> None:
    assert is_working(before, after, 2.0) is expected
