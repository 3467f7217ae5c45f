"""`CronSchedule`: the typed form of a cron schedule, and how a cron line is parsed into it, or which of its fields is
wrong.

A line and the typed form differ in two ways. Cron's week begins on Sunday, so steps and ranges of weekdays become lists
of days if they do not fit a week that begins on Monday. And if both day fields name days, cron runs on days that match
either field; but if one of them begins with an asterisk, both must match. The terms of the fields are in
`cron_terms.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import Field

from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, SourceLocation, ValidationReport
from horsies.core.models.base import Violation
from horsies.core.models.schedule import cron_terms, patterns

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")
_TERM = re.compile(r"(?:(?P<every>\*)|(?P<start>[a-z0-9]+)(?:-(?P<end>[a-z0-9]+))?)(?:/(?P<step>[0-9]+))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)
_WEEK = cron_terms.Domain(0, 7, 6)  # cron's: both 0 and 7 are Sunday
_MONTHS = list(patterns.Month)
_DAYS = [patterns.Weekday.SUNDAY, *list(patterns.Weekday)[:6], patterns.Weekday.SUNDAY]
T = TypeVar("T")


class CronSchedule(patterns.SchedulePart):
    """Runs at second 0 of the minutes that match all four fields; a field matches if one of its terms does."""

    type: Literal["cron"] = "cron"
    minute: cron_terms.MinuteTerms = Field(description="numeric terms, 0 to 59")
    hour: cron_terms.HourTerms = Field(description="numeric terms, 0 to 23")
    month: cron_terms.MonthTerms = Field(description="terms for `Month`")
    day: cron_terms.DaySelector = Field(discriminator="type", description="which days")

    @classmethod
    def parse(cls, text: str) -> CronSchedule:
        """The typed form of a cron line: five fields, or a name such as `@hourly`."""
        return cls(**cron_fields(text))

    @cached_property
    def wall_times(self) -> patterns.WallTimes:
        return patterns.WallTimes(
            second=0,
            minutes=cron_terms.numeric_bits(self.minute, cron_terms.MINUTE),
            hours=cron_terms.numeric_bits(self.hour, cron_terms.HOUR),
            months=cron_terms.enum_bits(self.month, cron_terms.MONTH),
            month_days=self.day.month_day_bits,
            weekdays=self.day.weekday_bits,
            days_match="either" if isinstance(self.day, cron_terms.EitherDay) else "both",
        )

    def in_words(self, timezone: str = "UTC") -> str:
        """Its cron line, such as `*/15 9-17 * * mon-fri (UTC)`."""
        times, names = self.wall_times, [day[:3] for day in patterns.Weekday]
        is_both = times.days_match == "both"  # in a line, an asterisk in one of the day fields means both
        fields = (
            _line_of(times.minutes, cron_terms.MINUTE),
            _line_of(times.hours, cron_terms.HOUR),
            _line_of(times.month_days, cron_terms.DAY_OF_MONTH, has_star=is_both),
            _line_of(times.months, cron_terms.MONTH),
            _line_of(times.weekdays, cron_terms.WEEKDAY, names, has_star=is_both),
        )
        both = ", if both days match" if isinstance(self.day, cron_terms.BothDays) else ""
        return f"{' '.join(fields)}{both} ({timezone})"

    def _violations(self) -> Iterator[Violation]:
        if not self._some_month_has_such_a_day():
            yield Violation(
                ("month", "day"), "none of these months has any of these days, so the schedule would never run"
            )

    def _some_month_has_such_a_day(self) -> bool:
        # A leap year has every day that a year can have, and each of them falls on every weekday in some year. If
        # either day is enough, the weekdays always occur.
        on_any_weekday = replace(self.wall_times, weekdays=patterns.WEEKDAYS)
        return any(
            patterns.days_in_month(on_any_weekday, 2024, month) for month in patterns.numbers_of(on_any_weekday.months)
        )


def _line_of(mask: int, domain: cron_terms.Domain, days: Sequence[str] = (), *, has_star: bool = True) -> str:
    """These values as a field of a cron line. Cron's week begins on Sunday, so days of the week have no steps."""
    members = list(patterns.numbers_of(mask))
    for step in range(1, 2 if days else domain.longest_step + 1):
        if has_star and members == list(range(domain.first, domain.last + 1, step)) and (step == 1 or len(members) > 2):
            return "*" if step == 1 else f"*/{step}"
    parts: list[list[int]] = []
    for number in members:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    shown = [[days[number] if days else str(number) for number in part] for part in parts]
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ",".join(part) for part in shown)


