"""Invariant 7, L-03 and D-63 as a property: whatever runs at the same time ends as if one had gone after the other.

`PROOF_SECONDS=600` runs it for that long with new examples instead of the fixed ones of the default run.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from hypothesis import HealthCheck, given, seed, settings

from tests.architecture.source import statements
from tests.conftest import SERVER_VARIABLE
from tests.proof_pairs.arena import Arena, Example
from tests.proof_pairs.examples import examples
from tests.proof_pairs.test_coverage import WRITES
from tests.proof_pairs.verdict import Judge

SECONDS = float(os.environ.get("PROOF_SECONDS", "0"))
BY_DEFAULT = {2: 150, 3: 25}
LONG = pytest.mark.timeout(max(400, 2 * SECONDS + 400))  # a failure takes its time to become small


@LONG
@pytest.mark.parametrize("actors", [2, 3])
def test_l03_d63_concurrent_statements_end_as_a_serial_order_of_them(
    actors: int, database_url: str, server_url: str
) -> None:
    with asyncio.Runner() as runner, log_of_deadlocks() as log:
        arena = runner.run(opened(database_url))

        judge = Judge(arena)

        def holds(example: Example) -> None:
            runner.run(judge.check(example))

        try:
            explore(holds, actors)
        finally:
            runner.run(arena.__aexit__())
    print(dict(judge.counts))
    assert [line for line in log() if any(f"[{pid}]" in line for pid in arena.pids)] == []
    assert deadlocks(server_url, database_url) == 0
    if actors == 2:
        assert WRITES(statements()) - arena.files == set(), "statements that no example has run"


def explore(holds: object, actors: int) -> None:
    """The same examples each time, or as many new ones as there is time for."""
    quiet = settings(
        deadline=None,
        database=None,
        derandomize=not SECONDS,
        max_examples=BY_DEFAULT[actors] if not SECONDS else 200,
        suppress_health_check=list(HealthCheck),
    )
    until = time.monotonic() + SECONDS / 2  # half of it for each number of actors
    while True:
        run = quiet(given(examples(actors))(holds))  # type: ignore[arg-type]
        if SECONDS:
            number = random.randrange(1 << 32)
            print(f"seed {number}")
            run = seed(number)(run)
        run()
        if time.monotonic() >= until:
            return


async def opened(url: str) -> Arena:
    return await Arena(url).__aenter__()


@contextmanager
def log_of_deadlocks() -> Iterator[object]:
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
