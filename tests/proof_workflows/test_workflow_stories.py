"""Random workflows, act by act: after each every row of workflows, nodes and tasks is what a simple model of the rules
says. A few stories by default, always the same; with PROOF_SECONDS as many new ones as there is time for (PROOF_SEED of
a run that found something; PROOF_AS_FOUND: a finding is told as it was found, not shortened).
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from psycopg import AsyncConnection

from tests.proof_pairs.choices import Choices
from tests.proof_pairs.test_pairs import deadlocks, log_of_deadlocks
from tests.proof_workflows.engine import Pool
from tests.proof_workflows.story import Story

SECONDS = float(os.environ.get("PROOF_SECONDS", "0"))
BY_DEFAULT = 8
ROUND = 50
SIZE = 3000
LONG = pytest.mark.timeout(2 * SECONDS + 600)


@LONG
def test_f20_f21_f30_f32_f40_f70_every_story_goes_as_the_model_says(database_url: str, server_url: str) -> None:
    tally: Counter[str] = Counter()
    with stage(database_url, server_url) as (run, pool, watch):

        def told(data: bytes) -> None:
            tally["stories"] += 1
            run(Story(pool, watch, Choices(data), tally).tell())

        explore(told)
    print(dict(tally))


def explore(told: Callable[[bytes], None], by_default: int = BY_DEFAULT) -> None:
    """The same stories each time, or as many new ones as there is time for."""
    if not SECONDS:  # hypothesis would begin with the simplest ones
        for number in range(by_default):
            told(random.Random(number).randbytes(SIZE))
        return
    quiet = settings(
        deadline=None,
        database=None,
        max_examples=ROUND,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate,) if "PROOF_AS_FOUND" in os.environ else (Phase.generate, Phase.shrink),
    )
    until = time.monotonic() + SECONDS
    number = int(os.environ.get("PROOF_SEED") or random.randrange(1 << 32))
    while True:
        run: Any = quiet(given(st.binary(min_size=SIZE, max_size=SIZE))(told))
        print(f"PROOF_SEED={number}")
        seed(number)(run)()
        number += 1
        if time.monotonic() >= until:
            return


@contextmanager
def stage(
    database_url: str, server_url: str
) -> Iterator[tuple[Callable[[Coroutine[Any, Any, None]], None], Pool, AsyncConnection[Any]]]:
    """Connections to a database; in the end neither the server's log nor its statistics may tell of a deadlock."""
    pool = Pool(database_url)
    with asyncio.Runner() as runner, log_of_deadlocks() as log:
        watch = runner.run(AsyncConnection.connect(database_url, autocommit=True))
        try:
            yield runner.run, pool, watch
        finally:
            runner.run(watch.close())
            runner.run(pool.close())
    assert [line for line in log() if any(f"[{pid}]" in line for pid in pool.pids)] == []
    assert deadlocks(server_url, database_url) == 0
