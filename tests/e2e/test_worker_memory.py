"""What a worker's processes keep in memory is what they use: a worker runs for weeks, and there may be many of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import eventually
from tests.warm_start import COLD_VARIABLE
from tests.worker_support import ROOT, Rows, WorkerProcess

pytestmark = pytest.mark.e2e
LOCATOR = str(ROOT / "tests" / "apps" / "witness.py")


class Told(NamedTuple):
    """What the processes of a worker have told about themselves."""

    supervisor: dict[str, Any]
    children: list[dict[str, Any]]


@pytest.fixture
async def told(database_url: str, rows: Rows, traces: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setenv(COLD_VARIABLE, "1")  # a worker that is forked from the tests has what the tests have imported
    with WorkerProcess(database_url, "--processes", "2", locator=LOCATOR) as worker:
        await eventually(lambda: rows.all("SELECT 1 FROM horsies_workers"), what="the worker is ready")
        (traces / "tell").touch()
        await eventually(lambda: len(read(traces)) == 3, what="all three have told")
        found = read(traces)
        return Told(found.pop(worker.process.pid), list(found.values()))


def read(traces: Path) -> dict[int, dict[str, Any]]:
    return {int(file.name.split("-")[1]): json.loads(file.read_text()) for file in traces.glob("told-*")}


async def test_a_worker_imports_no_library_that_it_does_not_use(told: Told) -> None:
    assert {"rich", "sqlalchemy"} & set(told.supervisor["packages"]) == set()
    for child in told.children:  # what the command has loaded before the fork, as typer, is shared
        assert {"rich", "sqlalchemy", "uvloop"} & set(child["packages"]) == set()


async def test_children_share_the_validators_that_were_built_before_they_were_forked(told: Told) -> None:
    """The command rehearses before it forks the fork server."""
    assert [told.supervisor["was_built"], *(child["was_built"] for child in told.children)] == [True, True, True]
