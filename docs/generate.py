"""Writes docs/configuration.md from the settings themselves and docs/cli.md from the commands, so that names, defaults,
limits and meanings cannot drift.

Run `make docs` after a change of a setting or an option; with `--check` it only says whether that is due. What a
setting means is the `description` of its field; a setting without one is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args

import checks_page
import cli_page
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from horsies import (
    AppConfig,
    BothDays,
    ByMonthDay,
    ByWeekday,
    CronEnumRange,
    CronEnumStep,
    CronEnumValues,
    CronEvery,
    CronRange,
    CronSchedule,
    CronStep,
    CronValues,
    CustomQueueConfig,
    DailySchedule,
    EitherDay,
    EveryDay,
    HourlySchedule,
    IntervalSchedule,
    MonthlySchedule,
    PayloadPolicy,
    PostgresConfig,
    RecoveryConfig,
    RetryPolicy,
    ScheduleConfig,
    SweepStaleWorkersOptions,
    TaskLogs,
    TaskSchedule,
    WeeklySchedule,
    WorkerRecoveryConfig,
    WorkerResilienceConfig,
)
from horsies.core.worker.config import WorkerConfig

HERE = Path(__file__).parent

INTRODUCTION = """\
# Configuration

This page lists every setting with its type, default and limits; the options of the commands are on [their own
page](cli.md). `make docs` writes this page from the code, and a test keeps it up to date. A value outside its limits,
or an unknown name, is refused when the object is built; all mistakes are reported at once. Settings are immutable.
Names that end in `_ms` are milliseconds, and names that end in `_hours` are hours; for a `timedelta`, a number means
seconds.

"""

# Each with the page that says more about it.
MODELS: dict[type[BaseModel], str] = {
    AppConfig: "",
    PostgresConfig: "",
    CustomQueueConfig: "[Workers](workers.md#how-much-a-worker-takes) explains how limits are counted.",
    PayloadPolicy: "",
    TaskLogs: "[Progress and logs](progress-and-logs.md#logs) says what is kept, and who can read it.",
    WorkerResilienceConfig: "",
    RecoveryConfig: "[Recovery](recovery.md) explains each threshold and how to choose it. Every stale "
    "threshold must be at least two of its heartbeat intervals.",
    WorkerRecoveryConfig: "[Worker recovery](recovery.md#worker-recovery) says what it changes. `sweep_threshold` "
    "must be at least two `heartbeat_interval`s.",
    RetryPolicy: "[Tasks](tasks.md#retries) says which codes can be listed.",
    WorkerConfig: "[Workers](workers.md) has the details.",
    SweepStaleWorkersOptions: "[Recovery](recovery.md#by-hand) shows how.",
    ScheduleConfig: "[Scheduling](scheduling.md) has the details.",
    TaskSchedule: "",
    IntervalSchedule: "[Patterns](scheduling.md#patterns) shows each of the following patterns.",
    HourlySchedule: "",
    DailySchedule: "",
    WeeklySchedule: "",
    MonthlySchedule: "",
    CronSchedule: "[Cron](scheduling.md#cron) says what the terms match.",
    EveryDay: "",
    ByMonthDay: "",
    ByWeekday: "",
    EitherDay: "",
    BothDays: "",
    CronEvery: "",
    CronStep: "",
    CronValues: "",
    CronRange: "",
    CronEnumStep: "",
    CronEnumValues: "",
    CronEnumRange: "",
}


def page() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for model, more in MODELS.items():
        words = f"{' '.join((model.__doc__ or '').split())} {more}".rstrip()
        parts.append(f"## {model.__name__}\n\n{words}\n\n")
        if rows := list(fields(model)):
            parts.append(cli_page.table(("field", "type", "default", "limits", "meaning"), rows))
    return "".join(parts).rstrip() + "\n"


def fields(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if name == "type":
            continue  # how a stored pattern tells what it is; in code its class does
        if not field.description:
            raise SystemExit(f"docs/generate.py: {model.__name__}.{name} has no description")
        yield f"`{name}`", code(type_name(field.annotation)), default(field), limits(field), field.description


def type_name(annotation: Any) -> str:
    if isinstance(annotation, TypeVar):
        return " | ".join(type_name(part) for part in annotation.__constraints__)
    if isinstance(annotation, type) and not get_args(annotation):
        return {"SecretStr": "str", "NoneType": "None"}.get(annotation.__name__, annotation.__name__)
    parts = [type_name(part) for part in get_args(annotation) if part is not Ellipsis]
    origin = str(getattr(annotation, "__origin__", ""))
    if "Literal" in origin or "Literal" in str(annotation)[:16]:
        return " | ".join(repr(part) for part in get_args(annotation))
    if "Annotated" in str(annotation)[:18]:
        return parts[0]
    container = getattr(annotation, "__origin__", None)
    if container in (list, dict, tuple, type):
        return f"{container.__name__}[{', '.join(parts)}]"
    return " | ".join(dict.fromkeys(parts)) if parts else str(annotation)


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "all defaults"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}` s"
    return code(
        f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else repr(getattr(value, "value", value))
    )


def limits(field: FieldInfo) -> str:
    things = "characters" if field.annotation is str else "entries"
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": f"{things} >=", "max_length": f"{things} <="}
    found = [
        f"{sign} {limit(getattr(rule, name))}"
        for rule in rules(field.annotation, *field.metadata)
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join(found)


def rules(*annotated: Any) -> Iterator[Any]:
    """What limits a value, also where it is said of one part of a union."""
    for part in annotated:
        if isinstance(part, FieldInfo):
            yield from part.metadata
        elif "Literal" not in str(part)[:16] and get_args(part):
            yield from rules(*get_args(part))
        else:
            yield part


def limit(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.days} days" if value.days else f"{value.total_seconds():g} s"
    return f"{value:_}"


def code(text: str) -> str:
    return f"`{text}`"


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": page,
    "cli.md": cli_page.page,
    "checks.md": checks_page.page,
}


def main() -> int:
    is_check, old = "--check" in sys.argv[1:], []
    for name, write in PAGES.items():
        target, text = HERE / name, write()
        if not is_check:
            target.write_text(text, encoding="utf-8")
        elif not target.exists() or target.read_text(encoding="utf-8") != text:
            old.append(f"docs/{name}")
    if old:
        print(f"{' and '.join(old)} out of date: run make docs", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
