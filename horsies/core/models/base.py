"""The base of every configuration model: frozen, strict about unknown names, and reporting all mistakes at once.

Pydantic checks the fields; a subclass yields its cross-field rules from `_violations`. Both kinds of mistakes are
raised together as `ConfigurationError`s with the HRS code of the field, never with the given value (it may be a
secret).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from horsies.core.errors import ErrorCode, HorsiesError, ValidationReport, misuse
from horsies.core.text import about_unknown, visible

# Every number has a largest value, so that it is refused here and not by PostgreSQL or by a timer in the middle of
# something. A count of this size fits an `integer` of PostgreSQL, with room for a sum of two.
MOST = 1_000_000_000
A_DAY_MS = 86_400_000
A_YEAR_MS = 365 * A_DAY_MS


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule and the fields that it concerns."""

    fields: tuple[str, ...]
    message: str
    code: ErrorCode | None = None
    help_text: str | None = None


class ConfigModel(BaseModel):
    """A frozen settings object whose mistakes are `ConfigurationError`s."""

    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False
    )

    error_code: ClassVar[ErrorCode] = ErrorCode.CONFIG_INVALID
    field_error_codes: ClassVar[Mapping[str, ErrorCode]] = {}

    def __init__(self, /, **data: Any) -> None:
        report = ValidationReport(phase=type(self).__name__)
        bad: set[str] = set()
        try:
            super().__init__(**data)
        except ValidationError as problem:
            for detail in problem.errors(include_url=False, include_input=False):
                bad.add(str(detail["loc"][0]) if detail["loc"] else "")
                self._report_field(report, detail)
        for violation in self._violations_apart_from(bad, data):
            code = violation.code or self.error_code
            report.add(misuse(self._label(*violation.fields) + violation.message, violation.help_text, code=code))
        if report.has_errors():
            # `from None`, because pydantic's own text could show the given value.
            try:
                report.raise_if_any()
            except HorsiesError as error:
                raise error from None

    def _violations(self) -> Iterator[Violation]:
        """Rules that concern several fields; called when each field by itself is valid."""
        yield from ()

    def _violations_apart_from(self, bad: set[str], data: dict[str, Any]) -> list[Violation]:
        """The cross-field rules whose fields are all valid: one bad field must not hide another mistake."""
        if bad:
            try:
                super().__init__(**{name: value for name, value in data.items() if name not in bad})
            except ValidationError:
                return []  # a required field is missing, so there is no object to ask
        return [violation for violation in self._violations() if not bad & set(violation.fields)]

    def _report_field(self, report: ValidationReport, detail: ErrorDetails) -> None:
        cause = (detail.get("ctx") or {}).get("error")
        if isinstance(cause, HorsiesError):
            report.add(cause)  # a nested settings object has already said it better
            return
        where = [visible(str(part)) for part in detail["loc"]]
        code = self.field_error_codes.get(where[0], self.error_code) if where else self.error_code
        text = str(cause) if isinstance(cause, ValueError | AssertionError) else detail["msg"]
        if detail["type"] == "extra_forbidden":
            text = f"unknown setting{about_unknown(where[-1], type(self).model_fields)}"
        report.add(misuse(f"{self._label('.'.join(where))}{text}", code=code))

    def _label(self, *fields: str) -> str:
        named = ", ".join(name for name in fields if name)
        return f"{type(self).__name__}.{named}: " if named else f"{type(self).__name__}: "
