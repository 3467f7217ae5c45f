"""Retries that cannot happen before the deadline of their node (HRS-216)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from horsies import AppConfig, Horsies, RetryPolicy, TaskError, TaskResult, WorkflowDefinition, WorkflowSpec
from horsies.core.checks import require_sound
from horsies.core.checks.code import earliest_retries, late_retries
from horsies.core.models.tasks import TaskOptions
from tests.each import each
from tests.unit.workflows.sample import URL

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ANY = ["UNHANDLED_EXCEPTION"]


def fixed(*pauses: int, jitter: bool = False, codes: list[Any] | None = None) -> RetryPolicy:
    return RetryPolicy.fixed(list(pauses), auto_retry_for=codes or ANY, jitter=jitter)


def app_with(policy: RetryPolicy | None, **options: Any) -> tuple[Horsies, Any]:
    app = Horsies(AppConfig.for_database_url(URL))

    @app.task("t", retry_policy=policy, **options)
    def t() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)

    return app, t


def spec_of(policy: RetryPolicy | None, until: datetime | None, **options: Any) -> Any:
    app, task = app_with(policy, **options)
    return app.workflow("w", [task.node(good_until=until)()], definition_key="deadlines")


@each(
    ("options", "times"),
    [
        (TaskOptions(), []),
        (TaskOptions(fixed(10, 20, 30)), [10, 30, 60]),
        (TaskOptions(fixed(10, 20, 30, jitter=True)), [7.5, 22.5, 45]),
        (TaskOptions(RetryPolicy.exponential(10, max_retries=3, auto_retry_for=ANY, jitter=False)), [10, 30, 70]),
        (TaskOptions(fixed(10), timeout_ms=5000), [10]),
        (TaskOptions(fixed(10, 10, codes=["TASK_TIMEOUT"]), timeout_ms=5000), [15, 30]),
        (TaskOptions(fixed(10, 10, codes=["TASK_TIMEOUT", "X"]), timeout_ms=5000), [10, 20]),
    ],
)
def test_t77_t30_the_earliest_time_of_each_retry(options: TaskOptions, times: list[float]) -> None:
    assert earliest_retries(options) == times


@each(
    ("policy", "seconds", "said"),
    [
        (fixed(10, 20, 30), 5, "none of the 3 retries"),
        (fixed(10, 20, 30), 10, "none of the 3 retries"),  # T-78: before the deadline, not at it
        (fixed(10, 20, 30), 59, "only 2 of the 3 retries"),
        (fixed(10, 20, 30), 61, None),
        (fixed(10, 20, 30, jitter=True), 46, None),
        (fixed(10, 20, 30, jitter=True), 45, "only 2 of the 3 retries"),
        (fixed(10), -5, None),  # it does not run at all
        (None, 5, None),
    ],
)
def test_m20_t78_retries_that_do_not_fit_are_told(policy: RetryPolicy | None, seconds: int, said: str | None) -> None:
    found = list(late_retries(spec_of(policy, NOW + timedelta(seconds=seconds)), NOW))
    assert len(found) == (said is not None)
    for warning in found:
        assert said is not None and said in warning.message and warning.code == "HRS-216"
        assert str(warning.location).startswith(__file__)
        assert f"{seconds} s away" in warning.notes[0]


def test_m20_a_node_without_a_deadline_is_none_of_it() -> None:
    assert list(late_retries(spec_of(fixed(10), None), NOW)) == []


def test_m20_m21_every_workflow_that_a_check_sees_is_looked_at() -> None:
    app, task = app_with(fixed(600))
    soon = datetime.now(UTC) + timedelta(minutes=5)

    class Flow(WorkflowDefinition[None]):
        name = "flow"
        definition_key = "deadlines.flow"
        step = task.node(good_until=soon)()

    @app.workflow_builder(cases=[{"count": 1}, {"count": 2}])
    def build(count: int) -> WorkflowSpec[Any]:
        nodes = [task.node(good_until=soon)() for _ in range(count)]
        return app.workflow("built", nodes, definition_key="deadlines.built")

    found = app.check()
    assert [str(error.code) for error in found] == ["HRS-216"] * 4
    assert {error.severity for error in found} == {"warning"}
    require_sound(app)
