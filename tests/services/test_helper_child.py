"""The helper child of a worker: recovery hooks run there, and whatever they do there the worker has its answers and
loses no time (W-01, R-74 to R-76).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from horsies import FailureReason, Job, JobInterrupted, JobRecovery, JobRecoveryResult, WorkerRecovered
from horsies.core.child.wire import ChildSpec
from horsies.core.scheduler.payloads import Wanted
from horsies.core.worker.helper_calls import MOST_LOSSES, HelperHookCaller, HelperPreparer
from horsies.core.worker.helper_process import HelperChild
from horsies.core.worker.launcher import Launcher
from tests.services.children import ROOT, is_alive, read_pid
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRASHED = FailureReason.WORKER_CRASHED
DEFAULT, SKIP, BACKOFF = JobRecoveryResult.Default, JobRecoveryResult.Skip, JobRecoveryResult.FailWithBackoff
EVENTS = ["JobRecovery", "JobInterrupted", "WorkerRecovered"]
LIMIT_MS = 500

APP = """
import asyncio, logging, os, signal, subprocess, sys, threading, time
from datetime import UTC, datetime
from pathlib import Path
from horsies import AppConfig, Horsies, JobInterrupted, JobRecovery, JobRecoveryResult, WorkerRecovered

app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))
here = Path({folder!r})
log = logging.FileHandler(here / "log")
log.setFormatter(logging.Formatter("%(message)s %(horsies)s"))
logging.getLogger("horsies.recovery").addHandler(log)

def note(name, text):
    with (here / name).open("a") as file:
        file.write(f"{{text}}\\n")

{body}
"""

# Does what the task's first argument says.
OBEDIENT = """
@app.hooks.on(JobRecovery)
async def first(ctx):
    note("asked", f"{os.getpid()} {ctx.job.id} {ctx.worker_id} {ctx.previous_worker_id} {ctx.reason}")
    match ctx.job.args[0]:
        case "backoff":
            return JobRecoveryResult.FailWithBackoff
        case "reschedule":
            return JobRecoveryResult.Reschedule(datetime(2030, 1, 1, tzinfo=UTC), attempts=2)
        case "wait":
            await asyncio.sleep(60)
        case "exit in the background":
            asyncio.get_running_loop().call_soon(sys.exit, 3)
            await asyncio.sleep(0.1)

@app.hooks.on(JobRecovery)
def second(ctx):
    match ctx.job.args[0]:
        case "skip":
            return JobRecoveryResult.Skip
        case "raise":
            raise RuntimeError("as told")
        case "exit":
            sys.exit(3)
        case "nonsense":
            return "retry"
        case "hang":
            note("started", subprocess.Popen(["sleep", "600"]).pid)
            time.sleep(600)
        case "leave":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "close":
            os.closerange(3, 4096)
"""

OBSERVING = """
def heard(name):
    def observer(ctx):
        job = getattr(ctx, "job", None)
        if job is not None and job.args[:1] == ["wait for"]:
            while not (here / job.args[1]).exists():
                time.sleep(0.01)
        if job is not None and job.args[:1] == ["hang"]:
            time.sleep(600)
        facts = (job.id, ctx.worker_id, ctx.reason) if job else (ctx.worker_id, ctx.dead_worker_ids, ctx.jobs_recovered)
        note("heard", f"{name} {facts}")
    return observer

def broken(ctx):
    raise RuntimeError("as told")

for event in (JobInterrupted, WorkerRecovered):
    app.hooks.on(event, broken)
    app.hooks.on(event, heard(event.__name__))
