"""A short run of the mixed fleet; `make soak DEPLOYS=1` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploys.fleet import Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.slow("deploys a fleet back and forth")]


async def test_o31_o32_a_fleet_that_is_deployed_back_and_forth_fails_no_task(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    log = tmp_path / "workers.log"
    outcome = await Fleet(database_url, workers=2, rate=40.0, log=log).run(10.0, step_s=1.0)
    assert outcome.problems == [], log.read_text()
    assert outcome.restarts >= 2 and len(outcome.sent) == 6
