"""What counts as wrong (M-80): a judgement of a snapshot."""

from __future__ import annotations

from dataclasses import replace

from horsies.core.models.monitoring.cluster import Alert, DatabaseFacts, QueueInfo, TaskCount
from horsies.core.monitoring.alerts import capacity, judge
from horsies.core.types.status import TaskStatus
from tests.each import each
from tests.tui_support import DEAD, WEB, a_dead_worker, a_queue, a_schedule, a_snapshot, a_worker

BUSY = a_worker(tasks_running=9)


def kinds(found: list[Alert]) -> list[str]:
    return [alert.kind for alert in found]


def test_m80_all_is_well() -> None:
    assert judge(a_snapshot()) == []
    assert judge(a_snapshot(queues=(), workers=(), schedules=())) == []


@each(
    ("queue", "kind", "level"),
    [
        (a_queue(live_workers=0), "no worker", "bad"),
        (a_queue(live_workers=0, waiting=5, due=0, oldest_due_seconds=None), None, None),
        (a_queue(oldest_due_seconds=59), None, None),
        (a_queue(oldest_due_seconds=61), "overload", "warn"),
        (a_queue(oldest_due_seconds=601), "overload", "bad"),
        (a_queue(oldest_due_seconds=61, max_concurrency=4), "at limit", "warn"),
        (a_queue(oldest_due_seconds=61, max_concurrency=0), "paused", "warn"),
        (a_queue(oldest_due_seconds=61, max_concurrency=9), "overload", "warn"),
    ],
)
def test_m80_queues_that_wait(queue: QueueInfo, kind: str | None, level: str | None) -> None:
    found = judge(a_snapshot(queues=(queue,), workers=(BUSY,)))
    assert [(alert.kind, alert.level) for alert in found] == ([] if kind is None else [(kind, level)])
    assert all("queue default" in alert.message for alert in found)


def test_m80_a_queue_that_waits_though_there_is_room_is_said_so() -> None:
    [alert] = judge(a_snapshot(queues=(a_queue(oldest_due_seconds=90),), workers=(a_worker(tasks_running=1),)))
    assert (alert.kind, alert.level) == ("waiting long", "warn") and "have room" in alert.message


def test_m80_overload_is_that_of_the_workers_of_the_queue() -> None:
    idle_elsewhere = a_worker("other:1:0", queues=("mail",), tasks_running=0)
    found = judge(a_snapshot(queues=(a_queue(oldest_due_seconds=90),), workers=(BUSY, idle_elsewhere)))
    assert kinds(found) == ["overload"] and "all 4 processes" in found[0].message


def test_m80_claims_of_workers_that_are_silent_or_gone_are_stale() -> None:
    snapshot = a_snapshot(workers=(a_worker(), a_dead_worker()))
    found = judge(snapshot, {WEB: 3, DEAD: 2, "gone:1:0": 1})
    assert kinds(found) == ["stale claims", "stale claims", "silent"]
    assert [alert.subject for alert in found[:2]] == ["gone:1:0", DEAD] and found[0].level == "bad"
    assert "not registered, and holds 1 task" in found[0].message and "holds 2 tasks" in found[1].message
    assert kinds(judge(snapshot, {WEB: 3})) == ["silent"]


def test_m80_nobody_is_called_gone_if_workers_could_not_be_read() -> None:
    snapshot = a_snapshot(workers=(), missing={"workers": "it took too long"})
    assert kinds(judge(snapshot, {WEB: 3})) == ["not read"]


def test_m80_workers_with_too_much_to_do() -> None:
    tired, heavy = a_worker("a:1:0", cpu_percent=99.0), a_worker("b:1:0", memory_percent=30.0)  # 4 times with children
    found = judge(a_snapshot(workers=(tired, heavy)))
    assert [(alert.kind, alert.subject) for alert in found] == [("overload", "a:1:0"), ("overload", "b:1:0")]
    assert "99% of a processor" in found[0].message and "120% of the memory" in found[1].message
    assert judge(a_snapshot(workers=(replace(tired, cpu_percent=None, memory_usage_mb=None),))) == []


def test_m80_schedules_that_are_late() -> None:
    late = a_schedule("late", lag_seconds=61.0)
    others = (a_schedule("held", lag_seconds=99.0, paused=True), a_schedule("off", lag_seconds=99.0, is_active=False))
    assert [alert.subject for alert in judge(a_snapshot(schedules=(late, *others)))] == ["late"]


def test_m80_many_failures() -> None:
    def counts(failed: int) -> tuple[TaskCount, ...]:
        return tuple(
            TaskCount(state, "q", "t", number)
            for state, number in ((TaskStatus.COMPLETED, 40), (TaskStatus.FAILED, failed))
        )

    assert kinds(judge(a_snapshot(task_counts=counts(9)))) == []
    assert kinds(judge(a_snapshot(task_counts=counts(10)))) == ["failing"]


def test_m80_a_server_in_trouble() -> None:
    found = judge(a_snapshot(database=DatabaseFacts("18.1", 10, "always", 0.7, 9, 2, 7_200.0)))
    assert [(alert.kind, alert.level) for alert in found] == [("notifications", "bad"), ("long transaction", "warn")]


def test_m80_the_worst_comes_first() -> None:
    late, alone = a_schedule("late", lag_seconds=90.0), a_queue(live_workers=0)
    assert [alert.level for alert in judge(a_snapshot(schedules=(late,), queues=(alone,)))] == ["bad", "warn"]


def test_m80_capacity_counts_processes_that_are_busy() -> None:
    found = capacity([a_worker(tasks_running=100, concurrency=50), a_worker(tasks_running=1), a_dead_worker()])
    assert (found.live, found.silent, found.processes, found.busy, found.running) == (2, 1, 8, 5, 101)
    assert found.utilization == 0.625
    assert capacity([]).utilization is None
    assert capacity([a_worker(processes=None, tasks_running=None)]).unknown == 1
