"""The helper child builds child workflows (F-60): plans come back whole, and whatever `build_with` does there, the
worker has an answer and keeps its helper, or gets another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from horsies.core.child.wire import ChildSpec
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.models.workflow.registry import BuildFailed, BuildRequest
from horsies.core.worker.helper_calls import HelperBuilder
from horsies.core.worker.helper_process import HelperChild, HelperFailed
from horsies.core.worker.launcher import Launcher
from tests.services.children import ROOT, is_alive
from tests.support import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_MS = 500
APP = """
import os, signal, subprocess, sys, time
from datetime import UTC, datetime
from pathlib import Path
from horsies import AppConfig, Horsies, SubWorkflowNode, TaskError, TaskResult, WorkflowDefinition, from_node

app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))
here = Path({folder!r})
Number = TaskResult[int, TaskError]

@app.task("add")
def add(a: int, b: Number | None = None) -> Number:
    return TaskResult(ok=a)

class Inner(WorkflowDefinition[int]):
    name = "inner"
    definition_key = "inner"
    only = add.node()(a=7)
    class Meta:
        output = "only"

class Outer(WorkflowDefinition[int]):
    name = "outer"
    definition_key = "outer"

    @classmethod
    def build_with(cls, app, *args, how, source: Number, **_):
        with (here / "built").open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        match how:
            case "raise":
                raise RuntimeError("as told")
            case "exit":
                sys.exit(3)
            case "hang":
                (here / "started").write_text(str(subprocess.Popen(["sleep", "600"]).pid))
                time.sleep(600)
            case "leave":
                os._exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "nothing":
                return None
        inner = SubWorkflowNode(Inner, node_id="inner")
        soon = datetime(2030, 1, 1, tzinfo=UTC)
        late = add.node(node_id="late", good_until=soon)(a=source.unwrap(), b=from_node(inner))
        return app.workflow("outer", [inner, late], output=late, definition_key="outer")
"""


class Bench:
    """A helper, and what builds with it."""

    def __init__(self, launcher: Launcher, folder: Path) -> None:
        self.folder = folder
        (folder / "some_app.py").write_text(APP.format(folder=str(folder)))
        spec = ChildSpec(
            "some_app:app", recovery_hook_timeout_ms=LIMIT_MS, cwd=str(folder), sys_path=(str(folder), ROOT)
        )
        self.child = HelperChild(launcher, spec)
        self.builder = HelperBuilder(self.child)

    def request(self, how: str, key: str = "outer") -> BuildRequest:
        return BuildRequest(key, json.dumps({"how": how}), {"source": '{"ok": 5}'})

    async def failure(self, how: str, key: str = "outer") -> BuildFailed:
        with pytest.raises(BuildFailed) as caught:
            await self.builder.build(self.request(how, key))
        return caught.value

    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "built").read_text().splitlines()]


@pytest_asyncio.fixture(loop_scope="module")
async def bench(launcher: Launcher, tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(launcher, tmp_path)
    yield made
    await made.child.close()


async def test_f60_a_plan_comes_back_as_it_was_made_with_the_children_that_wait_for_nothing(bench: Bench) -> None:
    plan = await bench.builder.build(bench.request("well"))
    assert (plan.name, plan.definition_key, plan.output_index) == ("outer", "outer", 1)
    inner, late = plan.nodes
    assert (inner.node_type, inner.sub_workflow_key, inner.dependencies) == ("SUBWORKFLOW", "inner", ())
    assert json.loads(late.kwargs_json or "") == {"a": 5}  # what was injected went into it
    assert (late.args_from, late.dependencies) == ({"b": 0}, (0,))
    assert late.good_until is not None and late.good_until.isoformat() == "2030-01-01T00:00:00+00:00"
    assert [node.task_name for node in plan.children[0].nodes] == ["add"]


ENDS = {"hang": "took longer than", "leave": "exited with code 3", "kill": "killed by SIGKILL"}


@pytest.mark.parametrize("how", ENDS)
async def test_f60_a_build_in_which_the_helper_hangs_or_dies_has_failed_and_the_next_has_another(
    bench: Bench, how: str
) -> None:
    problem = await bench.failure(how)
    assert problem.code is OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED
    assert ENDS[how] in str(problem) and "'outer'" in str(problem)
    assert (await bench.builder.build(bench.request("well"))).name == "outer"
    first, second = bench.pids()
    assert first != second
    await eventually(lambda: not is_alive(first), what="the end of the first helper")
    if how == "hang":  # with all it has started
        sleeping = int((bench.folder / "started").read_text())
        await eventually(lambda: not is_alive(sleeping), what="the end of what build_with had started")


@pytest.mark.parametrize("how", ["raise", "exit", "nothing"])
async def test_f60_a_build_with_that_breaks_is_told_and_the_helper_stays(bench: Bench, how: str) -> None:
    problem = await bench.failure(how)
    assert problem.code is OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED
    assert {"raise": "RuntimeError: as told", "exit": "SystemExit: 3", "nothing": "NoneType"}[how] in str(problem)
    assert (await bench.builder.build(bench.request("well"))).name == "outer"
    assert len(set(bench.pids())) == 1


async def test_f64_a_definition_that_is_not_registered_cannot_be_loaded(bench: Bench) -> None:
    problem = await bench.failure("well", key="elsewhere")
    assert problem.code is OperationalErrorCode.SUBWORKFLOW_LOAD_FAILED and "'elsewhere'" in str(problem)


async def test_f60_a_build_that_ends_with_its_worker_says_nothing_about_the_workflow(bench: Bench) -> None:
    """Else each restart of a worker in the middle of a build would fail a node."""
    building = asyncio.create_task(bench.builder.build(bench.request("hang")))
    await eventually((bench.folder / "started").exists, what="build_with has been called")
    await bench.child.close()
    with pytest.raises(HelperFailed):
        await building


async def test_f60_where_there_is_no_helper_the_node_can_wait(bench: Bench) -> None:
    (bench.folder / "some_app.py").write_text("raise RuntimeError('no configuration')")
    with pytest.raises(HelperFailed):
        await bench.builder.build(bench.request("well"))
