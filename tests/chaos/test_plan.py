"""The plan of a round is decided by its seed."""

from __future__ import annotations

from tests.chaos.flow_plan import FLOWS, JOINS, STEPS
from tests.chaos.flows import KINDS
from tests.chaos.kinds import ERRORS_OF
from tests.chaos.plan import ACTS, FAULTS, make_plan
from tests.chaos.profiles import WITH_EVIDENCE, WITHOUT_EVIDENCE


def test_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(7, 60) == make_plan(7, 60)
    assert make_plan(7, 60).faults != make_plan(8, 60).faults


def test_a_longer_round_goes_on_where_a_shorter_one_ends() -> None:
    short, long = make_plan(7, 30), make_plan(7, 60)
    assert long.faults[: len(short.faults)] == short.faults and long.acts[: len(short.acts)] == short.acts
    assert long.flows[: len(short.flows)] == short.flows


def test_all_kinds_of_faults_and_tasks_occur() -> None:
    plans = [make_plan(seed, 60) for seed in range(20)]
    assert {fault.kind for plan in plans for fault in plan.faults} == set(FAULTS)
    assert {act.task for plan in plans for act in plan.acts} == set(ACTS) - {"many"}
    assert {act.task for plan in plans for act in plan.acts} <= set(ERRORS_OF)
    assert {plan.has_evidence for plan in plans} == {True, False}


def test_all_kinds_of_workflows_occur_and_all_that_is_done_to_them() -> None:
    flows = [flow for seed in range(20) for flow in make_plan(seed, 60).flows]
    assert {flow.kind for flow in flows} == set(FLOWS) == set(KINDS)
    assert {flow.join for flow in flows if flow.kind == "fan"} == set(JOINS)
    assert {task for flow in flows for task, _ in flow.steps} == set(STEPS) <= set(ERRORS_OF)
    for said in ("is_deep", "pauses_on_error", "deadline_s", "pause", "cancel", "max_parallel"):
        assert {bool(getattr(flow, said)) for flow in flows} == {True, False}, said


def test_who_looks_for_evidence_is_not_alone() -> None:
    """Whoever dies, another one can find it."""
    for places, wanted in ((WITH_EVIDENCE, 2), (WITHOUT_EVIDENCE, 0)):
        looking = [all(one.recovery.get("use_liveness_evidence", True) for one in choices) for choices in places]
        assert sum(looking) == wanted
