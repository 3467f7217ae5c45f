"""C code that holds the interpreter for three times the stale threshold: the child cannot say a word, but it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Configured
from tests.fenced_support import LOCATOR, send, traces_of
from tests.worker_support import Rows, running_worker

pytestmark = [pytest.mark.e2e, pytest.mark.slow("burns a core for seconds by design")]


async def test_w01_r101_a_child_held_by_c_code_is_vouched_for_and_finishes(
    fenced: Configured, rows: Rows, traces: Path
) -> None:
    """Neither its parent nor another worker takes it for dead, and afterwards it reads that it may go on."""
    app = fenced()
    async with running_worker(app.app, app_locator=LOCATOR), running_worker(app.app, app_locator=LOCATOR):
        handle = await send(app.grind, 9.0)  # the processor may be faster than it was when that was measured
        assert (await handle.get_async(timeout_ms=240_000)).is_ok()  # on a busy machine it may take that long
    begin, end = traces_of(traces, "grind")
    assert end.at - begin.at > 3 * 2.0, "it did not take as long as this test needs"
    assert [a["outcome"] for a in await rows.attempts(handle.task_id)] == ["COMPLETED"]
    beats = await rows.all("SELECT role, pid FROM horsies_heartbeats WHERE task_id = %s", handle.task_id)
    assert len(beats) >= 3 and {(b["role"], b["pid"]) for b in beats} == {("runner", begin.pid)}