def cron_fields(line: str) -> dict[str, Any]:
    """The fields of a `CronSchedule`; a `ConfigurationError` names each field that is wrong."""
    parts = _split(line)
    report = ValidationReport(phase="CronSchedule.parse")

    def field(place: int, read: Callable[[str], T]) -> T | None:
        try:
            return read(parts[place])
        except HorsiesError as problem:  # a mistake that the term itself has found
            report.add(_error(line, f"{_FIELDS[place]}: {problem.message}", problem.help_text))
        except ValueError as problem:
            report.add(_error(line, f"{_FIELDS[place]}: {problem}"))
        return None

    fields = {
        "minute": field(0, lambda text: _numeric(text, cron_terms.MINUTE)),
        "hour": field(1, lambda text: _numeric(text, cron_terms.HOUR)),
        "month": field(3, _months),
    }
    month_days, weekdays = field(2, lambda text: _numeric(text, cron_terms.DAY_OF_MONTH)), field(4, _weekdays)
    report.raise_if_any()
    return {**fields, "day": _days(month_days or [], weekdays or [], parts[2], parts[4])}


def _split(line: str) -> list[str]:
    if not isinstance(line, str):
        raise _error(line, "not a text")
    text = line.strip().lower()
    parts = NICKNAMES.get(text, text).split()
    if len(parts) == len(_FIELDS):
        return parts
    help_text = f"the fields are {', '.join(_FIELDS)}; or write one of {', '.join(NICKNAMES)}"
    if text.startswith("@"):
        raise _error(line, "there is no such name", help_text)
    raise _error(line, f"{len(parts)} fields instead of {len(_FIELDS)}", help_text)


def _error(line: object, problem: str, help_text: str | None = None) -> ConfigurationError:
    return ConfigurationError(
        f"CronSchedule.parse({line!r}): {problem}",
        code=ErrorCode.CONFIG_INVALID_SCHEDULE,
        location=SourceLocation.of_caller(),
        help_text=help_text,
    )


def _days(
    month_days: list[cron_terms.NumericTerm], weekdays: list[cron_terms.WeekdayTerm], of_month: str, of_week: str
) -> cron_terms.DaySelector:
    if of_month == "*" and of_week == "*":
        return cron_terms.EveryDay()
    if of_week == "*":
        return cron_terms.ByMonthDay(day_of_month=month_days)
    if of_month == "*":
        return cron_terms.ByWeekday(day_of_week=weekdays)
    kind = cron_terms.BothDays if of_month.startswith("*") or of_week.startswith("*") else cron_terms.EitherDay
    return kind(day_of_month=month_days, day_of_week=weekdays)


def _numeric(text: str, domain: cron_terms.Domain) -> list[cron_terms.NumericTerm]:
    terms: list[cron_terms.NumericTerm] = []
    values: list[int] = []
    for piece in _pieces(text, domain, {}):
        match piece:
            case _Piece(start=None, step=None):
                terms.append(cron_terms.CronEvery())
            case _Piece(start=None):
                terms.append(cron_terms.CronStep(step=piece.step))
            case _Piece(start=int(start), end=None):
                values.append(start)
            case _:
                terms.append(cron_terms.CronRange(start=piece.start, end=piece.end, step=piece.step or 1))
    return [*([cron_terms.CronValues(values=_once(values))] if values else []), *terms]


