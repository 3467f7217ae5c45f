"""The checker: a pure function over the history of a round."""

from __future__ import annotations

from tests.chaos import check_faults, check_flows, check_nodes, check_runs, check_states
from tests.chaos.history import History
from tests.chaos.violation import Violation

CHECKS = (
    check_states.every_sent_task_is_there_once_and_has_ended,
    check_states.moves_are_arrows_of_the_diagram,
    check_states.tasks_end_as_their_kind_may,
    check_states.every_end_of_a_run_has_its_attempt_row,
    check_states.retries_are_what_the_policy_allows,
    check_runs.code_runs_once_for_each_start,
    check_runs.what_was_handed_back_has_not_run,
    check_runs.results_are_accepted_from_the_claim_that_made_them,
    check_runs.nothing_runs_on_after_its_fence,
    check_runs.only_owners_give_signs_of_life,
    check_flows.every_workflow_comes_to_rest,
    check_flows.workflows_end_as_their_nodes_say,
    check_flows.moves_of_workflows_and_nodes_are_arrows,
    check_flows.nothing_starts_in_a_paused_workflow,
    check_nodes.each_node_has_its_one_task,
    check_nodes.nodes_are_what_their_tasks_and_children_say,
    check_nodes.joins_are_kept,
    check_nodes.counters_are_the_truth,
    check_nodes.nodes_are_given_what_the_others_gave,
    check_nodes.maps_have_their_elements,
    check_faults.nobody_is_taken_for_dead_without_a_reason,
    check_faults.enrolled_tasks_of_the_dead_come_back,
    check_faults.children_end_with_their_supervisor,
    check_faults.workers_end_only_when_told,
    check_faults.nothing_is_left,
    check_faults.nobody_complained,
)


def check(history: History) -> list[Violation]:
    """Everything that must not have happened."""
    return [violation for one in CHECKS for violation in one(history)]
