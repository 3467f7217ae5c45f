"""The terms of a cron schedule's fields, and the selectors of its days: what each matches, and which are refused.

A term does not know its field: it is told the domain when it is asked for its numbers, and the limits belong to the
lists of the fields (`MinuteTerms` and so on).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from horsies.core.models.base import Violation
from horsies.core.models.schedule import patterns

E = TypeVar("E", patterns.Weekday, patterns.Month)


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that a field can have, and its longest step."""

    first: int
    last: int
    longest_step: int

    def every(self, step: int = 1) -> range:
        return range(self.first, self.last + 1, step)


MINUTE = Domain(0, 59, 59)
HOUR = Domain(0, 23, 23)
DAY_OF_MONTH = Domain(1, 31, 30)
MONTH = Domain(1, 12, 11)
WEEKDAY = Domain(0, 6, 6)


class CronEvery(patterns.SchedulePart):
    """Every value."""

    type: Literal["every"] = "every"

    def numbers(self, domain: Domain) -> Iterable[int]:
        return domain.every()


class CronStep(patterns.SchedulePart):
    """The first value of the domain, then every n-th: `*/n`."""

    type: Literal["step"] = "step"
    step: patterns.Positive = Field(description="the n; at most 59 for minutes, 23 for hours, 30 for days")

    def numbers(self, domain: Domain) -> Iterable[int]:
        return domain.every(self.step)


class CronValues(patterns.SchedulePart):
    """These values."""

    type: Literal["values"] = "values"
    values: tuple[patterns.WholeNumber, ...] = Field(min_length=1, description="each value once, in any order")

    def numbers(self, domain: Domain) -> Iterable[int]:
        return self.values

    def _violations(self) -> Iterator[Violation]:
        yield from _listed_once(self.values)


class CronRange(patterns.SchedulePart):
    """From `start` to `end` inclusive, every `step`-th. A range does not wrap around."""

    type: Literal["range"] = "range"
    start: patterns.WholeNumber = Field(description="the first")
    end: patterns.WholeNumber = Field(description="the last value, unless the step skips it")
    step: patterns.Positive = Field(default=1, description="1: every value")

    def numbers(self, domain: Domain) -> Iterable[int]:
        return range(self.start, self.end + 1, self.step)

    def _violations(self) -> Iterator[Violation]:
        if self.end < self.start:
            yield _backwards(self.start, self.end)


class CronEnumStep(patterns.SchedulePart, Generic[E]):
    """The first month or weekday, then every n-th."""

    type: Literal["step"] = "step"
    step: patterns.Positive = Field(description="the n; at most 11 for months, 6 for weekdays")

    def numbers(self, domain: Domain) -> Iterable[int]:
        return domain.every(self.step)


class CronEnumValues(patterns.SchedulePart, Generic[E]):
    """These months or weekdays."""

    type: Literal["values"] = "values"
    values: tuple[E, ...] = Field(min_length=1, description='each once, in any order; names are allowed: `"may"`')

    def numbers(self, domain: Domain) -> Iterable[int]:
        return [domain.first + _place(value) for value in self.values]

    def _violations(self) -> Iterator[Violation]:
        yield from _listed_once(self.values)


class CronEnumRange(patterns.SchedulePart, Generic[E]):
    """From `start` to `end` inclusive, every `step`-th. A range does not wrap around."""

    type: Literal["range"] = "range"
    start: E = Field(description="the first")
    end: E = Field(description="the last value, unless the step skips it")
    step: patterns.Positive = Field(default=1, description="1: every value")

    def numbers(self, domain: Domain) -> Iterable[int]:
        return range(domain.first + _place(self.start), domain.first + _place(self.end) + 1, self.step)

    def _violations(self) -> Iterator[Violation]:
        if type(self.start) is not type(self.end):
            yield Violation(("start", "end"), "a range must be of months or of weekdays, not of both")
        elif _place(self.end) < _place(self.start):
            yield _backwards(self.start.value, self.end.value)


def _listed_once(values: tuple[Any, ...]) -> Iterator[Violation]:
    for value in patterns.duplicates(values):
        yield Violation(("values",), f"{value} is listed more than once")


def _backwards(start: object, end: object) -> Violation:
    return Violation(
        ("start", "end"), f"{end} comes before {start}", help_text="a range that wraps around is two ranges"
    )


