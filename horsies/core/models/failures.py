"""What all error values have in common. Each operation has its own codes, and adds what it is about. Inside the library
an operation that is not made raises `Refused`; at its edge that becomes an `Err`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """An operation that was not made, as far as is known; `retryable` if the same call may succeed later."""

    code: StrEnum
    message: str
    retryable: bool = field(default=False, kw_only=True)
    exception: BaseException | None = field(default=None, kw_only=True)


class Refused(Exception):
    """An operation is not made, for the reason in this error value."""

    def __init__(self, error: Any) -> None:
        super().__init__(error.message)
        self.error = error