def _months(text: str) -> list[cron_terms.MonthTerm]:
    terms: list[cron_terms.MonthTerm] = []
    values: list[patterns.Month] = []
    names = {name: number for number, month in enumerate(_MONTHS, 1) for name in (month.value, month.value[:3])}
    for piece in _pieces(text, cron_terms.MONTH, names):
        match piece:
            case _Piece(start=None, step=None):
                terms.append(cron_terms.CronEvery())
            case _Piece(start=None):
                terms.append(cron_terms.CronEnumStep[patterns.Month](step=piece.step))
            case _Piece(start=int(start), end=None):
                values.append(_MONTHS[start - 1])
            case _Piece(start=int(start), end=int(end)):
                step = piece.step or 1
                terms.append(
                    cron_terms.CronEnumRange[patterns.Month](start=_MONTHS[start - 1], end=_MONTHS[end - 1], step=step)
                )
    return [*([cron_terms.CronEnumValues[patterns.Month](values=_once(values))] if values else []), *terms]


def _weekdays(text: str) -> list[cron_terms.WeekdayTerm]:
    terms: list[cron_terms.WeekdayTerm] = []
    values: list[patterns.Weekday] = []
    names = {name: number for number, day in enumerate(_DAYS[:7]) for name in (day.value, day.value[:3])}
    for piece in _pieces(text, _WEEK, names):
        match piece:
            case _Piece(start=None, step=None):
                terms.append(cron_terms.CronEvery())
            case _Piece(start=None):
                terms.append(_listed(0, 6, piece.step or 1))
            case _Piece(start=int(start), end=None):
                values.append(_DAYS[start])
            case _Piece(start=0, end=int(end)):
                terms.append(_listed(0, end, piece.step or 1))
            case _Piece(start=int(start), end=int(end)):
                terms.append(
                    cron_terms.CronEnumRange[patterns.Weekday](start=_DAYS[start], end=_DAYS[end], step=piece.step or 1)
                )
    return [*([cron_terms.CronEnumValues[patterns.Weekday](values=_once(values))] if values else []), *terms]


def _listed(start: int, end: int, step: int) -> cron_terms.CronEnumValues[patterns.Weekday]:
    named = {_DAYS[number] for number in range(start, end + 1, step)}
    return cron_terms.CronEnumValues[patterns.Weekday](values=[day for day in patterns.Weekday if day in named])


def _once(values: list[T]) -> list[T]:
    """A line may repeat a value, such as Sunday in `0,7`; the typed form may not."""
    return list(dict.fromkeys(values))


@dataclass(frozen=True, slots=True)
class _Piece:
    """One element of a field's list, in numbers: `*`, `*/step`, a value, or a range."""

    start: int | None
    end: int | None
    step: int | None


def _pieces(text: str, domain: cron_terms.Domain, names: dict[str, int]) -> Iterator[_Piece]:
    for item in text.split(","):
        found = _TERM.fullmatch(item)
        if found is None:
            raise ValueError(f"{item!r} is not a value, a range, `*` or one of them with a step")
        start, end = _value(found["start"], domain, names), _value(found["end"], domain, names)
        if domain is _WEEK and found["end"] in ("sun", "sunday") and start:
            end = 7  # friday-sunday: the end of the week, not its beginning; sun-sun is one day
        step = int(found["step"]) if found["step"] else None
        if step is not None and start is not None and end is None:
            raise ValueError(f"{item!r} has a step without a range; did you mean {start}-{domain.last}/{step}?")
        if step is not None and not 1 <= step <= domain.longest_step:
            raise ValueError(f"a step of {step} is not in 1..{domain.longest_step}")
        if start is not None and end is not None and end < start:
            raise ValueError(f"{item!r} ends before it starts: a range that wraps around is two ranges")
        yield _Piece(start, end, step)


def _value(text: str | None, domain: cron_terms.Domain, names: dict[str, int]) -> int | None:
    if text is None:
        return None
    if text in names:
        return names[text]
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a {'name or ' if names else ''}number")
    if not domain.first <= int(text) <= domain.last:
        raise ValueError(f"{text} is not in {domain.first}..{domain.last}")
    return int(text)