def _place(member: patterns.Weekday | patterns.Month) -> int:
    return list(type(member)).index(member)


def _made_for(wanted: type[patterns.Weekday] | type[patterns.Month]) -> BeforeValidator:
    """Refuse a term that was made for the other enum; a step would look the same."""

    def check(term: object) -> object:
        args = getattr(type(term), "__pydantic_generic_metadata__", {}).get("args", ())
        if args and isinstance(args[0], type) and args[0] is not wanted:
            raise ValueError(f"the terms must be for {wanted.__name__}, not for {args[0].__name__}")
        return term

    return BeforeValidator(check)


NumericTerm: TypeAlias = CronEvery | CronStep | CronValues | CronRange
MonthTerm: TypeAlias = (
    CronEvery | CronEnumStep[patterns.Month] | CronEnumValues[patterns.Month] | CronEnumRange[patterns.Month]
)
WeekdayTerm: TypeAlias = (
    CronEvery | CronEnumStep[patterns.Weekday] | CronEnumValues[patterns.Weekday] | CronEnumRange[patterns.Weekday]
)


Term: TypeAlias = NumericTerm | MonthTerm | WeekdayTerm


def bits(terms: Iterable[Term], domain: Domain) -> int:
    """The values that at least one of the terms matches."""
    return patterns.bits(number for term in terms for number in term.numbers(domain))


def _within(domain: Domain) -> AfterValidator:
    def check(terms: tuple[Term, ...]) -> object:
        if problems := list(_problems(terms, domain)):
            raise ValueError("; ".join(problems))
        return terms

    return AfterValidator(check)


def _problems(terms: Sequence[Term], domain: Domain) -> Iterator[str]:
    if not terms:
        yield "at least one term is needed; CronEvery() matches everything"
    for term in terms:
        step = getattr(term, "step", 1)
        if step > domain.longest_step:
            yield f"a step of {step} is longer than {domain.longest_step}"
        named = term.values if isinstance(term, CronValues) else ()
        for value in (term.start, term.end) if isinstance(term, CronRange) else named:
            if not domain.first <= value <= domain.last:
                yield f"{value} is not in {domain.first}..{domain.last}"


# In code the class says which term it is, in a stored schedule `type` does.
_Numeric: TypeAlias = Annotated[NumericTerm, Field(discriminator="type")]
_Month: TypeAlias = Annotated[MonthTerm, Field(discriminator="type"), _made_for(patterns.Month)]
_Weekday: TypeAlias = Annotated[WeekdayTerm, Field(discriminator="type"), _made_for(patterns.Weekday)]
MinuteTerms: TypeAlias = Annotated[tuple[_Numeric, ...], _within(MINUTE)]
HourTerms: TypeAlias = Annotated[tuple[_Numeric, ...], _within(HOUR)]
MonthDayTerms: TypeAlias = Annotated[tuple[_Numeric, ...], _within(DAY_OF_MONTH)]
MonthTerms: TypeAlias = Annotated[tuple[_Month, ...], _within(MONTH)]
WeekdayTerms: TypeAlias = Annotated[tuple[_Weekday, ...], _within(WEEKDAY)]


class _MonthDays(patterns.SchedulePart):
    day_of_month: MonthDayTerms = Field(description="numeric terms, 1 to 31")


class _WeekDays(patterns.SchedulePart):
    day_of_week: WeekdayTerms = Field(description="terms for `Weekday`")


class EveryDay(patterns.SchedulePart):
    """All days."""

    type: Literal["every_day"] = "every_day"


class ByMonthDay(_MonthDays):
    """These days of the month."""

    type: Literal["by_month_day"] = "by_month_day"


class ByWeekday(_WeekDays):
    """These days of the week."""

    type: Literal["by_weekday"] = "by_weekday"


class EitherDay(_WeekDays, _MonthDays):
    """Days that at least one of the two fields names."""

    type: Literal["either_day"] = "either_day"


class BothDays(_WeekDays, _MonthDays):
    """Days that both fields name: the 13th, if it is a Friday."""

    type: Literal["both_days"] = "both_days"


DaySelector: TypeAlias = EveryDay | ByMonthDay | ByWeekday | EitherDay | BothDays
