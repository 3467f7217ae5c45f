"""The tasks that a worker holds, from the claim until their end is written, and the limits on their number.

This is the worker's memory, not the truth: the database decides who owns a task, and every write is fenced by the
claim. Everything here is plain data. The stages (`claim.py`, `start.py`, `dispatch.py`, `finalize.py`) move tasks from
phase to phase; how many may be claimed now is computed in `claim.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING

from horsies.core.child.wire import Kind, pack
from horsies.core.models.tasks import TaskOptions
from horsies.core.store import caps
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.context import packed
from horsies.core.tasks.moves import Claim

if TYPE_CHECKING:
    from horsies.core.worker.children import Child

log = logging.getLogger("horsies.worker")

MAX_HELD_BYTES = 64 << 20  # of arguments and results, by default (W-25b)


class Phase(Enum):
    """The phase of a task inside the worker."""

    CLAIMED = auto()  # ours, not started
    STARTING = auto()  # the statement that makes it RUNNING is under way
    LINED = auto()  # RUNNING in the database, waiting in a child's line
    FED = auto()  # handed to the child, which has not said that it started
    STARTED = auto()  # the child has called, or is about to call, the function
    SETTLING = auto()  # its end is known and waits to be written


class StopReason(Enum):
    """Why the code of a task is being stopped."""

    TIMEOUT = "timeout"
    LOST = "lost"


@dataclass(slots=True, eq=False)
class HeldTask:
    """One task that the worker holds."""

    row: Claimed
    is_async: bool
    token: int
    claim: Claim
    id: str = field(init=False)
    options: TaskOptions = field(init=False)
    phase: Phase = Phase.CLAIMED
    child: Child | None = None
    since: float = field(default_factory=monotonic)  # of the claim, then of the start
    last_beat: float = 0.0
    sign: float = 0.0  # of a RUNNING one: when its last sign of life was sent, on the fence's clock
    started: float | None = None  # when the child said so
    due: float | None = None  # by the database's clock, in seconds since 1970; once it is handed over
    stop: StopReason | None = None
    is_wanted_back: bool = False  # the child was asked to give it up
    note_at: int | None = None  # its place in the start journal, once it is handed over
    settling_since: float | None = None  # its code has ended and its result waits to be written
    marked: float = 0.0  # when the database was last told so (L-30)
    timer: asyncio.TimerHandle | None = None  # of its time limit
    size: int = 0  # bytes of its arguments that are kept here
    result_size: int = 0  # the same of its result

    def __post_init__(self) -> None:
        self.id = self.row.id
        self.options = parse_options(self.row.task_options)

    def run_frame(self, entry: bytes, *, is_traced: bool) -> bytes:
        """What a child is told to run; `entry` is for the start journal."""
        row = self.row
        name, args, kwargs = row.task_name.encode(), (row.args or "").encode(), (row.kwargs or "").encode()
        parts = (name, args, kwargs, entry, self._facts())
        return pack(Kind.RUN, self.token, *parts, self._about()) if is_traced else pack(Kind.RUN, self.token, *parts)

    def _facts(self) -> bytes:
        """What the code of a task can know about its run (P-02)."""
        row = self.row
        self.due = row.enqueued_at.timestamp() if isinstance(row.enqueued_at, datetime) else None
        attempt, limit, node = row.retry_count + 1, self.options.timeout_ms, self.options.node
        return packed(row.id, row.claim_seq, attempt, row.queue_name, self.due, limit, row.workflow_id, node)

    def _about(self) -> bytes:
        """What the span of a run says about its task and its context."""
        row = self.row
        fields = json.dumps((row.id, row.queue_name, row.retry_count + 1))
        return f"{fields[:-1]},{self.options.trace or 'null'}]".encode()


@lru_cache(maxsize=1024)
def parse_options(text: str | None) -> TaskOptions:
    """The stored options; a text that cannot be read counts as no options (the task still runs, without retries)."""
    try:
        return TaskOptions.from_json(text)
    except ValueError as problem:
        log.warning("the stored task_options cannot be read and are ignored (no retries, no time limit): %s", problem)
        return TaskOptions()


class InHand:
    """All tasks of the worker by id, and those that wait to be started, in order."""

    def __init__(self, is_suspect: Callable[[Claimed], bool] = lambda row: False) -> None:
        self._is_suspect = is_suspect
        self.suspects: set[HeldTask] = set()  # those that must run apart
        self.held: dict[str, HeldTask] = {}
        self.waiting: deque[HeldTask] = deque()
        self.taken = 0  # so many tasks so far; each has the number of its own as its token
        self.bytes = 0  # of arguments and results that are kept here (W-25b)
        self.result_bytes = 0  # those of results among them
        self.on_drop: Callable[[HeldTask], None] = lambda held: None

    def __len__(self) -> int:
        return len(self.held)

    def __iter__(self) -> Iterator[HeldTask]:
        return iter(list(self.held.values()))

    def take(self, row: Claimed, *, is_async: bool) -> HeldTask | None:
        """A claim has arrived. Return the older hold on the same task that it replaces; that one is over."""
        claim = Claim(row.id, row.claim_seq)
        older = self.held.get(row.id)
        if older is not None and older.claim == claim:
            return None  # a crash of the server lost this claim, and it was made again under the same number (L-03)
        self.taken += 1
        held = HeldTask(row, is_async, self.taken, claim, size=row.size)
        self.bytes += row.size
        self.held[row.id] = held
        if row.child is None:
            self.waiting.append(held)
        else:
            held.phase = Phase.STARTING  # RUNNING in the database; its child gets it in a moment
        if self._is_suspect(row):
            self.suspects.add(held)
        return older

    def forget_arguments(self, held: HeldTask) -> None:
        """Nobody needs its arguments here any more."""
        self.bytes -= held.size
        held.size = 0

    def keep_result(self, held: HeldTask, size: int) -> None:
        """Its end is known, and its result waits to be written."""
        self.bytes += size - held.size - held.result_size
        self.result_bytes += size - held.result_size
        held.size, held.result_size = 0, size

    def replace_result(self, held: HeldTask, size: int) -> None:
        """Another result waits instead of the one that is kept, if there is one."""
        more = size - held.result_size
        self.bytes += more
        self.result_bytes += more
        held.result_size = size

    def drop(self, held: HeldTask) -> None:
        """The task is no longer ours, and none of its code runs here."""
        self.on_drop(held)
        self.bytes -= held.size + held.result_size
        self.result_bytes -= held.result_size
        held.size = held.result_size = 0
        self.suspects.discard(held)
        if self.held.get(held.id) is held:
            del self.held[held.id]

    def holds(self, held: HeldTask) -> bool:
        return self.held.get(held.id) is held

    def count(self, *phases: Phase) -> int:
        return sum(1 for held in self.held.values() if held.phase in phases)


def log_fields(held: HeldTask) -> dict[str, object]:
    """What an operator wants to know about a task in a log line."""
    row = held.row
    return {"task_id": row.id, "task": row.task_name, "attempt": row.retry_count + 1, "queue": row.queue_name}


def next_to_start(fed: list[HeldTask]) -> HeldTask | None:
    """The next task of a child that died while it ran none: that task may be the cause (R-102)."""
    if not fed or any(held.phase is Phase.STARTED for held in fed):
        return None
    return fed[0] if fed[0].stop is None else None


@dataclass(slots=True)
class Limits:
    """How many tasks the worker may hold, and from which queues: the limits from the configuration. Only `concurrency`
    may change: if it was left to the worker, it is 1 as long as no async task comes (W-30a, `pace.Kinds`)."""

    queues: Sequence[tuple[str, int | None]]  # name and max_concurrency, in claiming order
    cluster_cap: int | None
    prefetch: int
    max_claim_batch: int
    max_claim_per_worker: int
    run_ahead_ms: int
    concurrency: int
    max_held_bytes: int = MAX_HELD_BYTES
    top_concurrency: int | None = None  # of a worker that changes it: while there are async tasks
    shares: Mapping[str, float] = field(default_factory=dict)  # of the queues that have one (W-22b)

    @property
    def hard(self) -> bool:
        return self.prefetch == 0

    @property
    def may_run_ahead(self) -> bool:
        return self.run_ahead_ms > 0 and self.max_claim_per_worker == 0

    @property
    def counted(self) -> list[str]:
        """The queues, or all together, whose tasks in flight are counted for these limits (D-56)."""
        found = [name for name, cap in self.queues if cap is not None]
        return found if self.cluster_cap is None else [*found, caps.ALL]

    def capped_queues(self) -> frozenset[str]:
        """The queues with a limit that is counted over several workers."""
        return frozenset(name for name, cap in self.queues if cap is not None or self.cluster_cap is not None)
