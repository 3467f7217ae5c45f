"""Why a task is not running, as a rule over facts: the first thing that holds it up is the answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from horsies.core.models.monitoring.cluster import Why, WorkerStateInfo
from horsies.core.monitoring.explain import explain_node, reasons_of_task
from horsies.core.store.reasons import NodeFacts, QueueFacts, TaskFacts
from tests.each import each

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EARLIER, LATER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)
JUST_NOW = NOW - timedelta(seconds=1)


def a_task(**facts: Any) -> TaskFacts:
    known: dict[str, Any] = dict.fromkeys(TaskFacts._fields) | {
        "now": NOW, "task_id": "t", "task_name": "mail", "queue": "q", "priority": 5, "status": "PENDING",
        "enqueued_at": EARLIER, "retry_count": 0, "max_retries": 0, "worker_is_live": False, "beat_interval_s": 30.0,
    }  # fmt: skip
    return TaskFacts(**(known | facts))


def a_worker(worker_id: str = "w", **facts: Any) -> WorkerStateInfo:
    known: dict[str, Any] = {
        "worker_id": worker_id, "is_live": True, "hostname": None, "pid": None, "started_at": EARLIER,
        "last_heartbeat_at": NOW, "silence_seconds": 0.0, "queues": ("q",), "task_names": ("mail",), "processes": 1,
        "tasks_running": 0, "tasks_claimed": 0, "cpu_percent": None, "memory_usage_mb": None, "memory_percent": None,
        "children_memory_mb": None, "max_claim_per_worker": 0, "cluster_wide_cap": None, "queue_priorities": {},
        "queue_max_concurrency": {}, "prefetch_buffer": 0, "snapshot_at": NOW,
    }  # fmt: skip
    return WorkerStateInfo(**(known | facts))


def a_queue(**facts: Any) -> QueueFacts:
    known: dict[str, Any] = {"running": 2, "held": 3, "held_in_all": 9, "held_here": ["a", "b", "c"]}
    known |= {"held_anywhere": ["z", "a"], "due_before": 4, "is_only_a_part": False}
    return QueueFacts(**(known | facts))


SERVED = (a_worker(),)
SILENT = a_worker("s", is_live=False)
STRANGER = a_worker("x", task_names=("other",))
ELSEWHERE = a_worker("e", queues=("p",))
UNSAID = a_worker("u", task_names=None)
CAPPED = a_worker("c", queue_max_concurrency={"q": 3})
WIDE = a_worker("v", cluster_wide_cap=9)
PREFETCHING = a_worker("f", queue_max_concurrency={"q": 3}, prefetch_buffer=5)
CLOSED = a_worker("0", queue_max_concurrency={"q": 0})

WAITING: list[tuple[str, dict[str, Any], tuple[WorkerStateInfo, ...], Why]] = [
    ("past its deadline", {"good_until": NOW}, SERVED, Why.DEADLINE_PASSED),
    ("its deadline is to come", {"good_until": LATER}, SERVED, Why.IN_LINE),
    ("paused workflow", {"workflow_id": "f", "workflow_status": "PAUSED"}, SERVED, Why.WORKFLOW_PAUSED),
    ("cancelled workflow", {"workflow_id": "f", "workflow_status": "CANCELLED"}, SERVED, Why.WORKFLOW_ENDED),
    ("running workflow", {"workflow_id": "f", "workflow_status": "RUNNING"}, SERVED, Why.IN_LINE),
    ("retry later", {"next_retry_at": LATER, "enqueued_at": LATER}, SERVED, Why.RETRY_DUE),
    ("retry due", {"next_retry_at": EARLIER}, SERVED, Why.IN_LINE),
    ("sent for later", {"enqueued_at": LATER}, (), Why.NOT_DUE),
    ("nobody at all", {}, (), Why.NO_WORKER),
    ("only silent workers", {}, (SILENT,), Why.NO_WORKER),
    ("another queue", {}, (ELSEWHERE, SILENT), Why.NO_WORKER_SERVES_QUEUE),
    ("unknown name", {}, (STRANGER, ELSEWHERE), Why.NO_WORKER_KNOWS_TASK),
    ("one knows it", {}, (STRANGER, *SERVED), Why.IN_LINE),
    ("one did not say what it knows", {}, (STRANGER, UNSAID), Why.IN_LINE),
    ("closed queue", {}, (CLOSED,), Why.QUEUE_PAUSED),
    ("queue at its limit", {}, (CAPPED,), Why.QUEUE_AT_LIMIT),
    ("queue at its limit for one only", {}, (CAPPED, *SERVED), Why.IN_LINE),
    ("what is only claimed counts where nothing is prefetched", {}, (PREFETCHING,), Why.IN_LINE),
    ("cluster cap", {}, (WIDE,), Why.CLUSTER_AT_CAP),
    ("cluster cap for one only", {}, (WIDE, *SERVED), Why.IN_LINE),
    ("nothing is in its way", {}, SERVED, Why.IN_LINE),
]


@each(("facts", "workers", "why"), [row[1:] for row in WAITING], ids=[row[0] for row in WAITING])
def test_m45_why_a_waiting_task_is_not_running(
    facts: dict[str, Any], workers: tuple[WorkerStateInfo, ...], why: Why
) -> None:
    told = reasons_of_task("t", a_task(**facts), workers, a_queue())
    assert told.why is why and told.message and (told.task_id, told.queue) == ("t", "q")


def test_m45_limits_name_the_tasks_in_the_way() -> None:
    at_limit = reasons_of_task("t", a_task(), (CAPPED,), a_queue())
    assert at_limit.tasks == ("a", "b", "c") and "limit of 3" in at_limit.message
    assert at_limit.facts["max_concurrency"] == 3 and at_limit.facts["in_flight"] == 3
    at_cap = reasons_of_task("t", a_task(), (WIDE,), a_queue())
    assert at_cap.tasks == ("z", "a") and at_cap.facts["cluster_wide_cap"] == 9
    below = a_queue(held=2, held_in_all=8)
    assert {reasons_of_task("t", a_task(), (w,), below).why for w in (CAPPED, WIDE)} == {Why.IN_LINE}


def test_m45_when_it_will_be_due() -> None:
    assert reasons_of_task("t", a_task(enqueued_at=LATER)).until == LATER
    retry = reasons_of_task("t", a_task(next_retry_at=LATER, retry_count=2, max_retries=3))
    assert retry.until == LATER and "retry 2 of 3" in retry.message


def test_m45_its_place_in_the_line() -> None:
    assert "4 due tasks" in reasons_of_task("t", a_task(), SERVED, a_queue()).message
    assert "4 or more" in reasons_of_task("t", a_task(), SERVED, a_queue(is_only_a_part=True)).message
    assert "next in its queue" in reasons_of_task("t", a_task(), SERVED, a_queue(due_before=0)).message


LIVE = {"worker_id": "w", "worker_is_live": True, "worker_heard_at": JUST_NOW}
GONE = {"worker_id": "w", "worker_heard_at": EARLIER}
RUNS = {"status": "RUNNING", "started_at": EARLIER}
IN_FLIGHT: list[tuple[str, dict[str, Any], Why, datetime | None]] = [
    ("runs", {**RUNS, "started_at": JUST_NOW, **LIVE}, Why.RUNNING, JUST_NOW),
    ("runs long and beats", {**RUNS, "last_beat_at": JUST_NOW, **LIVE}, Why.RUNNING, EARLIER),
    ("lies in a worker", {"status": "CLAIMED", "claimed_at": JUST_NOW, **LIVE}, Why.CLAIMED, JUST_NOW),
    ("is being written", {**RUNS, "finalizing_at": JUST_NOW, **LIVE}, Why.BEING_FINALIZED, JUST_NOW),
    ("silent worker", {**RUNS, **GONE}, Why.WORKER_SILENT, EARLIER),
    ("silent worker that was writing", {**RUNS, "finalizing_at": JUST_NOW, **GONE}, Why.WORKER_SILENT, EARLIER),
    ("unknown worker", {"status": "CLAIMED", "claimed_at": JUST_NOW, "worker_id": "w"}, Why.WORKER_SILENT, JUST_NOW),
    ("silent child", {**RUNS, **LIVE}, Why.WORKER_SILENT, EARLIER),
]  # fmt: skip


@each(("facts", "why", "since"), [row[1:] for row in IN_FLIGHT], ids=[row[0] for row in IN_FLIGHT])
def test_m45_where_a_task_in_flight_is(facts: dict[str, Any], why: Why, since: datetime | None) -> None:
    told = reasons_of_task("t", a_task(**facts))
    assert (told.why, told.since, told.worker_id) == (why, since, "w") and "w" in told.message


def test_m45_one_that_ended_says_how() -> None:
    told = reasons_of_task("t", a_task(status="FAILED", ended_at=EARLIER, error_code="NO"))
    assert (told.why, told.since) == (Why.ENDED, EARLIER) and "FAILED with NO" in told.message


def a_node(**facts: Any) -> NodeFacts:
    known: dict[str, Any] = dict.fromkeys(NodeFacts._fields) | {
        "now": NOW, "workflow_id": "f", "workflow_name": "flow", "workflow_status": "RUNNING", "node_index": 3,
        "node_id": "n", "node_type": "TASK", "task_name": "mail", "status": "PENDING", "join_type": "all",
        "deps_total": 2, "deps_completed": 1, "deps_failed": 0, "deps_skipped": 0, "waits_for": [],
    }  # fmt: skip
    return NodeFacts(**(known | facts))


CHILD = {"node_type": "SUBWORKFLOW"}
NODES: list[tuple[str, dict[str, Any], Why, str]] = [
    ("waits", {"waits_for": ["b (1): RUNNING"]}, Why.WAITING_FOR_NODES, "all of 2 nodes, 1 of which"),
    ("waits for any", {"waits_for": ["b (1): RUNNING"], "join_type": "any"}, Why.WAITING_FOR_NODES, "any of 2"),
    ("quorum", {"waits_for": ["b"], "join_type": "quorum", "min_success": 2}, Why.WAITING_FOR_NODES, "2 of 2 nodes"),
    ("paused", {"waits_for": ["b"], "workflow_status": "PAUSED", "paused_at": EARLIER}, Why.WORKFLOW_PAUSED, "paused"),
    ("cancelled", {"workflow_status": "CANCELLED"}, Why.WORKFLOW_ENDED, "CANCELLED"),
    ("behind", {}, Why.BEING_ENQUEUED, "next step of its workflow"),
    ("ready", {"status": "READY", "ready_at": EARLIER}, Why.BEING_ENQUEUED, "next step of its workflow"),
    ("element", {"status": "READY", "map_index": 1}, Why.BEING_ENQUEUED, "place among the elements"),
    ("map", {"node_type": "MAP", "status": "RUNNING", "waits_for": ["e[0] (9)"]}, Why.WAITING_FOR_NODES, "1 of 2"),
    ("child", {**CHILD, "status": "RUNNING", "sub_workflow_id": "g"}, Why.WAITING_FOR_SUBWORKFLOW, "g has not ended"),
    ("child to build", {**CHILD, "status": "ENQUEUED"}, Why.WAITING_FOR_SUBWORKFLOW, "being built"),
    ("ended", {"status": "FAILED", "error_code": "NO"}, Why.ENDED, "FAILED with NO"),
    ("skipped", {"status": "SKIPPED", "workflow_status": "FAILED"}, Why.ENDED, "SKIPPED"),
]  # fmt: skip


@each(("facts", "why", "words"), [row[1:] for row in NODES], ids=[row[0] for row in NODES])
def test_m45_why_a_node_is_not_running(facts: dict[str, Any], why: Why, words: str) -> None:
    told = explain_node("f:3", a_node(**facts))
    assert told.why is why and words in told.message
    assert (told.subject, told.workflow_id, told.node_index) == ("f:3", "f", 3)
    assert told.nodes == (tuple(facts["waits_for"]) if why is Why.WAITING_FOR_NODES else ())
