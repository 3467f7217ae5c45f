"""What can be done about a task that is not running: for every reason, with the names and times that belong to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from horsies.core.models.monitoring.cluster import Explanation, Why
from horsies.core.monitoring.remedies import remedies_of
from horsies.core.types import TaskStatus
from tests.each import each

NOW = datetime(2026, 1, 1, 20, 32, 30, tzinfo=UTC)
LATER = NOW + timedelta(minutes=10)
WORKER = "horsies worker MODULE --queues archive"


def told(why: Why, *, status: TaskStatus | None = TaskStatus.PENDING, **named: Any) -> str:
    own = {name: named.pop(name) for name in ("workflow_id", "worker_id", "since", "until", "tasks") if name in named}
    facts = {"asked_at": NOW, "task_name": "invoice.remind", "enqueued_at": NOW, **named}
    explained = Explanation("t", why, "because", task_id="t", status=status, queue="archive", facts=facts, **own)
    return " ".join(remedies_of(explained))


@each("why", list(Why))
@each("workflow_id", [None, "f"])
def test_m45_every_reason_says_what_can_be_done(why: Why, workflow_id: str | None) -> None:
    said = told(
        why, workflow_id=workflow_id, worker_id="w1", since=NOW, until=LATER, max_concurrency=1, cluster_wide_cap=2
    )
    assert said.endswith(".") and "None" not in said and len(said) < 400, said


HOLDERS = [
    {"task_id": "a", "task_name": "invoice.print", "status": "RUNNING", "since": NOW - timedelta(minutes=14)},
    {"task_id": "b", "task_name": "invoice.mail", "status": "CLAIMED", "since": None},
]
PAUSED = {"workflow_id": "f", "since": NOW}


@each(
    ("why", "named", "words"),
    [
        (Why.NOT_DUE, {"until": LATER}, ["due at 2026-01-01 20:42:30Z", "run it now"]),
        (Why.RETRY_DUE, {"until": LATER, "last_error": "BANK_DOWN", "last_error_at": NOW},
         ["failed with BANK_DOWN at 2026-01-01 20:32:30Z", "tried again at 2026-01-01 20:42:30Z"]),
        (Why.NO_WORKER, {}, [WORKER]),
        (Why.NO_WORKER_SERVES_QUEUE, {"known_in": ["mail", "archive"]}, [WORKER, "know invoice.remind: mail."]),
        (Why.NO_WORKER_SERVES_QUEUE, {"known_in": []}, [WORKER, "moving it may not help"]),
        (Why.NO_WORKER_KNOWS_TASK, {"fails_at": LATER},
         ["whose code has invoice.remind", WORKER, "WORKER_RESOLUTION_ERROR at 2026-01-01 20:42:30Z"]),
        (Why.QUEUE_PAUSED, {"known_in": ["mail"]}, ["max_concurrency of the queue archive", "mail"]),
        (Why.QUEUE_AT_LIMIT, {"holders": HOLDERS, "tasks": tuple("abcde"), "max_concurrency": 5},
         ["invoice.print (running for 14 min), invoice.mail (claimed) and 3 more", "from 5"]),
        (Why.CLUSTER_AT_CAP, {"holders": HOLDERS, "tasks": ("a", "b"), "cluster_wide_cap": 9},
         ["invoice.print (running for 14 min)", "cluster_wide_cap from 9"]),
        (Why.WORKFLOW_PAUSED, {**PAUSED, "paused_by": "ada"}, ["ada paused the workflow at 2026-01-01 20:32:30Z"]),
        (Why.WORKFLOW_PAUSED, {**PAUSED, "failed_node": "check", "failed_code": "BANK_DOWN"},
         ["Node check failed with BANK_DOWN", "Retry its failed nodes"]),
        (Why.IN_LINE, {"serving_queue": ["w1", "w2"]}, ["served by w1, w2", WORKER]),
        (Why.WORKER_SILENT, {"worker_id": "w1", "since": NOW}, ["worker w1", "20:32:30Z", "horsies sweep"]),
    ],
)  # fmt: skip
def test_m45_remedies_have_names_and_times(why: Why, named: dict[str, Any], words: list[str]) -> None:
    said = told(why, **named)
    assert [word for word in words if word not in said] == [], said


def test_m45_a_task_that_somebody_knows_does_not_fail_for_its_name() -> None:
    said = told(Why.NO_WORKER_KNOWS_TASK, fails_at=LATER, knowing_workers=1, known_in=["mail"])
    assert "WORKER_RESOLUTION_ERROR" not in said and "mail" in said


@each("why", list(Why))
def test_m45_m49d_a_task_of_a_workflow_is_neither_moved_nor_run_again_but_may_run_now(why: Why) -> None:
    said = told(why, workflow_id="f", known_in=["mail"], until=LATER, worker_id="w1")
    assert "move" not in said and "run it again" not in said.lower(), said
    assert ("run it now" in said) is (why in (Why.NOT_DUE, Why.RETRY_DUE)), said


def test_m45_a_command_can_be_copied_whatever_the_queue_is_called() -> None:
    [said] = remedies_of(Explanation("t", Why.NO_WORKER, "because", queue="a; rm -rf x", facts={"asked_at": NOW}))
    assert "--queues 'a; rm -rf x'" in said