"""

Helpers = Callable[..., "Helper"]


class Helper:
    """A worker's helper and the folder in which its hooks leave traces."""

    def __init__(self, launcher: Launcher, folder: Path, body: str, **spec: Any) -> None:
        self.folder = folder
        self.write(body)
        given: dict[str, Any] = {
            "recovery_hook_timeout_ms": LIMIT_MS,
            "cwd": str(folder),
            "sys_path": (str(folder), ROOT),
        } | spec
        self.child = HelperChild(launcher, ChildSpec("some_app:app", **given))
        self.asker = HelperHookCaller(self.child, lambda: EVENTS)

    def write(self, body: str) -> None:
        (self.folder / "some_app.py").write_text(APP.format(folder=str(self.folder), body=body))

    async def decide(self, *what: Any, first: int = 1, **options: Any) -> list[JobRecoveryResult | None]:
        jobs = [job(number, does) for number, does in enumerate(what, first)]
        return await self.asker.decide(jobs, recovering="me", reason=CRASHED, **options)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def complaints(self) -> list[str]:
        """What the helper has logged about handlers."""
        return [line for line in self.lines("log") if "hook some_app" in line]


def job(number: int, *args: str) -> Job:
    texts = ", ".join(f'"{text}"' for text in args)
    return Job(f"task-{number}", "charge", worker_id="gone", args_json=f"[{texts}]")


@pytest_asyncio.fixture(loop_scope="module")
async def helpers(launcher: Launcher, tmp_path: Path) -> AsyncIterator[Helpers]:
    made: list[Helper] = []

    def make(body: str = OBEDIENT, **spec: Any) -> Helper:
        made.append(Helper(launcher, tmp_path, body, **spec))
        return made[-1]

    yield make
    for helper in made:
        await helper.asker.close()


@contextmanager
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    with caplog.at_level(logging.WARNING, "horsies"):
        yield caplog.records


def tasks_of(records: list[logging.LogRecord]) -> list[str]:
    return [facts["task_id"] for record in records if "task_id" in (facts := getattr(record, "horsies", {}))]


# One helper, when it is needed


async def test_w01_a_helper_is_started_when_first_needed_and_kept(helpers: Helpers) -> None:
    helper = helpers()
    await asyncio.sleep(0)
    assert helper.child.pid is None
    answers = await helper.decide("nothing", "backoff", "skip", "reschedule")
    later = JobRecoveryResult.Reschedule(datetime(2030, 1, 1, tzinfo=UTC), attempts=2)
    assert answers == [DEFAULT, BACKOFF, SKIP, later]
    assert answers[0] is DEFAULT and answers[2] is SKIP
    pid = helper.child.pid
    assert pid not in (None, os.getpid())
    assert await helper.decide("backoff", first=5) == [BACKOFF]
    assert helper.lines("asked") == [f"{pid} task-{n} me gone WORKER_CRASHED" for n in range(1, 6)]


async def test_w01_askers_take_turns_in_the_one_helper(helpers: Helpers) -> None:
    helper = helpers()
    answers = await asyncio.gather(*(helper.decide("backoff", "skip", first=10 * n) for n in range(5)))
    assert answers == [[BACKOFF, SKIP]] * 5
    assert len({line.split()[0] for line in helper.lines("asked")}) == 1


async def test_w01_a_helper_that_was_killed_in_between_is_replaced(helpers: Helpers) -> None:
    helper = helpers()
    assert await helper.decide("backoff") == [BACKOFF]
    first = helper.child.pid
    assert first is not None
    os.kill(first, 9)
    await eventually(lambda: helper.child.pid is None, what="word of its end")
    assert await helper.decide("backoff") == [BACKOFF]
    assert helper.child.pid not in (None, first)


async def test_w01_start_hooks_and_discovered_modules_are_there(helpers: Helpers, tmp_path: Path) -> None:
    (tmp_path / "extra.py").write_text("from some_app import *\n" + OBEDIENT)
    helper = helpers(
        "app.discover_tasks(['extra'])\n@app.on_child_process_start\ndef hook():\n    note('hook', os.getpid())\n"
    )
    assert await helper.decide("backoff") == [BACKOFF]
    assert helper.lines("hook") == [str(helper.child.pid)]


