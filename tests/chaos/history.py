"""What happened in one round, as plain values. Times are seconds since the epoch: everything ran on one machine, so the
server's clock, the driver's and that of user code are the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property

from tests.chaos.flow_history import Control, Flow, FlowMove, Node, Started

TERMINAL = frozenset({"COMPLETED", "FAILED", "CANCELLED", "EXPIRED"})


@dataclass(frozen=True, slots=True)
class Sent:
    """A task that a producer was told is in the queue."""

    key: str
    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A cancel that was asked for; `is_sure` if the answer was that it has happened."""

    task_id: str
    at: float
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Task:
    """A row of horsies_tasks in the end. `token` names the run whose result was stored, if that names one."""

    id: str
    key: str
    name: str
    status: str
    claim_seq: int = 1
    owner: str | None = None
    is_claimed: bool = False
    retry_count: int = 0
    max_retries: int = 0
    retried_codes: frozenset[str] = frozenset()
    has_deadline: bool = False
    error_code: str | None = None
    token: str | None = None
    workflow_id: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of horsies_task_attempts."""

    task_id: str
    number: int
    outcome: str
    will_retry: bool
    started_at: float
    finished_at: float
    owner: str
    pid: int | None
    error_code: str | None = None
    token: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """A change of a task's state, as a trigger saw it: `at` by the clock, `stamp` the time of its start, if it is one,
    and otherwise of its transaction. The names with `was` are those before it."""

    number: int
    task_id: str
    at: float
    stamp: float
    was: str | None
    status: str
    claim_seq: int
    owner: str | None
    pid: int | None
    retry_count: int = 0
    was_seq: int = 0
    was_owner: str | None = None
    was_pid: int | None = None
    was_retry_count: int = 0
    was_enrolled: bool = False
    by: str = ""  # the name of the session


@dataclass(frozen=True, slots=True)
class Run:
    """One call of a task's function, from its own notes. `how` is "returned" or "raised" if it came to its end, else
    what it was going to do to its process, or nothing. `claim` is what the database told it in a transaction of its
    own: number, owner, or None if that was not to be had."""

    token: str
    key: str
    task_name: str
    pid: int
    begin: float
    last: float
    how: str = ""
    claim: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to whom. `worker` is the pid of a supervisor, 0 for the server; `pids` are the processes that were
    signalled."""

    kind: str
    begin: float
    end: float
    slot: int | None = None
    worker: int = 0
    pids: frozenset[int] = frozenset()
    note: str = ""

    @property
    def is_of_server(self) -> bool:
        return self.kind.startswith("server")

    @property
    def is_stop(self) -> bool:
        return self.kind.startswith("stop")

    @property
    def is_of_one_child(self) -> bool:
        return self.kind in ("kill child", "stop child")


@dataclass(frozen=True, slots=True)
class Worker:
    """One life of a worker process. `orphans_s` is how long its children outlived it, if it was killed alone;
    `was_ready`: it has said so."""

    slot: int
    pid: int
    profile: str
    begin: float
    end: float | None = None
    returncode: int | None = None
    orphans_s: float | None = None
    was_ready: bool = True


@dataclass(frozen=True, slots=True)
class Beat:
    """A row of horsies_heartbeats."""

    task_id: str
    role: str
    sender: str
    at: float


@dataclass(frozen=True, slots=True)
class Period:
    """A task RUNNING under one claim; `end` is the move that ended it, `attempt` the row written with that."""

    task_id: str
    begin: Move
    end: Move | None
    attempt: Attempt | None

    @property
    def owner(self) -> str | None:
        return self.begin.owner

    @property
    def pid(self) -> int | None:
        return self.begin.pid

    @property
    def ended_at(self) -> float:
        return self.end.at if self.end is not None else float("inf")

    @property
    def was_handed_back(self) -> bool:
        """RUNNING → PENDING without an attempt: its code was never called, says who did it (L-13a)."""
        return self.end is not None and self.end.status == "PENDING" and self.attempt is None


