"""What all error values have in common. Each operation has its own codes, and adds what it is about."""

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """An operation that was not made, as far as is known; `retryable` if the same call may succeed later."""

    code: StrEnum
    message: str
    retryable: bool = field(default=False, kw_only=True)
    exception: BaseException | None = field(default=None, kw_only=True)
