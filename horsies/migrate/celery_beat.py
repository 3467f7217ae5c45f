"""The entries of a beat schedule as `TaskSchedule`s."""

from __future__ import annotations

import ast
import builtins

from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import CronSchedule
from horsies.migrate.project import File, Project, literal, number

TOPIC = "beat"
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_POSITIONS = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
_UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_KEYS = {"task", "schedule", "args", "kwargs", "options"}
_OPTIONS = {
    "expires": "a schedule has no deadline; catch_up_missed=False, which is the default, runs no missed slots later",
    "priority": "give the task a queue of that priority: CustomQueueConfig(name=..., priority=...)",
}
_HAND = "write a TaskSchedule(name=..., task_name=..., pattern=...) into ScheduleConfig"


def entries_of(project: Project, file: File, entries: ast.Dict, zone: str | None, queues: list[str]) -> list[str]:
    """Each entry as the call of a `TaskSchedule`; one that cannot be changed is a finding. Queues that they name are
    added to `queues`."""
    made = []
    for key, value in zip(entries.keys, entries.values, strict=True):
        name = literal(key)
        if not isinstance(name, str) or not isinstance(value, ast.Dict):
            file.by_hand(value, "an entry of the beat schedule that is no literal", _HAND, TOPIC)
        elif (text := _entry(project, file, name, value, zone, queues)) is not None:
            made.append(text)
    return made


def _entry(project: Project, file: File, name: str, entry: ast.Dict, zone: str | None, queues: list[str]) -> str | None:
    fields = {str(literal(key)): value for key, value in zip(entry.keys, entry.values, strict=True) if key is not None}
    task, schedule = literal(fields.get("task")), fields.get("schedule")
    if not isinstance(task, str) or schedule is None or len(fields) < len(entry.keys):
        file.by_hand(entry, f"the beat entry {name!r} names no task or schedule as a literal", _HAND, TOPIC)
        return None
    pattern = pattern_of(file, schedule)
    if pattern is None:
        file.by_hand(schedule, f"the schedule of the beat entry {name!r}: {_why_not(file, schedule)}", _HAND, TOPIC)
        return None
    need = file.names.need
    parts = [f"name={_text(name)}", f"task_name={_text(task)}", f"pattern={pattern}"]
    for option in ("args", "kwargs"):
        if option in fields and literal(fields[option]) not in ((), [], {}, None):
            if not _may_move(file, fields[option]):
                file.by_hand(
                    fields[option], f"{option} of the beat entry {name!r} use names of the module", _HAND, TOPIC
                )
                return None
            parts.append(f"{option}={file.source.now(fields[option])}")
    parts += _options(file, name, fields.get("options"), queues)
    if zone is not None and "CronSchedule" in pattern:
        parts.append(f"timezone={_text(zone)}")
    if not any(one.name == task for one in project.tasks):
        instead = "define that task, or take the schedule out again: horsies check refuses it"
        file.by_hand(entry, f"the beat entry {name!r} sends {task!r}, which is not among these files", instead, TOPIC)
    for other in sorted(set(fields) - _KEYS):
        instead = "take the schedule out if it is not wanted; nothing here has this meaning"
        file.by_hand(entry, f"{other!r} of the beat entry {name!r} was left out", instead, TOPIC)
    return f"{need('horsies', 'TaskSchedule')}({', '.join(parts)})"


def _options(file: File, name: str, options: ast.expr | None, queues: list[str]) -> list[str]:
    if options is None:
        return []
    given = literal(options)
    if not isinstance(given, dict):
        file.by_hand(options, f"options of the beat entry {name!r} are no literals", _HAND, TOPIC)
        return []
    for other in sorted(set(given) - {"queue"}):
        instead = _OPTIONS.get(other, "a schedule has only a queue; what else its task needs belongs to @app.task")
        file.by_hand(options, f"the option {other} of the beat entry {name!r} was left out", instead, TOPIC)
    if isinstance(queue := given.get("queue"), str):
        queues.append(queue)
        return [f"queue_name={_text(queue)}"]
    return []


def pattern_of(file: File, node: ast.expr) -> str | None:
    """`crontab(...)`, `timedelta(...)` or a number of seconds as a pattern; None if it is something else."""
    seconds = number(node)
    if seconds is None and isinstance(node, ast.Call):
        called = file.names.dotted(node.func)
        if called in ("celery.schedules.crontab", "celery.schedules.schedules.crontab"):
            line = cron_line(node)
            return None if line is None else f'{file.names.need("horsies", "CronSchedule")}.parse("{line}")'
        if called == "datetime.timedelta" and not node.args:
            parts = [(one.arg, number(one.value)) for one in node.keywords]
            if all(unit in _UNITS and amount is not None for unit, amount in parts):
                seconds = sum(_UNITS[str(unit)] * (amount or 0) for unit, amount in parts)
    if seconds is None or seconds < 1 or seconds != int(seconds):
        return None
    return f"{file.names.need('horsies', 'IntervalSchedule')}({_units(int(seconds))})"


def _why_not(file: File, node: ast.expr) -> str:
    """Why there is no pattern for it."""
    called = file.names.dotted(node.func) if isinstance(node, ast.Call) else None
    if number(node) is not None or called == "datetime.timedelta":
        return "it is no whole number of seconds, or none that can be read here"
    if called is not None and called.endswith("crontab"):
        return "Celery wants the day of the month and the weekday, cron takes either; or a field is no literal"
    return "only crontab(), timedelta() and a number of seconds have a counterpart"


def _units(seconds: int) -> str:
    for unit in ("days", "hours", "minutes"):
        if seconds % _UNITS[unit] == 0:
            return f"{unit}={seconds // _UNITS[unit]}"
    return f"seconds={seconds}"


def cron_line(call: ast.Call) -> str | None:
    """The five fields of a `crontab(...)`; None if it has no such form. Celery wants both days to match, and cron takes
    either, so a line with both is none."""
    given = dict(zip(_POSITIONS, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    if set(given) - set(_POSITIONS) or any(one.arg is None for one in call.keywords):
        return None
    fields = []
    for name in _FIELDS:
        value = literal(given[name]) if name in given else "*"
        if isinstance(value, list | tuple | set):
            value = ",".join(str(one) for one in value)
        if not isinstance(value, str | int) or isinstance(value, bool):
            return None
        fields.append("".join(str(value).split()).lower())
    if fields[2] != "*" and fields[4] != "*":
        return None
    line = " ".join(fields)
    try:
        CronSchedule.parse(line)
    except (HorsiesError, ValueError):
        return None
    return line


def _may_move(file: File, node: ast.expr) -> bool:
    """Is it the same in another line of the module? Then all its names are imported or built in."""
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return all(name in file.names.at_top or hasattr(builtins, name) for name in names)


def _text(value: str) -> str:
    return '"' + value + '"' if value.isprintable() and '"' not in value and "\\" not in value else repr(value)
