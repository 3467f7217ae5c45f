"""What a resume is said to do is what the engine then does (M-91, F-52)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import Horsies, monitoring
from horsies.core.models.workflow.plan import NodePlan
from horsies.core.monitoring.resuming import AfterResume, after_resume
from horsies.core.types import WorkflowStatus
from horsies.core.workflows import control
from horsies.web.pages.standstill import resume_in_words, standstill_of
from tests.services.workflows.flows import node, started
from tests.services.workflows.hand import Hand

Db = AsyncConnection[Any]

SHAPES: dict[str, tuple[NodePlan, ...]] = {
    "a chain": (node("a"), node("b", 0), node("c", 1)),
    "another branch": (node("a"), node("b", 0), node("x"), node("y", 2)),
    "failures allowed": (node("a"), node("b", 0, allow_failed_deps=True), node("c", 1)),
    "any of two": (node("a"), node("x"), node("b", 0, 1, join="any"), node("c", 2)),
    "a quorum of three": (node("a"), node("x"), node("y"), node("b", 0, 1, 2, join="quorum", min_success=3)),
    "a diamond": (node("s"), node("a", 0), node("x", 0), node("d", 1, 2)),
    "alone": (node("a"),),
}
POLICIES: dict[str, dict[str, Any] | None] = {
    "no policy": None,
    "a is optional": {"cases": [[2]], "optional": [0]},
    "a is required": {"cases": [[0]]},
    "b is required": {"cases": [[1]]},
}


async def said(app: Horsies, workflow_id: str) -> tuple[AfterResume, list[str]]:
    run = (await monitoring.get_workflow_run(app.get_broker(), workflow_id)).unwrap()
    assert run is not None
    now = datetime.now(UTC)
    return after_resume(run, now), resume_in_words(run, now)


async def names(db: Db, workflow_id: str, *states: str) -> set[str]:
    found = await db.execute(
        "SELECT node_id FROM horsies_workflow_tasks WHERE workflow_id = %s AND status = ANY(%s)",
        [workflow_id, list(states)],
    )
    return {name for (name,) in await found.fetchall()}


def fits(policy: dict[str, Any] | None, nodes: tuple[NodePlan, ...]) -> bool:
    """Whether the nodes that it requires exist."""
    return policy is None or policy["cases"][0][0] < len(nodes)


PAIRS = [(shape, policy) for shape in SHAPES for policy in POLICIES if fits(POLICIES[policy], SHAPES[shape])]


@pytest.mark.parametrize(("shape", "policy"), PAIRS)
async def test_m91_f52_what_a_resume_is_said_to_do_is_what_it_does(
    app: Horsies, hand: Hand, clean_db: Db, shape: str, policy: str
) -> None:
    flow = await started(clean_db, *SHAPES[shape], on_error="PAUSE", success_policy=POLICIES[policy])
    if shape == "a diamond":
        await hand.finish(flow, "s")
    await hand.fail(flow, "a", "BANK_DOWN")
    skipped = await names(clean_db, flow, "SKIPPED")
    would, _ = await said(app, flow)
    assert (await control.resume_workflow(app.get_broker(), flow)).unwrap() is True

    assert set(would.failed) == await names(clean_db, flow, "FAILED") == {"a"}
    assert set(would.skipped) == await names(clean_db, flow, "SKIPPED") - skipped
    assert {*would.starting, *would.in_flight} == await names(clean_db, flow, "READY", "ENQUEUED", "RUNNING")
    status = WorkflowStatus((await hand.workflow(flow))["status"])
    assert would.ends_at_once is status.is_terminal
    if status.is_terminal:
        assert would.end is status
        return
    for _ in range(3):  # all others succeed: what was certain still happens
        for name in await names(clean_db, flow, "ENQUEUED"):
            await hand.finish(flow, name)
    end = WorkflowStatus((await hand.workflow(flow))["status"])
    assert end.is_terminal and would.end in ({end, None} if end is WorkflowStatus.COMPLETED else {end})


async def test_m91_the_words_name_what_stays_failed_what_is_skipped_and_the_end(
    app: Horsies, hand: Hand, clean_db: Db
) -> None:
    flow = await started(clean_db, node("check"), node("ship", 0), on_error="PAUSE")
    await hand.fail(flow, "check", "BANK_DOWN")
    assert (await said(app, flow))[1] == [
        "The failed node check stays failed.",
        "ship will be skipped.",
        "No node is left to run: the workflow will FAIL.",
    ]
    other = await started(clean_db, node("check"), node("ship", 0), node("mail"), node("bill"), on_error="PAUSE")
    await hand.finish(other, "bill")
    await hand.fail(other, "check", "BANK_DOWN")
    assert (await said(app, other))[1][1:] == [
        "ship will be skipped.",
        "mail goes on.",
        "Whatever becomes of the other nodes, the workflow will FAIL.",
    ]
    plain = await started(clean_db, node("a"), node("b", 0), on_error="PAUSE")
    assert (await control.pause_workflow(app.get_broker(), plain)).unwrap() is True
    assert (await said(app, plain))[1] == ["a goes on.", "The workflow continues. If a node fails, it pauses again."]


async def test_m91_f96_a_resume_after_the_deadline_ends_the_workflow(app: Horsies, hand: Hand, clean_db: Db) -> None:
    late = datetime(2020, 1, 1, tzinfo=UTC)
    flow = await started(clean_db, node("a"), node("b", 0), on_error="PAUSE")
    assert (await control.pause_workflow(app.get_broker(), flow)).unwrap() is True
    await clean_db.execute("UPDATE horsies_workflows SET good_until = %s WHERE id = %s", [late, flow])
    would, words = await said(app, flow)
    assert (would.end, would.is_overdue) == (WorkflowStatus.FAILED, True) and "deadline has passed" in words[-1]


async def test_m91_a_failure_is_told_from_a_pause_by_hand(app: Horsies, hand: Hand, clean_db: Db) -> None:
    """The node that pauses a workflow fails in the same transaction."""

    async def standing(flow: str) -> tuple[list[str], list[str]]:
        run = (await monitoring.get_workflow_run(app.get_broker(), flow)).unwrap()
        assert run is not None
        found = standstill_of(run, (), datetime.now(UTC))
        assert found is not None and found.actor is None
        return [one.node_id for one in found.paused_by], [one.node_id for one in found.failed]

    flow = await started(clean_db, node("a"), node("b"), node("c", 1), on_error="PAUSE")
    await hand.fail(flow, "a")
    assert await standing(flow) == (["a"], [])
    await control.resume_workflow(app.get_broker(), flow)
    await control.pause_workflow(app.get_broker(), flow)
    assert await standing(flow) == ([], ["a"])