async def test_w01_a_helper_that_cannot_start_decides_nothing_until_it_can(
    helpers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    helper = helpers("raise RuntimeError('no configuration')")
    with logged(caplog) as records:
        assert await helper.decide("backoff", "skip") == [None, None]
    assert "no configuration" in caplog.text
    assert tasks_of(records) == ["task-1"]
    helper.write(OBEDIENT)
    assert await helper.decide("backoff", "skip") == [BACKOFF, SKIP]


async def test_w01_a_helper_that_starts_too_slowly_is_there_the_next_time(helpers: Helpers) -> None:
    helper = helpers("while not (here / 'go').exists():\n    time.sleep(0.01)\n" + OBEDIENT)
    assert await helper.decide("backoff", within_s=0.2) == [None]
    pid = await eventually(lambda: helper.child.pid)
    (helper.folder / "go").touch()
    assert await helper.decide("backoff") == [BACKOFF]
    assert helper.child.pid == pid


async def test_w01_nothing_is_asked_after_the_end(helpers: Helpers) -> None:
    helper = helpers()
    assert await helper.decide("backoff") == [BACKOFF]
    pid = helper.child.pid
    assert pid is not None
    await helper.asker.close()
    assert not is_alive(pid)
    assert await helper.decide("backoff") == [None]
    assert helper.child.pid is None


# Handlers that misbehave


@pytest.mark.parametrize("what", ["raise", "exit", "nonsense", "wait"])
async def test_r74_a_handler_that_fails_means_skip_and_is_logged_there(helpers: Helpers, what: str) -> None:
    helper = helpers()
    assert await helper.decide("backoff", what, "backoff") == [BACKOFF, SKIP, BACKOFF]
    assert len({line.split()[0] for line in helper.lines("asked")}) == 1  # the helper is none the worse for it
    [line] = helper.complaints()
    assert "'task_id': 'task-2'" in line and ("some_app.first" if what == "wait" else "some_app.second") in line


ENDS = {"hang": "took longer than", "leave": "exited with code 3", "kill": "killed by SIGKILL", "close": "exited with"}


@pytest.mark.parametrize("what", ENDS)
async def test_r74_a_helper_that_hangs_or_dies_is_replaced_and_only_that_task_skipped(
    helpers: Helpers, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    helper = helpers()
    with logged(caplog) as records:
        assert await helper.decide("backoff", what, "backoff") == [BACKOFF, SKIP, BACKOFF]
    pids = [int(line.split()[0]) for line in helper.lines("asked")]
    assert pids[0] == pids[1] != pids[2]
    await eventually(lambda: not is_alive(pids[0]), what="its end")
    assert tasks_of(records) == ["task-2"]
    [complaint] = [record.getMessage() for record in records if record.name == "horsies.recovery"]
    assert "some_app.second" in complaint and ENDS[what] in complaint
    if what == "hang":  # what a handler has started goes with it
        sleeping = read_pid(helper.folder / "started")
        await eventually(lambda: not is_alive(sleeping), what="the end of what the handler had started")


async def test_r74_something_left_on_the_loop_cannot_end_the_helper(helpers: Helpers) -> None:
    helper = helpers()
    assert await helper.decide("exit in the background", "backoff") == [DEFAULT, BACKOFF]
    assert len({line.split()[0] for line in helper.lines("asked")}) == 1


async def test_r74_a_handler_that_hangs_holds_up_nobody_else(helpers: Helpers) -> None:
    helper = helpers()
    asking = asyncio.create_task(helper.decide("hang"))
    await eventually(lambda: helper.lines("started"))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert await asking == [SKIP]
    assert turns > 100


async def test_r74_after_some_losses_the_rest_waits_and_comes_first_the_next_time(
    helpers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    helper = helpers()
    what = ["leave"] * MOST_LOSSES + ["backoff"] * 2
    with logged(caplog):
        assert await helper.decide(*what) == [SKIP] * MOST_LOSSES + [None, None]
        assert await helper.decide(*what) == [SKIP] * MOST_LOSSES + [BACKOFF, BACKOFF]
    assert "2 tasks left for the next sweep" in caplog.text


async def test_r74_when_the_time_of_a_sweep_is_over_the_rest_waits(helpers: Helpers) -> None:
    helper = helpers(recovery_hook_timeout_ms=1_000)
    await helper.decide("nothing")
    assert await helper.decide("wait", "backoff", "backoff", within_s=0.5) == [SKIP, None, None]


# News


def interruption(number: int, reason: str = "WORKER_CRASHED") -> str:
    return f"JobInterrupted {(f'task-{number}', 'gone', FailureReason(reason))}"


async def test_r75_r76_all_observers_hear_the_news_in_their_order(helpers: Helpers) -> None:
    helper = helpers(OBSERVING)
    await helper.asker.interrupted([job(1), job(2)], reason=CRASHED)
    await helper.asker.recovered(recovering="me", dead=["z", "a"], jobs_recovered=2)
    await helper.asker.interrupted([job(3)], reason=FailureReason.SHUTDOWN)
    wanted = [
        interruption(1),
        interruption(2),
        f"WorkerRecovered {('me', ['a', 'z'], 2)}",
        interruption(3, "SHUTDOWN"),
    ]
    await eventually(lambda: helper.lines("heard") == wanted)
    assert ["'task_id': 'task-1'" in line for line in helper.complaints()] == [True, False, False, False]


async def test_r76_whoever_brings_news_does_not_wait_for_the_handlers(helpers: Helpers) -> None:
    helper = helpers(OBSERVING, recovery_hook_timeout_ms=10_000)
    await helper.asker.interrupted([job(1, "wait for", "go"), job(2)], reason=CRASHED)
    assert helper.lines("heard") == []
    (helper.folder / "go").touch()
    await eventually(lambda: helper.lines("heard") == [interruption(1), interruption(2)])


async def test_r76_an_observer_that_hangs_is_killed_and_the_next_news_are_told(
    helpers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    helper = helpers(OBSERVING)
    with logged(caplog) as records:
        await helper.asker.interrupted([job(1, "hang"), job(2)], reason=CRASHED)
        await eventually(lambda: helper.lines("heard") == [interruption(2)])
    assert tasks_of(records) == ["task-1"]


async def test_r76_news_that_nobody_can_hear_are_dropped_and_counted(
    helpers: Helpers, caplog: pytest.LogCaptureFixture
) -> None:
    helper = helpers("raise RuntimeError('no configuration')")
    with logged(caplog):
        await helper.asker.interrupted([job(n) for n in range(3)], reason=CRASHED)
        await eventually(lambda: "3 recovery events were not delivered" in caplog.text)


async def test_r75_news_without_handlers_start_no_helper(launcher: Launcher, tmp_path: Path) -> None:
    helper = Helper(launcher, tmp_path, "note('loaded', os.getpid())" + OBSERVING)
    asker = HelperHookCaller(helper.child, lambda: ["JobRecovery"])
    assert [asker.has(event) for event in (JobRecovery, JobInterrupted, WorkerRecovered)] == [True, False, False]
    await asker.interrupted([job(1)], reason=CRASHED)
    await asker.recovered(recovering="me", dead=["gone"], jobs_recovered=0)
    await asker.close()  # which waits for what is still to be told
    assert helper.lines("loaded") == []


async def test_r75_what_is_still_to_be_told_at_the_end_is_told(helpers: Helpers) -> None:
    helper = helpers(OBSERVING)
    await helper.asker.interrupted([job(1), job(2)], reason=FailureReason.SHUTDOWN)
    await helper.asker.close()
    assert helper.lines("heard") == [interruption(1, "SHUTDOWN"), interruption(2, "SHUTDOWN")]


async def test_s39_arguments_too_deep_to_be_told_of_are_the_matter_of_one_schedule(helpers: Helpers) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    preparer = HelperPreparer(helpers().child)
    assert "cannot be encoded" in (await preparer.prepare(Wanted("deep", {"args": deep}), 2.0)).err_value
    assert (await preparer.prepare(Wanted("other", None), 2.0)).err_value == "the app has no such schedule"
