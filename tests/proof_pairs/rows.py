"""The rows the operations meet: tasks in every state, words of the doorbell, workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.proof_pairs.choices import Choices
from tests.proof_pairs.stage import at

WORKERS = ("alpha", "beta")
QUEUES = ("default", "other")
NAMES = ("plain", "light")
NEW_IDS = ("n1", "n2", "n3")
OF_WORKFLOWS = "of workflows"  # instead of a status

# Their state, and where they hang: the kid below a node of the first.
WORKFLOWS = {"wf-on": "RUNNING", "wf-off": "PAUSED", "wf-done": "COMPLETED", "wf-old": "FAILED", "wf-kid": "RUNNING"}

# The clocks of the operations read 0 or 1: what lies between has passed for one and not for the other.
DEADLINES = (None, None, None, 100.0, 0.5, -5.0)


@dataclass(frozen=True)
class Shape:
    """A state a task can be in, with the columns that make it."""

    status: str
    enqueued: float = -10
    next_retry: bool = False
    lease: float | None = None
    finalizing: bool = False


SHAPES = {
    "due": Shape("PENDING"),
    "soon": Shape("PENDING", enqueued=0.5),
    "future": Shape("PENDING", enqueued=100),
    "retrying": Shape("PENDING", enqueued=-1, next_retry=True),
    "retrying later": Shape("PENDING", enqueued=50, next_retry=True),
    "claimed": Shape("CLAIMED", lease=60),
    "lapsing": Shape("CLAIMED", lease=0.5),
    "lapsed": Shape("CLAIMED", lease=-5),
    "running": Shape("RUNNING", lease=60),
    "finalizing": Shape("RUNNING", lease=-5, finalizing=True),
    "completed": Shape("COMPLETED"),
    "failed": Shape("FAILED"),
    "cancelled": Shape("CANCELLED"),
    "expired": Shape("EXPIRED"),
}
BY_STATUS: dict[str, list[str]] = {}
for _name, _shape in SHAPES.items():
    BY_STATUS.setdefault(_shape.status, []).append(_name)
# Ended tasks are all alike: they should be met, but not often.
BY_STATUS["PENDING"] += ["due", "due", "retrying"]
# Tasks of workflows, some of which have ended and have not been advanced.
BY_STATUS[OF_WORKFLOWS] = ["completed", "running", "claimed", "due", "failed", "retrying", "expired", "completed"]
OPEN = [name for name, shape in SHAPES.items() if shape.status in ("PENDING", "CLAIMED", "RUNNING")]
ANY = [*OPEN, *OPEN, "completed", "failed", "cancelled", "expired"]


@dataclass(frozen=True)
class Row:
    """One task."""

    id: str
    shape: str
    owner: str
    seq: int = 1
    queue: str = "default"
    priority: int = 100
    name: str = "plain"
    key: str | None = None
    deadline: float | None = None
    retries: int = 0
    attempts: int = 0
    workflow: str | None = None
    has_beaten: bool = False

    @property
    def status(self) -> str:
        return SHAPES[self.shape].status

    @property
    def is_held(self) -> bool:
        return self.status in ("CLAIMED", "RUNNING")

    def columns(self) -> dict[str, Any]:
        shape = SHAPES[self.shape]
        own = ord(self.id) / 10_000  # of two rows one is always earlier: who takes the first by time takes the same
        ran = shape.status in ("RUNNING", "COMPLETED", "FAILED")
        had_owner = self.is_held or ran
        return {
            "id": self.id,
            "task_name": self.name,
            "queue_name": self.queue,
            "priority": self.priority,
            "args": "[1]",
            "enqueue_sha": "sha [1]",
            "status": shape.status,
            "sent_at": at(-30),
            "enqueued_at": at(shape.enqueued),
            "next_retry_at": at(shape.enqueued) if shape.next_retry else None,
            "good_until": None if self.deadline is None else at(self.deadline + own),
            "retry_count": self.retries,
            "max_retries": 3,
            "claimed": self.is_held,
            "claim_seq": self.seq,
            "claimed_by_worker_id": self.owner if had_owner else None,
            "claimed_at": at(-9 + own) if had_owner else None,
            "claim_expires_at": None if shape.lease is None else at(shape.lease + own),
            "started_at": at(-8 + own) if ran else None,
            "worker_pid": 7 if ran else None,
            "worker_hostname": "then" if ran else None,
            "finalizing_at": at(-1) if shape.finalizing else None,
            "completed_at": at(-2) if shape.status == "COMPLETED" else None,
            "failed_at": at(-2) if shape.status == "FAILED" else None,
            "result": "{}" if not self.is_held and shape.status != "PENDING" else None,
            "updated_at": at(-9),
            "idempotency_key": self.key,
            "workflow_id": self.workflow,
        }


@dataclass(frozen=True)
class Start:
    """What is in the database before the operations."""

    tasks: tuple[Row, ...]
    words: tuple[tuple[str, str, float], ...] = ()  # topic, holder, until
    workers: tuple[str, ...] = ()

    def as_json(self) -> str:
        attempts = [
            {"task_id": row.id, "attempt": n + 1, "outcome": "FAILED", "will_retry": True}
            | {"started_at": at(-20 + n), "finished_at": at(-19 + n)}
            for row in self.tasks
            for n in range(row.attempts)
        ]
        words = [{"topic": topic, "holder": holder, "until": at(until)} for topic, holder, until in self.words]
        beats = [{"task_id": row.id, "sent_at": at(-2)} for row in self.tasks if row.is_held and row.has_beaten]
        workers = [{"worker_id": name, "at": at(-50), "seen": at(-3)} for name in self.workers]
        tasks = [row.columns() for row in self.tasks]
        nodes = [node for workflow in WORKFLOWS for node in self.nodes(workflow)]
        return json.dumps(
            {"tasks": tasks, "attempts": attempts, "waiting": words, "workers": workers, "beats": beats}
            | {"nodes": nodes, "workflows": [self._workflow(workflow, nodes) for workflow in WORKFLOWS]}
        )

    def nodes(self, workflow: str) -> list[dict[str, Any]]:
        """One for each task of the workflow, that does not know yet if the task has ended; two that wait for all of
        them; one that has failed; in the first one whose child is the kid."""
        own = [row for row in self.tasks if row.workflow == workflow]
        nodes = [_node(workflow, n, row.id, _node_status(row), task_id=row.id) for n, row in enumerate(own)]
        if workflow == "wf-on":
            nodes.append(_node(workflow, len(own), "sub", "RUNNING", node_type="SUBWORKFLOW", sub_workflow_id="wf-kid"))
        if WORKFLOWS[workflow] in ("RUNNING", "PAUSED") and nodes:
            sources = list(range(len(nodes)))
            for join in ("all", "any"):
                name = f"{join}-{workflow}"  # what is locked is known by its name
                nodes.append(_node(workflow, len(nodes), name, "PENDING", join_type=join, dependencies=sources))
            for source in sources:
                nodes[source]["dependents"] = [len(sources), len(sources) + 1]
        error = {"result": '{"err":{"error_code":"BAD","message":"bad"}}', "error_code": "BAD", "completed_at": at(-2)}
        return [*nodes, _node(workflow, len(nodes), f"bad-{workflow}", "FAILED", **error)]

    def _workflow(self, workflow: str, nodes: list[dict[str, Any]]) -> dict[str, Any]:
        is_over = WORKFLOWS[workflow] in ("COMPLETED", "FAILED")
        own = [node for node in nodes if node["workflow_id"] == workflow]
        sub = next((node["task_index"] for node in nodes if node["node_id"] == "sub"), None)
        is_kid = workflow == "wf-kid"
        return {
            "id": workflow,
            "status": WORKFLOWS[workflow],
            "open_nodes": sum(node["completed_at"] is None for node in own),
            "completed_at": at(-100) if is_over else None,
            "parent_workflow_id": "wf-on" if is_kid else None,
            "parent_task_index": sub if is_kid else None,
            "root_workflow_id": "wf-on" if is_kid else workflow,
            "depth": int(is_kid),
        }


def _node_status(row: Row) -> str:
    """Who has started stays RUNNING, also when its task waits for another try."""
    has_started = row.seq > 1 or row.status in ("RUNNING", "COMPLETED", "FAILED")
    return "RUNNING" if has_started else "ENQUEUED"


def _node(workflow: str, index: int, node_id: str, status: str, **columns: Any) -> dict[str, Any]:
    blank: dict[str, Any] = {
        "node_type": "TASK",
        "dependencies": [],
        "dependents": [],
        "join_type": "all",
        "completed_at": None,
    }
    blank |= dict.fromkeys(("task_id", "sub_workflow_id", "result", "error_code"))
    given = {"workflow_id": workflow, "task_index": index, "node_id": node_id, "status": status}
    row = {**blank, **given, **columns}
    return {**row, "deps_total": len(row["dependencies"])}


# Few draws for each row: an example has many, and what counts is who meets whom.
_TRAITS = [
    {"queue": queue, "priority": priority, "name": name, "workflow": workflow, "has_beaten": has_beaten}
    for has_beaten in (False, False, True)
    for workflow in (None,) * 8 + ("wf-on", "wf-off", "wf-done")
    for priority in (100, 10)
    for name in NAMES
    for queue in ("default", "default", "default", "other")
]
_NODE_TRAITS = [
    {"queue": "default", "priority": 100, "name": "plain", "workflow": workflow, "has_beaten": False}
    for workflow in ("wf-on", "wf-on", "wf-kid", "wf-kid", "wf-off", "wf-done", None)
]
# A recovery that was not charged leaves more attempts than retries (L-36).
_PAST: list[dict[str, Any]] = [{"seq": 1}, {"seq": 1}, {"seq": 2}, {"seq": 2, "retries": 1, "attempts": 1}]
_PAST += [{"seq": 3, "attempts": 2}, {"seq": 3, "retries": 2, "attempts": 2}]


def row(
    pick: Choices,
    task_id: str,
    shapes: Sequence[str],
    owners: Sequence[str],
    key: str | None,
    all_traits: Sequence[dict[str, Any]],
) -> Row:
    shape, owner = pick.of(shapes), pick.of(owners)
    past = pick.of([{"seq": 0}, {"seq": 0}, *_PAST] if SHAPES[shape].status == "PENDING" else _PAST)
    deadline, traits = pick.of(DEADLINES), pick.of(all_traits)
    return Row(task_id, shape, owner, key=key, deadline=deadline, **past, **traits)


_TOPICS = (("task:a", "client"), ("task:b", "client"), ("worker", "alpha"), ("worker", "beta"))


def starts(pick: Choices, statuses: Sequence[str]) -> Start:
    """Two to six tasks, whose ids are in no order, most of them in these states; and some words and workers."""
    likely = [shape for status in statuses for shape in BY_STATUS[status]] or ANY
    shapes = likely * 6 * len(ANY) + [shape for shape in ANY for _ in range(len(likely))]
    owners = pick.of((["alpha"] * 6 + ["beta"], ["alpha", "beta"]))
    ids = pick.shuffled("abcdef")[: pick.of((3, 2, 3, 4, 6))]
    keys = pick.of(((None,) * 6, ("k1", None, "k2", None, "k3", None)))
    traits = _NODE_TRAITS if OF_WORKFLOWS in statuses else _TRAITS
    tasks = tuple(row(pick, task_id, shapes, owners, key, traits) for task_id, key in zip(ids, keys, strict=False))
    until = pick.of((50.0, -100.0))
    words = [(topic, holder, until) for topic, holder in pick.of((_TOPICS, _TOPICS[::-1], (), _TOPICS[1:3]))]
    if pick.is_so():
        words.append(("monitor", "eye", 1e6))
    return Start(tasks, tuple(words), ("alpha",) if pick.is_so() else ())
