"""From what is known to what Prometheus reads: every metric of the catalogue, bounded labels, consistent histograms."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from horsies.core.models.monitoring.cluster import (
    DatabaseFacts,
    QueueInfo,
    ScheduleStateInfo,
    Snapshot,
    TaskCount,
    WorkerStateInfo,
)
from horsies.core.monitoring import catalogue, prometheus
from horsies.core.monitoring.metrics import (
    MOST_PAIRS,
    MOST_QUEUES,
    MOST_TASKS,
    DatabaseReading,
    Histogram,
    WorkerCounts,
    WorkerFacts,
    of_reading,
    of_scheduler,
    of_worker,
)
from horsies.core.text import visible
from horsies.core.types.status import TaskStatus
from tests import hostile_support as hostile
from tests.metrics_support import Series, series_of, value

NOW = datetime(2026, 7, 1, tzinfo=UTC)


def a_snapshot() -> Snapshot:
    unsaid: dict[str, Any] = {one.name: None for one in fields(WorkerStateInfo)}
    worker = WorkerStateInfo(**{**unsaid, "worker_id": "w1", "is_live": True, "silence_seconds": 3.5})
    return Snapshot(
        taken_at=NOW,
        queues=(QueueInfo("default", 5, 4, 1, 1, 2, 7.5, 60, max_concurrency=8, priority=1, live_workers=1),),
        task_counts=(
            TaskCount(TaskStatus.PENDING, "default", "add", 5),
            TaskCount(TaskStatus.FAILED, "default", "mail", 2),
        ),
        ended_window_seconds=3600.0,
        workers=(worker, replace(worker, worker_id="w2", is_live=False, silence_seconds=400.0)),
        schedules=(
            ScheduleStateInfo("nightly", "code", False, NOW, NOW + timedelta(hours=1), "id", 3, 12.0, "h", NOW, None),
        ),
        workflow_counts={"RUNNING": 2},
        database=DatabaseFacts("18.1", 3, "always", 0.25, 9, 2, 1.5),
    )


def some_facts() -> WorkerFacts:
    return WorkerFacts(
        "w1", "host", "0.1", True, 2, {"claimed": 1}, {"ready": 2}, 5e7, 1e8, True, 12, 0.001, {"CLAIM_LOST": 1}
    )


def some_counts() -> WorkerCounts:
    counts = WorkerCounts()
    counts.claim.note(10, 0.002)
    counts.waits("default").note(0.2)
    counts.runs("add").note(0.05)
    counts.end("default", "add", "completed")
    counts.recovered["requeued"] += 1
    counts.child_ends["unexpected"] += 1
    return counts


def exposed(snapshot: Snapshot | None, counts: WorkerCounts | None = None) -> Series:
    families = [
        *of_reading(DatabaseReading(snapshot)),
        *of_worker(some_facts(), counts or some_counts()),
        *of_scheduler(0.5, is_ready=True),
    ]
    text, content_type = prometheus.encode(families)
    assert content_type.startswith("text/plain")
    return series_of(text.decode())


def test_every_metric_of_the_catalogue_is_exposed_and_no_other() -> None:
    names = {name for name, _ in exposed(a_snapshot())}
    assert names == {name for metric in catalogue.metrics() for name in metric.series()}
    assert len({metric.name for metric in catalogue.metrics()}) == len(list(catalogue.metrics()))


def test_names_and_labels_follow_the_conventions() -> None:
    for metric in catalogue.metrics():
        assert metric.name.startswith("horsies_") and metric.help.endswith("."), metric.name
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
    text, _ = prometheus.encode(of_reading(DatabaseReading(a_snapshot())))
    kinds = {family.name: family.type for family in text_string_to_metric_families(text.decode())}
    assert kinds["horsies_tasks"] == "gauge" and kinds["horsies_reading_errors"] == "counter"


def test_openmetrics_is_spoken_to_who_asks_for_it() -> None:
    families = [*of_reading(DatabaseReading(a_snapshot())), *of_worker(some_facts(), some_counts())]
    text, content_type = prometheus.encode(families, "application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(text.decode())}  # strict: it raises for anything that is not right


def test_values_are_those_of_the_snapshot() -> None:
    seen = exposed(a_snapshot())
    assert value(seen, "horsies_tasks", status="PENDING", queue="default", task="add") == 5
    states = {s: value(seen, "horsies_queue_tasks", queue="default", state=s) for s in ("due", "scheduled", "running")}
    assert states == {"due": 4, "scheduled": 1, "running": 2}
    assert value(seen, "horsies_queue_oldest_due_seconds", queue="default") == 7.5
    assert value(seen, "horsies_queue_max_concurrency", queue="default") == 8
    assert value(seen, "horsies_workers", state="live") == value(seen, "horsies_workers", state="silent") == 1
    assert value(seen, "horsies_workers_longest_silence_seconds") == 400
    assert value(seen, "horsies_schedule_lag_seconds", schedule="nightly") == 12
    assert value(seen, "horsies_notify_queue_usage_ratio") == 0.25
    assert value(seen, "horsies_database_up") == 1


def test_without_a_snapshot_there_are_no_numbers_of_the_database() -> None:
    seen = exposed(None)
    assert value(seen, "horsies_database_up") == 0
    assert not {name for name, _ in seen if name.startswith(("horsies_queue", "horsies_tasks", "horsies_reading_age"))}


def test_names_from_rows_are_bounded_and_nothing_is_lost() -> None:
    many = range(1_000)
    snapshot = replace(
        a_snapshot(),
        queues=tuple(QueueInfo(f"q{n}", n, n, 0, 0, 0, float(n), 0) for n in many),
        task_counts=tuple(TaskCount(TaskStatus.PENDING, f"q{n}", f"t{n}", n) for n in many),
        schedules=tuple(replace(a_snapshot().schedules[0], name=f"s{n}", lag_seconds=float(n)) for n in many),
    )
    seen = exposed(snapshot)

    def labelled(metric: str) -> list[float]:
        return [amount for (name, _), amount in seen.items() if name == metric]

    assert len(labelled("horsies_tasks")) == MOST_PAIRS + 1 and sum(labelled("horsies_tasks")) == sum(many)
    assert len(labelled("horsies_queue_oldest_due_seconds")) == MOST_QUEUES + 1
    assert value(seen, "horsies_queue_tasks", queue="other", state="due") == sum(range(1_000 - MOST_QUEUES))
    assert value(seen, "horsies_queue_oldest_due_seconds", queue="other") == 999 - MOST_QUEUES
    assert len(labelled("horsies_schedule_lag_seconds")) == 200
    assert value(seen, "horsies_schedule_lag_seconds", schedule="s999") == 999, "the latest are kept"


def test_s38_a_schedule_that_is_not_to_fire_has_no_lag_and_no_next_run() -> None:
    gone = replace(a_snapshot().schedules[0], name="gone", lag_seconds=0.0, is_active=False)
    names = ("horsies_schedule_lag_seconds", "horsies_schedule_next_run_timestamp_seconds")
    seen = exposed(replace(a_snapshot(), schedules=(*a_snapshot().schedules, gone)))
    assert [dict(labels)["schedule"] for name, labels in sorted(seen) if name in names] == ["nightly", "nightly"]


def test_names_that_a_worker_meets_are_bounded_too() -> None:
    counts = WorkerCounts()
    for n in range(1_000):
        counts.end(f"q{n}", f"t{n}", "completed")
        counts.runs(f"t{n}").note(0.1)
        counts.waits(f"q{n}").note(0.1)
    assert len(counts.ended) == MOST_PAIRS + 1 and sum(counts.ended.values()) == 1_000
    assert counts.ended["other", "other", "completed"] == 1_000 - MOST_PAIRS
    assert (len(counts.run_seconds), len(counts.queue_seconds)) == (MOST_TASKS + 1, MOST_QUEUES + 1)


def test_a_label_cannot_break_out_of_its_line() -> None:
    evil = 'a"} 1\nhorsies_tasks{queue="x'
    snapshot = replace(a_snapshot(), task_counts=(TaskCount(TaskStatus.FAILED, "default", evil, 3),))
    assert value(exposed(snapshot), "horsies_tasks", status="FAILED", queue="default", task=visible(evil)) == 3


def test_m12_labels_are_shown_and_stay_apart() -> None:
    names = [hostile.SHORT, visible(hostile.SHORT), "a\nb", "a\\nb", "a\\b", "plain"]
    queues = tuple(replace(a_snapshot().queues[0], name=name) for name in names)
    for accept in ("", "application/openmetrics-text"):
        text, _ = prometheus.encode(of_reading(DatabaseReading(replace(a_snapshot(), queues=queues))), accept)
        assert hostile.obeyed(text.decode()) == set()
        series = [line.rpartition(" ")[0] for line in text.decode().splitlines() if not line.startswith("#")]
        waiting = [one for one in series if one.startswith("horsies_queue_oldest_due_seconds{")]
        assert len(set(waiting)) == len(names) and len(set(series)) == len(series)


def test_histograms_count_up_to_and_including_each_bound() -> None:
    histogram = Histogram((1, 2, 5))
    for seen in (0.5, 1, 1.5, 5, 9):
        histogram.note(seen)
    before = histogram.buckets()
    histogram.note(3)
    assert before.counts == ((1, 2), (2, 3), (5, 4), (float("inf"), 5)) and before.sum == 17, "and stay as they were"


def test_a_wait_that_a_wrong_clock_makes_negative_counts_as_none() -> None:
    counts = WorkerCounts()
    counts.waits("default").note(-3.0)
    seen = counts.queue_seconds["default"].buckets()
    assert (seen.sum, seen.counts[0][1]) == (0.0, 1)
