"""A short round with a fixed seed, in which everything breaks; `make chaos` runs new ones for as long as told."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import report
from tests.chaos.checks import check
from tests.chaos.plan import make_plan
from tests.chaos.round import Round

SEED = 295  # workers, a child and the server are killed, others stopped
SECONDS = 8.0

pytestmark = pytest.mark.e2e


def test_l03_l33_w54_whatever_breaks_every_task_ends_once_and_nothing_of_the_dead_is_accepted() -> None:
    one = Round(make_plan(SEED, SECONDS, workers=2), rest_s=30.0)
    history = asyncio.run(one.run())
    violations = check(history)
    assert not violations, report.finding(history, violations, one.home, f"make chaos SEED={SEED} SECONDS=60")
    assert len(history.faults) > 3 and len(history.runs) > 20, report.headline(history)
    one.clear()
