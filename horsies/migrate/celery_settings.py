"""The settings of a Celery app, wherever its module puts them (`Celery(...)`, `app.conf.x = …`, `app.conf.update(…)`),
as the call that makes a `Horsies`. Settings are fixed when an app is made here, so all of them move into that call."""

from __future__ import annotations

import ast
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field

from horsies.core.models.queues import DEFAULT_QUEUE, queue_name_problem
from horsies.migrate.celery_beat import entries_of
from horsies.migrate.project import File, OldTask, Project, is_written, literal, number

TOPIC = "settings"
# Settings that have no meaning here, because one PostgreSQL is everything and values are JSON.
_GONE = {
    "broker",
    "broker_url",
    "backend",
    "result_backend",
    "main",
    "set_as_current",
    "task_serializer",
    "result_serializer",
    "accept_content",
    "broker_connection_retry_on_startup",
    "broker_connection_retry",
    "task_track_started",
    "worker_send_task_events",
    "task_send_sent_event",
    "task_create_missing_queues",
    "result_extended",
    "namespace",
    "broker_transport_options",
    "result_backend_transport_options",
    "worker_hijack_root_logger",
}
_DEFAULTS = {  # a setting for all tasks: the option of each
    "task_acks_late": "acks_late",
    "task_time_limit": "time_limit",
    "task_soft_time_limit": "soft_time_limit",
    "task_ignore_result": "ignore_result",
}
_BY_HAND = {
    "task_always_eager": "in tests: with app.testing.inline(): ...",
    "task_eager_propagates": "in tests: app.testing.drain(raise_on_failure=True)",
    "result_expires": "AppConfig(recovery=RecoveryConfig(terminal_record_retention_hours=...)); the default is 30 days",
    "worker_concurrency": "horsies worker --processes N",
    "worker_prefetch_multiplier": "nothing: a worker claims what it can run",
    "worker_max_tasks_per_child": "horsies worker --max-tasks-per-child N",
    "task_default_rate_limit": "max_concurrency of a queue limits how many run at once; there is no rate limit",
    "task_annotations": "the options of each task",
    "enable_utc": "timezone=... of each TaskSchedule without one: times are those of UTC here",
}


@dataclass
class Settings:
    """What the settings of an app say."""

    default_queue: str = DEFAULT_QUEUE
    queues: list[str] = field(default_factory=list)
    routes: list[tuple[str, str]] = field(default_factory=list)
    timezone: str | None = None
    beat: list[tuple[ast.Dict, File]] = field(default_factory=list)
    modules: list[str] = field(default_factory=list)
    defaults: dict[str, ast.expr] = field(default_factory=dict)
    statements: list[ast.stmt] = field(default_factory=list)
    schedules: list[str] = field(default_factory=list)

    def queue_of(self, task: OldTask) -> str | None:
        """The queue that the decorator or a route gives a task; None for the default one."""
        given = literal(task.options.get("queue"))
        if isinstance(given, str):
            return given
        return next((queue for pattern, queue in self.routes if fnmatch.fnmatchcase(task.name, pattern)), None)


def read(project: Project, file: File, app: str) -> Settings:
    """The settings of this app, from the module that makes it."""
    found = Settings()
    call = file.apps[app]
    for name, value in _of_constructor(call):
        _take(project, file, found, name, value)
    for statement in file.source.tree.body:
        _read_statement(project, file, app, statement, found)
    for entries, home in found.beat:
        found.schedules += entries_of(project, home, entries, found.timezone, found.queues)
    return found


def _of_constructor(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    yield from zip(("main", "loader", "backend"), call.args, strict=False)
    for one in call.keywords:
        yield one.arg or "**", one.value


def _read_statement(project: Project, file: File, app: str, statement: ast.stmt, found: Settings) -> None:
    match statement:
        case ast.Assign(targets=[ast.Attribute(value=ast.Attribute(value=owner, attr="conf"), attr=name)], value=value):
            settings = [(name, value)]
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute(value=owner, attr="conf"), slice=key)], value=value):
            settings = [(str(literal(key)), value)]
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Attribute(value=owner, attr="conf"), attr="update")) as call
        ):
            settings = [(one.arg or "**", one.value) for one in call.keywords]
            for given in call.args:
                settings += _items(given)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="autodiscover_tasks")) as call):
            settings = [("autodiscover_tasks", call)]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="config_from_object")) as call):
            settings = [("config_from_object", call)]
        case _:
            return
    if not (isinstance(owner, ast.Name) and owner.id == app):
        return
    found.statements.append(statement)
    for name, value in settings:
        _take(project, file, found, name, value)


