"""Workflows with one thing wrong about them, by the check that must find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.chaos.fabricate_flows import FlowTale, failed, joined, mapped, nested
from tests.chaos.flow_history import Control, Started
from tests.chaos.history import History


def good_flows(history: History) -> None:
    """One of each that is allowed."""
    joined(history)
    failed(history)
    mapped(history)
    nested(history)
    cancelled(history)
    paused_and_resumed(history)
    FlowTale(history, "any").add("FAILED").add("COMPLETED").add("COMPLETED", 0, 1, join="any").end("FAILED")
    FlowTale(history, "late", has_deadline=True).add("COMPLETED").add("SKIPPED", 0, task="CANCELLED").end(
        "FAILED", error_code="WORKFLOW_EXPIRED"
    )
    tolerant = FlowTale(history, "tolerant").add("FAILED").add("SKIPPED", 0)
    given = {"err": {"error_code": "UPSTREAM_SKIPPED"}}
    tolerant.add("COMPLETED", 1, allow_failed=True, args_from={"before": 1})
    tolerant.nodes[2] = replace(tolerant.nodes[2], kwargs={"key": "k", "before": given})
    tolerant.end("FAILED")


def cancelled(history: History) -> FlowTale:
    tale = FlowTale(history, "stopped").add("COMPLETED").add("SKIPPED", 0, task="CANCELLED").add("SKIPPED", 1)
    history.controls.append(Control("cancel", tale.id, 5.0))
    return tale.end("CANCELLED")


def paused_and_resumed(history: History) -> FlowTale:
    tale = FlowTale(history, "paused").add("COMPLETED")
    tale.note(None, "RUNNING", "PAUSED", 1.35)
    tale.note(None, "PAUSED", "RUNNING", 8.0)
    return tale.end("COMPLETED")


def never_written(history: History) -> None:
    history.started.append(Started("lost", "wf-lost", 1.0))


def started_twice(history: History) -> None:
    history.started.append(Started("joined", "wf-failed", 1.0))


def started_by_nobody(history: History) -> None:
    joined(history, "ghost")
    history.started.pop()


def stuck_workflow(history: History) -> None:
    FlowTale(history, "stuck").add("COMPLETED").end("RUNNING")


def stuck_node(history: History) -> None:
    FlowTale(history, "half").add("COMPLETED").add("PENDING", 0).end("RUNNING")


def completed_with_a_failure(history: History) -> None:
    FlowTale(history, "rosy").add("FAILED").end("COMPLETED")


def completed_with_a_skip(history: History) -> None:
    FlowTale(history, "gappy").add("COMPLETED").add("SKIPPED", 0).end("COMPLETED")


def failed_without_a_failure(history: History) -> None:
    FlowTale(history, "gloomy").add("COMPLETED").end("FAILED")


def failed_with_a_foreign_error(history: History) -> None:
    FlowTale(history, "foreign").add("FAILED").end("FAILED", error_code="FOREIGN")


def cancelled_unasked(history: History) -> None:
    FlowTale(history, "unasked").add("COMPLETED").end("CANCELLED")


def expired_for_no_reason(history: History) -> None:
    FlowTale(history, "hasty").add("COMPLETED").end("FAILED", error_code="WORKFLOW_EXPIRED")


def risen(history: History) -> None:
    joined(history, "risen").note(None, "COMPLETED", "RUNNING", 9.0)


def node_ran_twice(history: History) -> None:
    tale = joined(history, "again")
    tale.note(0, "COMPLETED", "ENQUEUED", 9.0)
    tale.note(0, "ENQUEUED", "COMPLETED", 9.1)


def node_changed_behind_the_scenes(history: History) -> None:
    failed(history, "secret").change(1, status="COMPLETED")


def started_in_a_pause(history: History) -> None:
    """Its second node starts at 2.1."""
    tale = FlowTale(history, "restless").add("COMPLETED").add("COMPLETED", 0)
    tale.note(None, "RUNNING", "PAUSED", 1.0)
    tale.note(None, "PAUSED", "RUNNING", 8.0)
    tale.end("COMPLETED")


def enqueued_twice(history: History) -> None:
    tale = joined(history, "double")
    task = history.by_id[tale.nodes[3].task_id or ""]
    history.tasks.append(replace(task, id="another", key="double/other"))


def task_is_gone(history: History) -> None:
    tale = joined(history, "gone")
    history.tasks.remove(next(task for task in history.tasks if task.id == tale.nodes[0].task_id))


def two_children(history: History) -> None:
    parent, child = nested(history, "twins")
    history.flows.append(replace(child.flow, id="wf-twin"))
    assert parent.flow.id == child.flow.parent_id


def node_that_knows_better(history: History) -> None:
    tale = joined(history, "better")
    tale.change(3, task_status="FAILED")


def another_result(history: History) -> None:
    joined(history, "mixed").change(1, result={"ok": "of somebody else"})


def skipped_and_ran(history: History) -> None:
    FlowTale(history, "sly").add("FAILED").add("SKIPPED", 0, task="COMPLETED").end("FAILED")


def child_that_says_otherwise(history: History) -> None:
    parent, _ = nested(history, "quarrel")
    place = history.flows.index(parent.flow)
    parent.change(0, status="FAILED", error_code="SUBWORKFLOW_FAILED")
    history.flows[place] = replace(parent.flow, status="FAILED", error_code="SUBWORKFLOW_FAILED")


def child_that_never_was(history: History) -> None:
    FlowTale(history, "barren").add("FAILED", node_type="SUBWORKFLOW", error_code="SUBWORKFLOW_LOAD_FAILED").end(
        "FAILED"
    )


def ran_after_a_failure(history: History) -> None:
    FlowTale(history, "bold").add("FAILED").add("COMPLETED", 0).end("FAILED")


def skipped_for_no_reason(history: History) -> None:
    FlowTale(history, "shy").add("FAILED").add("COMPLETED").add("SKIPPED", 1).end("FAILED")


def quorum_not_reached(history: History) -> None:
    tale = FlowTale(history, "few").add("FAILED").add("COMPLETED")
    tale.add("COMPLETED", 0, 1, join="quorum", min_success=2).end("FAILED")


def enqueued_before_its_time(history: History) -> None:
    tale = joined(history, "early")
    first = history.moves_of[tale.nodes[3].task_id or ""][0]
    history.moves[history.moves.index(first)] = replace(first, number=0)


def wrong_open_nodes(history: History) -> None:
    joined(history, "miscounted")
    history.flows[-1] = replace(history.flows[-1], open_nodes=1)


def wrong_counter(history: History) -> None:
    joined(history, "lagging").change(3, counts=(1, 0, 0))


def one_sided_edge(history: History) -> None:
    joined(history, "cut").change(1, dependents=())


def wrong_input(history: History) -> None:
    tale = FlowTale(history, "deaf").add("COMPLETED").add("COMPLETED", 0, args_from={"before": 0})
    tale.nodes[1] = replace(tale.nodes[1], kwargs={"key": "k", "before": {"ok": "what nobody said"}})
    tale.end("COMPLETED")


def too_many_elements_at_once(history: History) -> None:
    tale = mapped(history, "crowd", most=1)
    last = [move for move in history.moves if move.task_id == tale.nodes[3].task_id]
    numbers = {move.number for move in history.moves if move.task_id == tale.nodes[2].task_id}
    history.moves[history.moves.index(last[0])] = replace(last[0], number=min(numbers))


def element_out_of_place(history: History) -> None:
    mapped(history, "shuffled").change(3, map_position=2)


def map_without_its_results(history: History) -> None:
    mapped(history, "forgetful").change(1, result={"ok": []})


def map_that_hides_a_failure(history: History) -> None:
    tale = FlowTale(history, "hiding", "map").add("COMPLETED").add("RUNNING", 0, node_type="MAP")
    tale.add("FAILED", node_type="ELEMENT", map_index=1, map_position=0)
    tale.nodes[1] = replace(tale.nodes[1], status="COMPLETED")
    tale.note(1, "RUNNING", "COMPLETED", 9.0)
    tale.end("COMPLETED")


def cancelled_task_of_a_workflow_that_goes_on(history: History) -> None:
    tale = joined(history, "robbed")
    task = history.by_id[tale.nodes[0].task_id or ""]
    history.tasks[history.tasks.index(task)] = replace(task, status="CANCELLED")


def cancel_that_did_nothing(history: History) -> None:
    tale = FlowTale(history, "stubborn").add("COMPLETED").end("RUNNING")
    history.controls.append(Control("cancel", tale.id, 5.0))


Bad = Callable[[History], object]
FLOWS_FOUND: list[tuple[str, Bad]] = [
    ("workflows come to rest", never_written),
    ("workflows come to rest", started_twice),
    ("workflows come to rest", started_by_nobody),
    ("workflows come to rest", stuck_workflow),
    ("workflows come to rest", stuck_node),
    ("workflows end as their nodes say", completed_with_a_failure),
    ("workflows end as their nodes say", completed_with_a_skip),
    ("workflows end as their nodes say", failed_without_a_failure),
    ("workflows end as their nodes say", failed_with_a_foreign_error),
    ("workflows end as their nodes say", cancelled_unasked),
    ("workflows end as their nodes say", expired_for_no_reason),
    ("workflows end as their nodes say", cancel_that_did_nothing),
    ("legal moves of workflows", risen),
    ("legal moves of workflows", node_ran_twice),
    ("legal moves of workflows", node_changed_behind_the_scenes),
    ("nothing starts in a paused workflow", started_in_a_pause),
    ("one task for each node", enqueued_twice),
    ("one task for each node", task_is_gone),
    ("one task for each node", two_children),
    ("nodes are what their tasks say", node_that_knows_better),
    ("nodes are what their tasks say", another_result),
    ("nodes are what their tasks say", skipped_and_ran),
    ("nodes are what their tasks say", child_that_says_otherwise),
    ("nodes are what their tasks say", child_that_never_was),
    ("joins are kept", ran_after_a_failure),
    ("joins are kept", skipped_for_no_reason),
    ("joins are kept", quorum_not_reached),
    ("joins are kept", enqueued_before_its_time),
    ("counters are the truth", wrong_open_nodes),
    ("counters are the truth", wrong_counter),
    ("counters are the truth", one_sided_edge),
    ("nodes are given what others gave", wrong_input),
    ("maps have their elements", too_many_elements_at_once),
    ("maps have their elements", element_out_of_place),
    ("maps have their elements", map_without_its_results),
    ("maps have their elements", map_that_hides_a_failure),
    ("possible ends", cancelled_task_of_a_workflow_that_goes_on),
]
