"""Periodic tasks of Procrastinate: the decorator goes, and a `TaskSchedule` of the app takes its place."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from horsies.core.errors import HorsiesError
from horsies.core.models.schedule import CronSchedule
from horsies.migrate.project import File, OldTask, Project, literal, options_of

TOPIC = "periodic-tasks"
_HAND = "TaskSchedule(name=..., task_name=..., pattern=CronSchedule.parse(...)) in ScheduleConfig"


@dataclass(frozen=True, slots=True)
class Periodic:
    task: OldTask
    decorator: ast.expr

    @property
    def cron(self) -> str | None:
        """The line, if it is one that is understood here."""
        given = literal((options_of(self.decorator) or {}).get("cron"))
        if not isinstance(given, str):
            return None
        try:
            CronSchedule.parse(given)
        except (HorsiesError, ValueError):
            return None
        return given

    def remove_decorator(self, project: Project) -> None:
        """Take out its line and the parameter of the time, which nothing is given to any more. It stays if the schedule
        cannot be written, because the app is elsewhere."""
        file = self.task.home
        if not project.has_app:
            what = f"the schedule of {self.task.function.name} belongs to the app, which is in none of these files"
            file.by_hand(self.decorator, what, f"{_HAND}; then take this decorator out", TOPIC)
            return
        if self.cron is None:
            file.by_hand(self.decorator, f"the times of {self.task.function.name}", _HAND, TOPIC)
        source = file.source
        start = source.span(self.decorator)[0]
        place = self.task.function.decorator_list.index(self.decorator)
        end = source.span(self.task.function.decorator_list[place + 1])[0] - 1
        if "#" in source.text[source.span(self.decorator)[1] : end] or source.has_comment(self.decorator):
            file.differs(
                self.decorator, "comments beside it are gone", "write them again, if they still hold", "convert"
            )
        source.replace(start - 1, end, "")
        self._remove_timestamp(project, file)

    def _remove_timestamp(self, project: Project, file: File) -> None:
        spec = self.task.function.args
        ours = [*spec.posonlyargs, *spec.args][int(self.task.is_bound) :]
        if not ours:
            return
        name = ours[0].arg
        is_used = any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(self.task.function))
        is_used = is_used or _is_given_something(project, self.task)
        if is_used or len(ours) > 1 or self.task.is_bound or spec.kwonlyargs or spec.kwarg or spec.vararg:
            what = f"{self.task.function.name} is given no {name} any more"
            file.by_hand(
                self.task.function, what, "take the parameter out: datetime.now(UTC), or ctx.enqueued_at", TOPIC
            )
            return
        file.source.replace_node(ours[0], "")


def _is_given_something(project: Project, task: OldTask) -> bool:
    """Does a call or a send somewhere give the task an argument?"""
    calls = ((file, one) for file in project.files.values() for one in file.source.nodes if isinstance(one, ast.Call))
    return any(project.task_at(file, _called(one)) is task for file, one in calls if one.args or one.keywords)


def _called(call: ast.Call) -> ast.expr:
    """`task` of `task(...)`, of `task.defer(...)`, and of `task.configure(...).defer(...)`."""
    target = call.func
    if isinstance(target, ast.Attribute) and target.attr != "configure":  # its arguments are options
        target = target.value
        if isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute) and target.func.attr == "configure":
            target = target.func.value
    return target


def schedules_of(home: File, periodic: Sequence[Periodic], queues: list[str]) -> list[str]:
    """The schedules as they are written into the app."""
    made = []
    for one in periodic:
        options = options_of(one.decorator) or {}
        if one.cron is None:
            continue
        schedule, cron = home.names.need("horsies", "TaskSchedule"), home.names.need("horsies", "CronSchedule")
        suffix = literal(options.get("periodic_id"))
        name = f"{one.task.name}-{suffix}" if isinstance(suffix, str) and suffix else one.task.name
        parts = [f'name="{name}"', f'task_name="{one.task.name}"', f'pattern={cron}.parse("{one.cron}")']
        if isinstance(queue := literal(options.get("queue")), str):
            parts.append(f'queue_name="{queue}"')
            queues.append(queue)
        for option in sorted(set(options) - {"cron", "periodic_id", "queue"}):
            one.task.home.by_hand(one.decorator, f"periodic({option}=...) was left out", _HAND, TOPIC)
        made.append(f"{schedule}({', '.join(parts)})")
    return made