def _items(given: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(given, ast.Dict):
        pairs = zip(given.keys, given.values, strict=True)
        return [("**" if key is None else str(literal(key)), value) for key, value in pairs]
    return [("**", given)]


def _take(project: Project, file: File, found: Settings, name: str, value: ast.expr) -> None:
    match name:
        case "include" | "imports":
            names = literal(value)
            if isinstance(names, list | tuple) and all(isinstance(one, str) for one in names):
                found.modules += names
            else:
                file.by_hand(value, f"{name}: the modules are not literals", "app.discover_tasks([...])", TOPIC)
        case "autodiscover_tasks":
            _take_discovery(project, file, found, value)
        case "timezone" if isinstance(zone := literal(value), str):
            found.timezone = zone
        case "task_default_queue" if isinstance(queue := literal(value), str):
            found.default_queue = queue
        case "beat_schedule" if isinstance(value, ast.Dict):
            found.beat.append((value, file))
        case "task_routes":
            _take_routes(file, found, value)
        case "task_queues":
            _take_queues(file, found, value)
        case "enable_utc" if literal(value) is True:
            pass
        case _ if name in _DEFAULTS and is_written(value):
            found.defaults[_DEFAULTS[name]] = value
        case _ if name not in _GONE:
            _leave(file, name, value)


def _leave(file: File, name: str, value: ast.expr) -> None:
    if name == "config_from_object":
        what = f"settings from elsewhere: {file.source.now(value)} was taken out"
        file.by_hand(value, what, "put queues, routes and the beat schedule into AppConfig(...)", TOPIC)
        return
    shown = "**" if name == "**" else f"the setting {name}"
    instead = _BY_HAND.get(name, "there is no such setting here; see the configuration page for what there is")
    if name == "worker_prefetch_multiplier":
        file.differs(value, f"{shown} was taken out", instead, TOPIC)
    else:
        file.by_hand(value, f"{shown} was taken out", instead, TOPIC)


def _take_discovery(project: Project, file: File, found: Settings, call: ast.expr) -> None:
    assert isinstance(call, ast.Call)
    packages = literal(call.args[0]) if call.args else None
    if isinstance(packages, list | tuple) and all(isinstance(one, str) for one in packages):
        found.modules += [f"{package}.tasks" for package in packages]
        return
    if not any(task.home is not file for task in project.tasks):
        file.by_hand(call, "autodiscover_tasks was taken out", 'app.discover_tasks(["shop.tasks", ...])', TOPIC)
    else:
        file.differs(call, "tasks are not searched for", "discover_tasks names the modules that were converted", TOPIC)


def _take_routes(file: File, found: Settings, value: ast.expr) -> None:
    items = _items(value) if isinstance(value, ast.Dict) else None
    for pattern, target in items or []:
        queue = literal(target)
        queue = queue.get("queue") if isinstance(queue, dict) else queue
        if pattern == "**" or not isinstance(queue, str):
            file.by_hand(target, f"the route of {pattern}", "queue_name of each of its tasks", "queues")
        else:
            found.routes.append((pattern, queue))
            found.queues.append(queue)
    if items is None:
        file.by_hand(value, "routes that are not a dict of names", "queue_name of each task", "queues")


def _take_queues(file: File, found: Settings, value: ast.expr) -> None:
    given: list[object] = []
    if isinstance(value, ast.List | ast.Tuple):
        for one in value.elts:
            given.append(literal(one.args[0]) if isinstance(one, ast.Call) and one.args else None)
    elif isinstance(value, ast.Dict):
        given = [literal(key) for key in value.keys]
    names = [name for name in given if isinstance(name, str)]
    if not names or len(names) < len(given):
        file.by_hand(value, "queues that are not literals", "custom_queues=[CustomQueueConfig(name=...)]", "queues")
    found.queues += names


def queues_of(settings: Settings, used: list[str]) -> list[str]:
    """All queues of the app, the default one first; empty if there is only that one and nothing names it."""
    if not settings.queues and not used and settings.default_queue == DEFAULT_QUEUE:
        return []
    return list(dict.fromkeys([settings.default_queue, *settings.queues, *used]))


def app_call(project: Project, file: File, settings: Settings, used_queues: list[str]) -> str:
    """`Horsies(...)` with everything that the settings say."""
    need = file.names.need
    url = f'{file.names.need_module("os")}.environ["DATABASE_URL"]'
    parts = [url]
    queues = queues_of(settings, used_queues)
    for name in queues:
        if problem := queue_name_problem(name):
            file.by_hand(1, f"the queue {name!r}: {problem}", "choose another name", "queues")
    if queues:
        kind = need("horsies", "CustomQueueConfig")
        parts.append(f"queue_mode={need('horsies', 'QueueMode')}.CUSTOM")
        rows = "".join(f'            {kind}(name="{name}"),\n' for name in queues)
        parts.append(f"custom_queues=[\n{rows}        ]")
    if settings.schedules:
        rows = "".join(f"                {one},\n" for one in settings.schedules)
        kind = need("horsies", "ScheduleConfig")
        parts.append(f"schedule={kind}(\n            schedules=[\n{rows}            ]\n        )")
    config, app = need("horsies", "AppConfig"), need("horsies", "Horsies")
    if len(parts) == 1:
        return f"{app}({config}.for_database_url({url}))"
    inner = "".join(f"        {part},\n" for part in parts)
    return f"{app}(\n    {config}.for_database_url(\n{inner}    )\n)"


def modules_of(project: Project, file: File, settings: Settings) -> list[str]:
    """The modules that a worker imports for their tasks."""
    own = file.source.module
    homes = [module for module, other in project.files.items() if other.tasks and module != own]
    return list(dict.fromkeys([*settings.modules, *homes]))


def default_options(settings: Settings, task: OldTask) -> dict[str, ast.expr]:
    """The options of a task, with what the settings say for all."""
    return {**settings.defaults, **task.options}


def seconds_as_ms(file: File, node: ast.expr, topic: str) -> str:
    value = number(node)
    if value is not None:
        return f"{round(value * 1000):_}"
    what = f"{file.source.now(node)} as a number of milliseconds: it must not be None any more"
    file.differs(node, what, "leave timeout_ms out where there is no limit", topic)
    return f"int(1000 * ({file.source.now(node)}))"
