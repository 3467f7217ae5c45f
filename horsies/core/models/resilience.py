"""How a worker behaves while its database is away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel, Violation


class WorkerResilienceConfig(ConfigModel):
    """Backoff of database retries (`db_retry_max_attempts` 0: no limit) and the poll that covers lost notifications."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_RESILIENCE

    db_retry_initial_ms: int = Field(
        default=500, ge=100, le=60_000, description="first delay after a failure of the database"
    )
    db_retry_max_ms: int = Field(default=30_000, ge=500, le=300_000, description="the delay doubles up to this")
    db_retry_max_attempts: int = Field(
        default=0, ge=0, le=10_000, description="failures in a row after which the worker gives up; 0: never"
    )
    notify_poll_interval_ms: int = Field(
        default=5_000, ge=1_000, le=300_000, description="time between polls without a notification"
    )

    def _violations(self) -> Iterator[Violation]:
        if self.db_retry_max_ms < self.db_retry_initial_ms:
            yield Violation(
                ("db_retry_max_ms", "db_retry_initial_ms"),
                f"the longest delay is shorter than the first: {self.db_retry_max_ms} < {self.db_retry_initial_ms}",
            )
