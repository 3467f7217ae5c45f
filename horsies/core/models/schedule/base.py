"""What the models of a schedule share: they are immutable, and every mistake is HRS-205."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel

# Neither a boolean nor a text is a number here: a stored schedule means exactly what its author wrote.
WholeNumber = Annotated[int, Field(strict=True)]
Positive = Annotated[int, Field(strict=True, ge=1)]


class ScheduleModel(ConfigModel):
    """A part of a schedule."""

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID_SCHEDULE

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with these fields changed, validated like any other, so that derived values are never stale."""
        fields = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**fields, **(update or {})})


def duplicates(values: Iterable[Hashable]) -> list[Hashable]:
    """The values that are listed more than once, each once."""
    return [value for value, times in Counter(values).items() if times > 1]
