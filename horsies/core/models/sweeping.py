"""The options and the result of a manual sweep, and of the list of workers (R-43, R-49, R-94)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from pydantic import Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel
from horsies.core.models.recovery import Delay, Duration


class SweepStaleWorkersOptions(ConfigModel):
    """Settings of one sweep. A value of None is taken from the recovery configuration."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RECOVERY

    sweep_threshold: Duration | None = Field(default=None, description="silence after which a worker counts as dead")
    recovery_delay: Delay | None = Field(default=None, description="delay before a recovered task may run again")
    dry_run: bool = Field(default=False, description="only report which workers count as dead")


@dataclass(frozen=True, slots=True)
class SweepStaleWorkersResult:
    """What a sweep has done."""

    recovered_count: int = 0
    worker_ids: list[str] = field(default_factory=list)  # dead ones, and those that had left tasks behind; sorted
    skipped_count: int = 0  # tasks that a hook, or the database, wanted left as they are
    deferred_count: int = 0  # tasks left for a later sweep
    dry_run: bool = False
    lock_acquired: bool = False  # False: somebody else was sweeping, or it was a dry run


@dataclass(frozen=True, slots=True)
class WorkerSilence:
    """How long a registered worker has been silent, and what that means for a sweep."""

    worker_id: str
    takes_part: bool  # it runs with worker recovery; a sweep leaves the others alone
    silence_s: float
    heartbeat_interval_s: float | None  # None: it did not say


@dataclass(frozen=True, slots=True)
class ActiveWorker:
    """A registered worker."""

    worker_id: str
    is_stale: bool
    started_at: datetime
    last_heartbeat_at: datetime
    hostname: str | None
    pid: int | None
