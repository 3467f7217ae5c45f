"""`CronSchedule`: the typed form of a cron schedule, and how a cron line is parsed into it, or which of its fields is
wrong.

A line and the typed form differ in two ways. Cron's week begins on Sunday, so steps and ranges of weekdays become lists
of days if they do not fit a week that begins on Monday. And if both day fields name days, cron runs on days that match
either field; but if one of them begins with an asterisk, both must match. The terms of the fields are in
`cron_terms.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError, ValidationReport, misuse
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
_TERM = re.compile(r"(?:(?P<every>\*)|(?P<start>[a-z0-9]+)(?:-(?P<end>[a-z0-9]+))?)(?:/(?P<step>[0-9]+))?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)


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
        every = [cron_terms.CronEvery()]
        return patterns.WallTimes(
            second=0,
            minutes=cron_terms.bits(self.minute, cron_terms.MINUTE),
            hours=cron_terms.bits(self.hour, cron_terms.HOUR),
            months=cron_terms.bits(self.month, cron_terms.MONTH),
            month_days=cron_terms.bits(getattr(self.day, "day_of_month", every), cron_terms.DAY_OF_MONTH),
            weekdays=cron_terms.bits(getattr(self.day, "day_of_week", every), cron_terms.WEEKDAY),
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
    found: dict[str, list[Any]] = {}
    for text, field in zip(parts, _FIELDS, strict=True):
        try:
            found[field.name] = _terms(text, field)
        except HorsiesError as problem:  # a mistake that the term itself has found
            report.add(_error(line, f"{field.name}: {problem.message}", problem.help_text))
        except ValueError as problem:
            report.add(_error(line, f"{field.name}: {problem}"))
    report.raise_if_any()
    month_days, weekdays = found.pop("day of month"), found.pop("day of week")
    return {**found, "day": _days(month_days, weekdays, parts[2], parts[4])}


def _split(line: str) -> list[str]:
    if not isinstance(line, str):
        raise _error(line, "not a text")
    text = line.strip().lower()
    parts = NICKNAMES.get(text, text).split()
    if len(parts) == len(_FIELDS):
        return parts
    help_text = f"the fields are {', '.join(field.name for field in _FIELDS)}; or write one of {', '.join(NICKNAMES)}"
    if text.startswith("@"):
        raise _error(line, "there is no such name", help_text)
    raise _error(line, f"{len(parts)} fields instead of {len(_FIELDS)}", help_text)


def _error(line: object, problem: str, help_text: str | None = None) -> ConfigurationError:
    return misuse(f"CronSchedule.parse({line!r}): {problem}", help_text, code=ErrorCode.CONFIG_INVALID_SCHEDULE)


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


@dataclass(frozen=True)
class _Field:
    """How one field is read: the value that each number stands for, and the terms that are made of such values."""

    name: str
    domain: cron_terms.Domain
    members: Sequence[Any]
    values: type[Any] = cron_terms.CronValues
    step: type[Any] = cron_terms.CronStep
    range: type[Any] = cron_terms.CronRange

    @cached_property
    def names(self) -> Mapping[str, int]:
        named = [(number, member) for number, member in enumerate(self.members) if isinstance(member, StrEnum)]
        return {name: number for number, member in reversed(named) for name in (member.value, member.value[:3])}


_WEEK = _Field(
    "day of week",
    cron_terms.Domain(0, 7, 6),  # cron's: both 0 and 7 are Sunday
    [patterns.Weekday.SUNDAY, *patterns.Weekday],
    cron_terms.CronEnumValues[patterns.Weekday],
    cron_terms.CronEnumStep[patterns.Weekday],
    cron_terms.CronEnumRange[patterns.Weekday],
)
_FIELDS = (
    _Field("minute", cron_terms.MINUTE, range(60)),
    _Field("hour", cron_terms.HOUR, range(24)),
    _Field("day of month", cron_terms.DAY_OF_MONTH, range(32)),
    _Field(
        "month",
        cron_terms.MONTH,
        [None, *patterns.Month],
        cron_terms.CronEnumValues[patterns.Month],
        cron_terms.CronEnumStep[patterns.Month],
        cron_terms.CronEnumRange[patterns.Month],
    ),
    _WEEK,
)


def _terms(text: str, field: _Field) -> list[Any]:
    """The terms of one field: its single values together, then the others. A value may be repeated in a line, such as
    Sunday in `0,7`; in the typed form it may not."""
    terms: list[Any] = []
    values: dict[Any, None] = {}
    for start, end, step in _pieces(text, field):
        if start is None and step is None:
            terms.append(cron_terms.CronEvery())
        elif start is not None and end is None:
            values[field.members[start]] = None
        elif field is _WEEK and not start:  # cron's week begins on Sunday, and ours on Monday
            named = {field.members[number] for number in range(0, (6 if end is None else end) + 1, step or 1)}
            terms.append(field.values(values=[day for day in patterns.Weekday if day in named]))
        elif start is None or end is None:
            terms.append(field.step(step=step))
        else:
            terms.append(field.range(start=field.members[start], end=field.members[end], step=step or 1))
    return [*([field.values(values=list(values))] if values else []), *terms]


def _pieces(text: str, field: _Field) -> Iterator[tuple[int | None, int | None, int | None]]:
    """Start, end and step of each element of a field's list, in numbers: `*`, `*/step`, a value, or a range."""
    domain = field.domain
    for item in text.split(","):
        found = _TERM.fullmatch(item)
        if found is None:
            raise ValueError(f"{item!r} is not a value, a range, `*` or one of them with a step")
        start, end = _value(found["start"], field), _value(found["end"], field)
        if field is _WEEK and found["end"] in ("sun", "sunday") and start:
            end = 7  # friday-sunday: the end of the week, not its beginning; sun-sun is one day
        step = int(found["step"]) if found["step"] else None
        if step is not None and start is not None and end is None:
            raise ValueError(f"{item!r} has a step without a range; did you mean {start}-{domain.last}/{step}?")
        if step is not None and not 1 <= step <= domain.longest_step:
            raise ValueError(f"a step of {step} is not in 1..{domain.longest_step}")
        if start is not None and end is not None and end < start:
            raise ValueError(f"{item!r} ends before it starts: a range that wraps around is two ranges")
        yield start, end, step


def _value(text: str | None, field: _Field) -> int | None:
    if text is None:
        return None
    if text in field.names:
        return field.names[text]
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a {'name or ' if field.names else ''}number")
    if not field.domain.first <= int(text) <= field.domain.last:
        raise ValueError(f"{text} is not in {field.domain.first}..{field.domain.last}")
    return int(text)
