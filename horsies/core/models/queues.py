"""Queues as the user configures them: one default queue, or named queues with priority and limit."""

import re
from enum import StrEnum
from typing import ClassVar

from pydantic import Field, field_validator

from horsies.core.errors import ErrorCode
from horsies.core.models.base import MOST, ConfigModel

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 100
# PostgreSQL limits a channel name to 63 bytes, and the channel of a queue is "task_queue_" + name.
MAX_QUEUE_NAME_BYTES = 52
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class QueueMode(StrEnum):
    """One queue for everything, or queues of your own."""

    DEFAULT = "default"
    CUSTOM = "custom"


def queue_name_problem(name: str) -> str | None:
    """Why this cannot be the name of a queue; None if it can."""
    if not 1 <= len(name.encode("utf-8", "replace")) <= MAX_QUEUE_NAME_BYTES:
        return f"a queue name must have 1 to {MAX_QUEUE_NAME_BYTES} bytes"
    if not _QUEUE_NAME.fullmatch(name):
        return f"queue name {name!r} may contain only letters, digits, '_', '.' and '-'"
    return None


class CustomQueueConfig(ConfigModel):
    """A named queue. Priority 1 is served first. With `max_concurrency=None` there is no limit; with 0 no task of the
    queue is claimed."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_QUEUE_MODE

    name: str = Field(description="1 to 52 letters, digits, `_`, `.` or `-`")
    priority: int = Field(default=1, ge=1, le=100, description="1 is served first")
    max_concurrency: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description="most tasks of the queue at the same time, over all workers; `None`: no limit, 0: claim none",
    )

    share: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="at least this part of what a worker claims, whatever the priority; `None`: only by priority",
    )

    @field_validator("name")
    @classmethod
    def _name_fits_a_channel(cls, name: str) -> str:
        if problem := queue_name_problem(name):
            raise ValueError(problem)
        return name
