"""Invariant 7, L-03 and D-63 as a property: whatever runs at the same time ends as if one had gone after the other.

`PROOF_SECONDS=600` runs each of the two tests for that long with new examples instead of the fixed ones of the default
run; `PROOF_SEED=` begins with the seed of a run that found something.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests import given_server
from tests.conftest import SERVER_VARIABLE
from tests.proof_pairs.arena import Arena
from tests.proof_pairs.examples import examples
from tests.proof_pairs.found import FOUND
from tests.proof_pairs.plays import Example
from tests.proof_pairs.verdict import Judge

SECONDS = float(os.environ.get("PROOF_SECONDS", "0"))
BY_DEFAULT = {2: 60, 3: 10}
ROUND = 200  # examples between two looks at the time
LONG = pytest.mark.timeout(2 * SECONDS + 400)  # a failure takes its time to become small


@LONG
@pytest.mark.parametrize("actors", [2, 3])
def test_l03_d63_concurrent_statements_end_as_a_serial_order_of_them(
    actors: int, database_url: str, server_url: str
) -> None:
    with judging(database_url, server_url) as holds:
        explore(holds, actors)


@pytest.mark.parametrize("name", sorted(FOUND))
def test_l03_d63_what_was_found_once(name: str, database_url: str, server_url: str) -> None:
    with judging(database_url, server_url) as holds:
        for _ in range(3):
            holds(FOUND[name])


def explore(holds: Callable[[Example], None], actors: int) -> None:
    """The same examples each time, or as many new ones as there is time for."""
    quiet = settings(
        deadline=None,
        database=None,
        derandomize=not SECONDS,
        max_examples=ROUND if SECONDS else BY_DEFAULT[actors],
        suppress_health_check=list(HealthCheck),
    )
    until = time.monotonic() + SECONDS
    number = int(os.environ.get("PROOF_SEED") or random.randrange(1 << 32))
    while True:
        run: Any = quiet(given(examples(actors))(holds))
        if SECONDS:
            print(f"PROOF_SEED={number}")
            run = seed(number)(run)
        run()
        number += 1
        if time.monotonic() >= until:
            return


@contextmanager
def judging(database_url: str, server_url: str) -> Iterator[Callable[[Example], None]]:
    """Check examples; in the end neither the server's log nor its statistics may tell of a deadlock."""
    with asyncio.Runner() as runner, log_of_deadlocks() as log:
        arena = runner.run(Arena(database_url).__aenter__())
        judge = Judge(arena)

        def holds(example: Example) -> None:
            runner.run(judge.check(example))

        try:
            yield holds
        finally:
            runner.run(arena.__aexit__())
            print(dict(judge.counts))
    assert [line for line in log() if any(f"[{pid}]" in line for pid in arena.pids)] == []
    assert deadlocks(server_url, database_url) == 0


@contextmanager
def log_of_deadlocks() -> Iterator[Callable[[], list[str]]]:
    """What the log of our own server says; a server that was given keeps its log to itself."""
    if given_server.VARIABLE in os.environ:
        yield list
        return
    path = Path(os.environ[SERVER_VARIABLE], "server.log")
    before = path.stat().st_size if path.exists() else 0

    def read() -> list[str]:
        with path.open("rb") as file:
            file.seek(before)
            return [line for line in file.read().decode(errors="replace").splitlines() if "deadlock detected" in line]

    yield read


def deadlocks(server_url: str, database_url: str) -> int:
    """How many the server has counted in this database; a session that has ended has reported."""
    with psycopg.connect(server_url) as conn:
        name = urlsplit(database_url).path.removeprefix("/")
        row = conn.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])
