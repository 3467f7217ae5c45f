"""Timelines of workflows and of attempts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from horsies.core.models.monitoring.tasks import (
    TaskDetail,
    WorkflowNodeInfo,
    WorkflowRunDetail,
    WorkflowRunSummary,
)
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.types import TaskAttemptOutcome, TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.web.svg.folding import graph_of
from horsies.web.svg.scales import elapsed, human, human_seconds, ticks, top_of
from horsies.web.svg.timeline import TimelineRow, TimelineSpan, rows_of_run, rows_of_task, timeline_svg
from tests.each import each
from tests.unit.web.reading import by_class, description, links, read, texts
from tests.unit.web.strategies import HOSTILE

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_row(start: float, end: float | None, status: str = "COMPLETED", **more: Any) -> TimelineRow:
    span = TimelineSpan("running", at(start), None if end is None else at(end), status)
    return TimelineRow(more.pop("label", "load"), (span,), status, **more)


def info(index: int, status: WorkflowTaskStatus, **times: datetime | None) -> WorkflowNodeInfo:
    empty: dict[str, Any] = dict.fromkeys(("ready_at", "enqueued_at", "started_at", "completed_at"))
    return WorkflowNodeInfo(
        task_index=index,
        node_id=f"node_{index}",
        node_type="TASK",
        task_name="app.load",
        queue_name="default",
        status=status,
        task_id=None,
        sub_workflow_id=None,
        map_index=None,
        map_position=None,
        join_type="all",
        deps_total=0,
        deps_completed=0,
        deps_failed=0,
        deps_skipped=0,
        error_code="TIMEOUT" if status is WorkflowTaskStatus.FAILED else None,
        **{**empty, **times},
    )


def a_run(*nodes: WorkflowNodeInfo) -> WorkflowRunDetail:
    summary = WorkflowRunSummary(
        "w1", "order", "order", WorkflowStatus.RUNNING, 1, None, None, None, 0, None, at(-60), at(-60), None, None
    )
    return WorkflowRunDetail(summary, "fail", None, None, None, None, nodes, (), (), len(nodes), 0)


def a_task(status: TaskStatus, *attempts: TaskAttemptInfo, **columns: Any) -> TaskDetail:
    names = TaskDetail.__dataclass_fields__
    values: dict[str, Any] = dict.fromkeys(names)
    return TaskDetail(
        **{**values, "status": status, "sent_at": at(-100), "enqueued_at": at(-100), "attempts": attempts, **columns}
    )


def an_attempt(number: int, start: float | None, end: float | None, outcome: str = "FAILED") -> TaskAttemptInfo:
    names = TaskAttemptInfo.__dataclass_fields__
    values: dict[str, Any] = dict.fromkeys(names)
    times = {"started_at": start and at(start), "finished_at": end and at(end)}
    return TaskAttemptInfo(**{**values, "attempt": number, "outcome": TaskAttemptOutcome(outcome), **times})


def test_m91_a_node_waits_and_runs() -> None:
    run = a_run(
        info(0, WorkflowTaskStatus.COMPLETED, ready_at=at(-60), started_at=at(-50), completed_at=at(-20)),
        info(1, WorkflowTaskStatus.FAILED, ready_at=at(-20), started_at=at(-18), completed_at=at(-10)),
        info(2, WorkflowTaskStatus.RUNNING, ready_at=at(-20), started_at=at(-18)),
        info(3, WorkflowTaskStatus.PENDING),
        info(4, WorkflowTaskStatus.SKIPPED, ready_at=at(-5), completed_at=at(-5)),
        info(5, WorkflowTaskStatus.ENQUEUED, enqueued_at=at(-5)),
    )
    rows = rows_of_run(run, href=lambda index: f"nodes/{index}")
    root = read(timeline_svg(rows, title="Timeline", now=NOW))
    assert links(root) == [f"nodes/{index}" for index in (0, 1, 2, 4, 5)]
    assert len(by_class(root, "span-running")) == 3
    assert len(by_class(root, "span-waiting")) == 5
    assert len(by_class(root, "span-open")) == 2
    assert len(by_class(root, "now")) == 1
    assert "8 s TIMEOUT" in texts(root)
    assert "1 without times" in texts(root)
    assert description(root).startswith("From 2026-01-02 03:03:05 UTC over 1 min: 1 failed, 1 running, 1 enqueued")
    assert "node_0 ran longest, 30 s." in description(root)


def test_m91_a_run_gives_the_nodes_of_its_graph() -> None:
    nodes, edges = graph_of(a_run(info(0, WorkflowTaskStatus.FAILED), info(1, WorkflowTaskStatus.COMPLETED)))
    assert [(node.index, node.label, node.status, node.detail) for node in nodes] == [
        (0, "node_0", "FAILED", "TIMEOUT"),
        (1, "node_1", "COMPLETED", "app.load"),
    ]
    assert edges == []


def test_m91_attempts_wait_run_and_wait_again() -> None:
    task = a_task(TaskStatus.PENDING, an_attempt(2, -50, -40), an_attempt(1, -90, -80))
    rows = rows_of_task(task, NOW)
    assert [row.label for row in rows] == ["attempt 1", "attempt 2", "attempt 3"]
    assert [[(span.kind, span.start, span.end) for span in row.spans] for row in rows] == [
        [("waiting", at(-100), at(-90)), ("running", at(-90), at(-80))],
        [("retrying", at(-80), at(-50)), ("running", at(-50), at(-40))],
        [("retrying", at(-40), None)],
    ]
    root = read(timeline_svg(rows, title="t", now=NOW))
    assert len(by_class(root, "span-retrying")) == 2


def test_m91_a_running_task_reaches_the_present() -> None:
    rows = rows_of_task(a_task(TaskStatus.RUNNING, an_attempt(1, -90, -80), started_at=at(-30)), NOW)
    assert [(span.kind, span.end) for span in rows[-1].spans] == [("retrying", at(-30)), ("running", None)]


def test_m91_a_task_that_ended_before_it_ran_only_waited() -> None:
    (row,) = rows_of_task(a_task(TaskStatus.CANCELLED, ended_at=at(-10)), NOW)
    assert [(span.kind, span.start, span.end) for span in row.spans] == [("waiting", at(-100), at(-10))]


def spans_of(task: TaskDetail) -> list[tuple[str, list[tuple[str, datetime | None, datetime | None]]]]:
    rows = rows_of_task(task, NOW)
    return [(row.label, [(span.kind, span.start, span.end) for span in row.spans]) for row in rows]


def test_m91_a_task_that_is_not_due_reaches_from_its_sending_to_that_time() -> None:
    task = a_task(TaskStatus.PENDING, sent_at=at(-60), enqueued_at=at(86_400))
    assert spans_of(task) == [("attempt 1", [("waiting", at(-60), NOW), ("ahead", NOW, at(86_400))])]
    picture = timeline_svg(rows_of_task(task, NOW), title="t", now=NOW)
    root = read(picture)
    assert len(by_class(root, "now")) == 1 and "1 d" in texts(root), "the axis reaches to the time when it is due"
    assert "waited 1 min, due in 1 d" in picture


def test_m91_a_retry_that_is_to_come_does_not_move_what_was() -> None:
    """The time of the retry is in the column that had the first time."""
    due = {"enqueued_at": at(50), "next_retry_at": at(50)}
    assert spans_of(a_task(TaskStatus.PENDING, an_attempt(1, -90, -80), **due)) == [
        ("attempt 1", [("waiting", at(-100), at(-90)), ("running", at(-90), at(-80))]),
        ("attempt 2", [("retrying", at(-80), NOW), ("ahead", NOW, at(50))]),
    ]


def test_m91_a_run_that_was_cancelled_is_a_run() -> None:
    cancelled = a_task(TaskStatus.CANCELLED, started_at=at(-60), ended_at=at(-10), error_code="TASK_CANCELLED")
    assert spans_of(cancelled) == [("attempt 1", [("waiting", at(-100), at(-60)), ("running", at(-60), at(-10))])]
    again = a_task(TaskStatus.CANCELLED, an_attempt(1, -90, -80), started_at=at(-60), ended_at=at(-10))
    assert spans_of(again)[1] == ("attempt 2", [("retrying", at(-80), at(-60)), ("running", at(-60), at(-10))])
    written = a_task(TaskStatus.FAILED, an_attempt(1, -90, -80), started_at=at(-90), ended_at=at(-80))
    assert len(spans_of(written)) == 1


def test_m91_a_task_that_was_cancelled_before_its_time_waited_until_then() -> None:
    early = a_task(TaskStatus.CANCELLED, enqueued_at=at(86_400), ended_at=at(-10))
    assert spans_of(early) == [("waited", [("waiting", at(-100), at(-10))])]
    retried = a_task(TaskStatus.CANCELLED, an_attempt(1, -90, -80), enqueued_at=at(50), ended_at=at(-10))
    assert spans_of(retried)[1] == ("waited", [("retrying", at(-80), at(-10))])


def test_m91_attempts_without_times_do_not_matter() -> None:
    rows = rows_of_task(
        a_task(TaskStatus.FAILED, an_attempt(1, None, None), an_attempt(2, None, -5), an_attempt(3, -4, None)), NOW
    )
    root = read(timeline_svg(rows, title="t", now=NOW))
    assert len(by_class(root, "row")) == 3


def test_m91_rows_are_bounded_and_the_rest_is_counted() -> None:
    rows = [a_row(-1_000 + one, -990 + one) for one in range(500)]
    rows[300] = a_row(-700, -699.9, "FAILED", label="broken")
    rows[400] = a_row(-600, None, "RUNNING", label="busy")
    root = read(timeline_svg(rows, title="t", now=NOW, most_rows=10))
    assert len(by_class(root, "row")) == 10
    assert {"broken", "busy", "490 more not shown"} <= set(texts(root))
    last = read(timeline_svg(rows, title="t", now=NOW, most_rows=10, prefer="last"))
    assert "broken" not in texts(last)
    assert "490 more not shown" in texts(last)


@each(("rows", "said"), [([], "no data"), ([TimelineRow("x", (), "PENDING")], "nothing has started")])
def test_m91_nothing_is_said_so(rows: list[TimelineRow], said: str) -> None:
    assert texts(read(timeline_svg(rows, title="t", now=NOW))) == [said]


times = st.none() | st.datetimes(
    min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.sampled_from((None, UTC, timezone.max))
)
spans = st.builds(
    TimelineSpan, st.sampled_from(("waiting", "retrying", "running", "ahead")), times, times, st.just("RUNNING")
)
rows = st.builds(
    TimelineRow, st.text(max_size=5), st.lists(spans, max_size=3).map(tuple), st.sampled_from(("FAILED", "?"))
)


@given(st.lists(rows, max_size=6), times.filter(bool))
def test_m91_any_times_give_a_picture(some: list[TimelineRow], now: datetime) -> None:
    picture = timeline_svg(some, title="t", now=now)
    root = read(picture)
    assert picture == timeline_svg(some, title="t", now=now)
    for span in by_class(root, "span"):
        assert float(span.get("x", "0")) >= 0
        assert float(span.get("x", "0")) + float(span.get("width", "0")) <= 960


@each("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_m93_hostile_texts_stay_texts(hostile: str) -> None:
    some = [a_row(-10, -5, hostile, label=hostile, note=hostile, href=hostile), a_row(-5, None, "FAILED", note=hostile)]
    picture = timeline_svg(some, title=hostile or "t", now=NOW)
    assert links(read(picture)) in ([], [hostile])
    assert len(picture) < 50_000


@each(
    ("span", "labels"),
    [
        (0.004, ["0 s", "0.5 ms", "1 ms", "1.5 ms", "2 ms", "2.5 ms", "3 ms", "3.5 ms", "4 ms"]),
        (1.0, ["0 s", "200 ms", "400 ms", "600 ms", "800 ms", "1 s"]),
        (60, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s", "1 min"]),
        (110, ["0 s", "15 s", "30 s", "45 s", "1 min", "1 min 15 s", "1 min 30 s", "1 min 45 s"]),
        (9_000, ["0 s", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min"]),
        (86_400 * 3, ["0 s", "12 h", "1 d", "1 d 12 h", "2 d", "2 d 12 h", "3 d"]),
        (0, ["0 s"]),
    ],
)
def test_m91_ticks_are_round(span: float, labels: list[str]) -> None:
    assert [elapsed(tick) for tick in ticks(span)] == labels


@given(st.floats(1e-6, 1e12))
def test_m91_ticks_are_few_and_within(span: float) -> None:
    found = ticks(span)
    assert 1 <= len(found) <= 9
    assert found[-1] <= span * 1.000001
    assert len({elapsed(tick) for tick in found}) == len(found) or span < 1e-5


@each(
    ("value", "unit", "words"),
    [
        (0, "count", "0"),
        (7, "count", "7"),
        (0.25, "count", "0.25"),
        (999, "count", "999"),
        (1_000, "count", "1k"),
        (1_234, "count", "1.2k"),
        (999_999, "count", "1M"),
        (12_345_678, "count", "12M"),
        (-1_500, "count", "-1.5k"),
        (5e30, "count", "5e+18T"),
        (0.003, "seconds", "3 ms"),
        (0.0004, "seconds", "0.4 ms"),
        (1.25, "seconds", "1.2 s"),
        (59, "seconds", "59 s"),
        (240, "seconds", "4 min"),
        (5_400, "seconds", "1.5 h"),
        (86_400 * 12, "seconds", "12 d"),
        (0, "seconds", "0 s"),
        (1_536, "bytes", "1.5 kB"),
        (12, "percent", "12 %"),
        (float("nan"), "count", "–"),
        (float("inf"), "seconds", "–"),
    ],
)
def test_m91_numbers_are_for_people(value: float, unit: Any, words: str) -> None:
    assert human(value, unit) == words


@given(st.floats(min_value=1e-9, max_value=1e15), st.sampled_from(("count", "seconds", "bytes", "percent")))
def test_m91_the_top_of_an_axis_is_near(value: float, unit: Any) -> None:
    top = top_of(value, unit)
    assert value <= top * 1.00001
    assert top <= max(value * 4, 1e-6)
    assert human_seconds(value)