@dataclass(frozen=True)
class History:
    """All of it."""

    seed: int = 0
    begin: float = 0.0
    sent: list[Sent] = field(default_factory=list)
    cancelled: list[Cancelled] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)  # when the machine gave the driver no time
    rest_s: float = 0.0  # until nothing was under way, once nothing was broken any more
    has_evidence: bool = True  # somebody looked for dead processes all the time
    registered: list[str] = field(default_factory=list)  # worker ids in the registry when all were stopped
    leftovers: list[str] = field(default_factory=list)  # processes that outlived everything
    complaints: list[str] = field(default_factory=list)  # of the server's log and the workers' that must not be there
    started: list[Started] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    flow_moves: list[FlowMove] = field(default_factory=list)

    @cached_property
    def by_key(self) -> dict[str, Task]:
        return {task.key: task for task in self.tasks}

    @cached_property
    def by_id(self) -> dict[str, Task]:
        return {task.id: task for task in self.tasks}

    @cached_property
    def by_token(self) -> dict[str, Run]:
        return {run.token: run for run in self.runs}

    @cached_property
    def flow_by_id(self) -> dict[str, Flow]:
        return {flow.id: flow for flow in self.flows}

    @cached_property
    def nodes_of(self) -> dict[str, list[Node]]:
        """By workflow, in their order."""
        found: dict[str, list[Node]] = defaultdict(list)
        for node in sorted(self.nodes, key=lambda node: node.index):
            found[node.workflow_id].append(node)
        return found

    @cached_property
    def flow_moves_of(self) -> dict[tuple[str, int | None], list[FlowMove]]:
        """By workflow and index; those of the workflow itself by None."""
        found: dict[tuple[str, int | None], list[FlowMove]] = defaultdict(list)
        for move in sorted(self.flow_moves, key=lambda move: move.number):
            found[move.workflow_id, move.index].append(move)
        return found

    @cached_property
    def moves_of(self) -> dict[str, list[Move]]:
        found: dict[str, list[Move]] = defaultdict(list)
        for move in sorted(self.moves, key=lambda move: move.number):
            found[move.task_id].append(move)
        return found

    @cached_property
    def attempts_of(self) -> dict[str, list[Attempt]]:
        found: dict[str, list[Attempt]] = defaultdict(list)
        for attempt in sorted(self.attempts, key=lambda attempt: attempt.number):
            found[attempt.task_id].append(attempt)
        return found

    @cached_property
    def periods_of(self) -> dict[str, list[Period]]:
        """The row of an attempt has the time of the transaction that ended it."""
        found: dict[str, list[Period]] = {}
        for task_id, moves in self.moves_of.items():
            written = {(attempt.finished_at, attempt.owner): attempt for attempt in self.attempts_of.get(task_id, ())}
            found[task_id] = [
                Period(task_id, move, after, written.get((after.stamp, move.owner or "")) if after else None)
                for move, after in zip(moves, [*moves[1:], None], strict=True)
                if move.status == "RUNNING"
            ]
        return found

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """By task id; those of a key that has no row are left out."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda run: run.begin):
            if (task := self.by_key.get(run.key)) is not None:
                found[task.id].append(run)
        return found

    @cached_property
    def period_of(self) -> dict[str, Period]:
        """By the token of a run: the last start of its task in this process before it. A run without one is left
        out."""
        found: dict[str, Period] = {}
        for task_id, runs in self.runs_of.items():
            for run in runs:
                mine = [period for period in self.periods_of.get(task_id, ()) if period.pid == run.pid]
                place = bisect_right([period.begin.at for period in mine], run.begin)
                if place:
                    found[run.token] = mine[place - 1]
        return found

    def run_in(self, period: Period) -> Run | None:
        """The run that this start led to."""
        for run in self.runs_of.get(period.task_id, ()):
            if self.period_of.get(run.token) is period:
                return run
        return None


def pid_of(worker_id: str) -> int:
    """`host:pid:hex` (W-02)."""
    parts = worker_id.split(":")
    return int(parts[-2]) if len(parts) >= 3 and parts[-2].isdigit() else 0
