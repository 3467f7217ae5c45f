"""The hooks of `recovering.py`: each task says by its argument what shall become of it."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from horsies import Horsies, JobInterrupted, JobRecovery, JobRecoveryResult, WorkerRecovered

app = Horsies.current()
assert app is not None, "hooks run in a child, which makes its app current before it imports modules (W-40)"

LATER = datetime(2036, 5, 4, 3, 2, 1, tzinfo=UTC)


def note(name: str, **facts: Any) -> None:
    with (Path(os.environ["TRACES"]) / name).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), "parent": os.getppid(), **facts}) + "\n")


@app.hooks.on(JobRecovery)
async def policy(ctx: JobRecovery) -> JobRecoveryResult | None:
    note("asked", id=ctx.job.id, by=ctx.worker_id, of=ctx.previous_worker_id, reason=ctx.reason, tries=ctx.job.attempts)
    if (Path(os.environ["TRACES"]) / "forgiven").exists():
        ctx.job.args[0] = "default"  # has no effect: what a view shows is a copy
        return JobRecoveryResult.Reschedule(LATER)
    match ctx.job.args[0]:
        case "default":
            return JobRecoveryResult.Default
        case "backoff":
            return JobRecoveryResult.FailWithBackoff
        case "reschedule":
            return JobRecoveryResult.Reschedule(LATER, attempts=2)
        case "skip":
            return JobRecoveryResult.Skip
    return None


@app.hooks.on(JobRecovery)
def mischief(ctx: JobRecovery) -> Any:
    match ctx.job.args[0]:
        case "raise":
            raise RuntimeError("as told")
        case "exit":
            sys.exit(1)
        case "hang":
            time.sleep(600)
        case "nonsense":
            return "Default"
    return None


@app.hooks.on(JobInterrupted)
def interrupted(ctx: JobInterrupted) -> None:
    note("interrupted", id=ctx.job.id, of=ctx.worker_id, reason=ctx.reason)


@app.hooks.on(WorkerRecovered)
async def recovered(ctx: WorkerRecovered) -> None:
    note("recovered", by=ctx.worker_id, dead=ctx.dead_worker_ids, jobs=ctx.jobs_recovered)
