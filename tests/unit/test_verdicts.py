"""What a sweep does with the answers of the hooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from horsies import JobRecoveryResult, SweepStaleWorkersOptions, WorkerRecoveryConfig
from horsies.core.errors import ConfigurationError
from horsies.core.hooks import Decision
from horsies.core.recovery.decide import Action, SweepDecision, SweepDecisions, sweep_decisions
from horsies.core.tasks.moves import InFlight
from horsies.core.types.status import TaskStatus
from tests.each import each

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def task(task_id: str) -> InFlight:
    return InFlight(
        task_id, 1, "w", TaskStatus.RUNNING, "n", "q", None, 0, 0, False, None, True, None, None, None, None, None, 0.0
    )


def decided(*decisions: Decision | None) -> SweepDecisions:
    tasks = [task(str(place)) for place in range(len(decisions))]
    answers = {one.task_id: decision for one, decision in zip(tasks, decisions, strict=True)}
    return sweep_decisions(tasks, answers, now=NOW, age_s=5.0, delay_s=30.0)


def ids(tasks: list[InFlight]) -> list[str]:
    return [one.task_id for one in tasks]


def test_r50_the_delay_counts_from_the_moment_the_hooks_have_answered() -> None:
    found = decided(JobRecoveryResult.Default, JobRecoveryResult.Default)
    assert list(found.groups) == [SweepDecision(Action.WORKER_DEFAULT, 35.0)]
    assert [ids(tasks) for tasks in found.groups.values()] == [["0", "1"]]


def test_r51_a_time_is_a_delay_from_what_the_transaction_calls_now() -> None:
    soon, ago = NOW + timedelta(minutes=2), NOW - timedelta(minutes=1)
    found = decided(
        JobRecoveryResult.Reschedule(run_at=soon),
        JobRecoveryResult.Reschedule(run_at=soon, attempts=2),
        JobRecoveryResult.Reschedule(run_at=ago),
        JobRecoveryResult.Reschedule(run_at=soon),
    )
    assert {verdict: ids(tasks) for verdict, tasks in found.groups.items()} == {
        SweepDecision(Action.RESCHEDULE, 120.0): ["0", "3"],
        SweepDecision(Action.RESCHEDULE, 120.0, 2): ["1"],
        SweepDecision(Action.RESCHEDULE, -60.0): ["2"],
    }


def test_r52_r53_a_failure_goes_by_the_tasks_own_policy_and_a_skip_is_left_alone() -> None:
    found = decided(JobRecoveryResult.FailWithBackoff, JobRecoveryResult.Skip)
    assert {verdict: ids(tasks) for verdict, tasks in found.groups.items()} == {
        SweepDecision(Action.RETRY_OR_FAIL, 35.0): ["0"]
    }
    assert (ids(found.skipped), ids(found.unasked)) == (["1"], [])


def test_r74_whoever_was_not_asked_about_any_more_waits() -> None:
    found = decided(JobRecoveryResult.Default, None)
    assert (ids(found.unasked), ids(found.skipped)) == (["1"], [])


@each(
    "wrong",
    [
        {"sweep_threshold": timedelta(0)},
        {"sweep_threshold": -1},
        {"recovery_delay": timedelta(seconds=-1)},
        {"recovery_delay": "soon"},
        {"threshold": 5},
    ],
)
def test_r94_overrides_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))) as refused:
        SweepStaleWorkersOptions(**wrong)
    assert isinstance(refused.value, ValueError)
    assert refused.value.code == "HRS-204"


def test_r94_overrides_are_durations_or_seconds_and_need_not_be_two_heartbeats() -> None:
    options = SweepStaleWorkersOptions(sweep_threshold=0.5, recovery_delay=0)
    assert (options.sweep_threshold, options.recovery_delay) == (timedelta(seconds=0.5), timedelta(0))
    assert SweepStaleWorkersOptions() == SweepStaleWorkersOptions(
        sweep_threshold=None, recovery_delay=None, dry_run=False
    )


def test_r95_a_configuration_tells_what_was_said_and_what_is_default() -> None:
    said = WorkerRecoveryConfig().with_resilient_job_flags(["x"]).with_sweep_threshold(90)
    assert said.model_fields_set == {"enabled", "resilient_job_flags", "sweep_threshold"}
    assert said.sweep_threshold == timedelta(seconds=90)
    assert said.resilient_sweep_threshold_multiplier == 3
