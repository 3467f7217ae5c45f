"""What should be stored, row by row, and what a claim pass is told. Plain values of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.proof.values import OneOf, Request, When

CLEAR_CLAIM: dict[str, Any] = {
    "claimed": False,
    "claimed_at": None,
    "claimed_by_worker_id": None,
    "claim_expires_at": None,
    "finalizing_at": None,
    "recovery_enrolled": False,
}
CLEAR_RUN: dict[str, Any] = {
    "started_at": None,
    "worker_pid": None,
    "worker_hostname": None,
    "worker_process_name": None,
}


@dataclass(frozen=True, slots=True)
class Task:
    """One row of horsies_tasks; the defaults are those of a new one (L-04)."""

    request: Request
    sent_at: When
    enqueued_at: When
    good_until: When | None
    max_retries: int
    created_at: When
    updated_at: When | OneOf
    status: str = "PENDING"
    claimed: bool = False
    claimed_at: When | None = None
    claimed_by_worker_id: str | None = None
    claim_expires_at: When | None = None
    claim_seq: int = 0
    recovery_enrolled: bool = False
    finalizing_at: When | None = None
    started_at: When | None = None
    worker_pid: int | None = None
    worker_hostname: str | None = None
    worker_process_name: str | None = None
    retry_count: int = 0
    next_retry_at: When | None = None
    completed_at: When | None = None
    failed_at: When | None = None
    result: object = None
    error_code: str | None = None
    failed_reason: object = None
    start_failures: int = 0
    workflow_id: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of horsies_task_attempts."""

    attempt: int
    outcome: str
    will_retry: bool
    started_at: When | None
    finished_at: When
    error_code: str | None
    error_message: object
    failed_reason: object
    worker_id: str
    worker_hostname: str | None
    worker_pid: int | None
    worker_process_name: str | None


class Heartbeat(NamedTuple):
    """One row of horsies_heartbeats."""

    task_id: str
    role: str
    sender_id: str
    hostname: str
    pid: int


class Claimant(NamedTuple):
    """Who claims, for how long, and whether its tasks are enrolled in worker recovery."""

    owner: str
    lease: float
    enrolled: bool


class Budgets(NamedTuple):
    """W-24: what one pass may take. `queues` are in claiming order, each with its `max_concurrency`."""

    queues: Sequence[tuple[str, int | None]]
    local: int
    per_worker: int
    batch: int
    cluster_cap: int | None
    is_hard: bool
