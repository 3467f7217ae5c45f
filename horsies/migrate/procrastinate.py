"""Procrastinate to horsies: the app, its tasks, what is deferred, and what is periodic."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from horsies.core.models.queues import DEFAULT_QUEUE
from horsies.migrate import procrastinate_sends, returns
from horsies.migrate.celery_settings import Settings, app_call, modules_of
from horsies.migrate.functions import (
    arguments,
    note_queue,
    report_comments,
    report_rest,
    report_value,
    retry_options,
    unwrap_direct_call,
    write_return_type,
)
from horsies.migrate.procrastinate_periodic import Periodic, schedules_of
from horsies.migrate.project import File, OldTask, Project, literal, number, options_of
from horsies.migrate.retries import MOST_RETRIES, Retries
from horsies.migrate.source import Function, SourceFile

OLD = "procrastinate"
PAGE = "from-procrastinate"
TASKS, RETRIES, CONTEXT, LOCKS = "tasks", "a-task-that-is-retried", "the-context", "locks"
_CONTEXT = {
    "job.id": "task_id",
    "job.attempts": "attempt - 1",
    "job.queue": "queue",
    "job.task_name": "task_name",
    "task.name": "task_name",
}
_BY_HAND = {
    "lock": "a queue with max_concurrency=1, if everything with this lock can have one",
    "queueing_lock": "with_options(idempotency_key=...) at the send, if it may say 'this once'",
    "priority": "with_options(priority=...) of a send; 1 is first here",
    "aliases": "accepts=... for older arguments; another name is another task",
}


def convert(sources: Sequence[SourceFile], app: str | None = None) -> Project:
    """The project with edits and findings in its files."""
    project = Project({source.module: File(source) for source in sources}, app)
    for file in project.files.values():
        _find_apps(file)
    periodic: list[Periodic] = []
    for file in project.files.values():
        _find_tasks(project, file, periodic)
    _Conversion(project, periodic).run()
    return project


def _find_apps(file: File) -> None:
    for node in file.source.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = file.names.dotted(node.func)
        up = file.source.parent(node)
        is_module = up is not None and isinstance(file.source.parent(up), ast.Module)
        match up:
            case ast.Assign(targets=[ast.Name(id=local)]) if is_module and name in _APPS:
                file.apps[local] = node
            case _ if name in _APPS:
                instead = "app = Horsies(AppConfig.for_database_url(...)) in a module"
                file.by_hand(node, "an app that is not assigned to a name of a module", instead, "the-app")
            case _ if name in ("procrastinate.Blueprint", "procrastinate.blueprints.Blueprint"):
                file.by_hand(node, "a blueprint", "import the app and use @app.task", "the-app")


_APPS = ("procrastinate.App", "procrastinate.app.App")


def _find_tasks(project: Project, file: File, periodic: list[Periodic]) -> None:
    for node in file.source.nodes:
        if not isinstance(node, Function) or not node.decorator_list:
            continue
        kinds = [_kind(project, file, one) for one in node.decorator_list]
        if "task" not in kinds:
            continue
        decorator = node.decorator_list[kinds.index("task")]
        options = options_of(decorator)
        if kinds[-1] != "task" or isinstance(file.source.parent(node), ast.ClassDef):
            file.by_hand(node, f"{node.name} is a method, or has another decorator below", "a plain function", TASKS)
        elif options is None or (isinstance(decorator, ast.Call) and decorator.args) or returns.is_generator(node):
            file.by_hand(node, f"the options of {node.name} are not written here", '@app.task("name", ...)', TASKS)
        elif file.source.function_of(node) is not None:
            file.by_hand(node, f"{node.name} is defined inside a function", "define the task in its module", TASKS)
        else:
            is_bound = literal(options.get("pass_context")) is True
            task = file.tasks[node.name] = OldTask(file, node, decorator, options, is_bound)
            for one, kind in zip(node.decorator_list, kinds, strict=True):
                if kind == "periodic":
                    periodic.append(Periodic(task, one))


def _kind(project: Project, file: File, decorator: ast.expr) -> str | None:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(target, ast.Attribute) and target.attr in ("task", "periodic"):
        return target.attr if project.is_app(file, target.value) else None
    return None


class _Conversion:
    def __init__(self, project: Project, periodic: list[Periodic]) -> None:
        self.project, self.periodic = project, periodic
        self.settings = Settings()
        self.queues: list[str] = []

    def run(self) -> None:
        for task in self.project.tasks:
            if task.is_bound:
                _convert_context(task)
        for file in self.project.files.values():
            for node in reversed(file.source.nodes):
                if isinstance(node, ast.Call):
                    self._change_call(file, node)
                elif isinstance(node, ast.Name | ast.Attribute):
                    report_value(self.project, file, node)
                    procrastinate_sends.report_method(self.project, file, node)
        apps = [(file, name) for file in self.project.files.values() for name in file.apps]
        if apps:
            self.settings.schedules = schedules_of(apps[0][0], self.periodic, self.queues)
        for task in self.project.tasks:
            if isinstance(queue := literal(task.options.get("queue")), str):
                note_queue(self.project, task.home, task.decorator, queue, self.queues, "the-app")
        for task in self.project.tasks:
            self._convert_task(task)
        for one in self.periodic:
            one.remove_decorator(self.project)
        for file, name in apps:
            self._write_app(file, name)
        for file in self.project.files.values():
            report_rest(self.project, file, OLD)

    def _change_call(self, file: File, call: ast.Call) -> None:
        if isinstance(call.func, ast.Attribute) and self.project.is_app(file, call.func.value):
            procrastinate_sends.change_app_call(file, call, call.func.attr)
        elif not procrastinate_sends.change(self.project, file, call, self.queues):
            unwrap_direct_call(self.project, file, call)

    def _convert_task(self, task: OldTask) -> None:
        file, options = task.home, task.options
        parts = [file.source.now(options["name"])] if "name" in options else []
        if self.queues:
            queue = literal(options.get("queue"))
            parts.append(f'queue_name="{queue if isinstance(queue, str) else DEFAULT_QUEUE}"')
        retries = _retries(file, task)
        if retries is not None:
            parts += retry_options(task, retries)
        for option, value in options.items():
            if option in _BY_HAND:
                topic = LOCKS if "lock" in option else TASKS
                file.by_hand(value, f"{option}=... of {task.function.name} was left out", _BY_HAND[option], topic)
            elif option not in ("name", "queue", "retry", "pass_context"):
                file.by_hand(value, f"{option}=... of {task.function.name} was left out", "no such option here", TASKS)
        report_comments(file, task.decorator)
        target = task.decorator.func if isinstance(task.decorator, ast.Call) else task.decorator
        text = f"{file.source.now(target)}{arguments(parts, file.source.indent_of(task.function))}"
        file.source.replace_node(task.decorator, text)
        write_return_type(file, task.function)

    def _write_app(self, file: File, name: str) -> None:
        call = file.apps[name]
        for one in call.keywords:
            modules = literal(one.value)
            if one.arg == "import_paths" and isinstance(modules, list | tuple):
                self.settings.modules += [str(module) for module in modules]
            elif one.arg not in ("connector", "import_paths"):
                file.by_hand(one.value, f"App({one.arg}=...) was left out", "see the configuration page", "the-app")
        report_comments(file, call)
        text = app_call(self.project, file, self.settings, self.queues)
        modules = modules_of(self.project, file, self.settings)
        if modules:
            text += f"\n{name}.discover_tasks([{', '.join(f'{one!r}' for one in modules)}])".replace("'", '"')
        file.source.replace_node(call, text)
        file.differs(call, "the connector is a URL now", "set DATABASE_URL; the tables are horsies_*", "the-app")


def _retries(file: File, task: OldTask) -> Retries | None:
    """`retry=3`, `retry=True` or `retry=RetryStrategy(...)`."""
    node = task.options.get("retry")
    if node is None or literal(node) is False:
        return None
    count = number(node)
    if count is not None:
        return Retries(["Exception"], int(count), 0)  # at once
    strategy = {"max_attempts": None} if literal(node) is True else _strategy(file, node)
    if strategy is None:
        instead = "RetryPolicy.fixed([...], auto_retry_for=[...])"
        file.by_hand(node, f"the retries of {task.function.name} are not written as literals", instead, RETRIES)
        return None
    most = number(strategy.get("max_attempts"))
    if most is None or most > MOST_RETRIES:
        file.differs(node, f"there are at most {MOST_RETRIES} retries", "rerun what failed", RETRIES)
    count = MOST_RETRIES if most is None else min(int(most), MOST_RETRIES)
    wait, linear, factor = (number(strategy.get(name)) or 0 for name in ("wait", "linear_wait", "exponential_wait"))
    delays = [wait + linear * i + (factor ** (i + 1) if factor else 0) for i in range(count)]
    given = strategy.get("retry_exceptions")
    classes = list(given.elts) if isinstance(given, ast.Set | ast.List | ast.Tuple) else []
    if given is not None and not classes:
        file.by_hand(given, "retry_exceptions are not written here", "exception_mapper={...: code}", RETRIES)
    names = [file.source.now(one) for one in classes] or ["Exception"]
    return Retries(names, count, delays=[float(delay) for delay in delays])


def _strategy(file: File, node: ast.expr) -> dict[str, ast.expr | None] | None:
    known = {"max_attempts", "wait", "linear_wait", "exponential_wait", "retry_exceptions"}
    if not isinstance(node, ast.Call) or file.names.dotted(node.func) not in _STRATEGIES or node.args:
        return None
    given: dict[str, ast.expr | None] = {str(one.arg): one.value for one in node.keywords}
    numbers = [given[name] for name in given if name != "retry_exceptions"]
    return given if set(given) <= known and all(number(one) is not None for one in numbers) else None


_STRATEGIES = ("procrastinate.RetryStrategy", "procrastinate.retry.RetryStrategy")


def _convert_context(task: OldTask) -> None:
    """The first parameter of a task with `pass_context=True`."""
    file, spec = task.home, task.function.args
    first = next(iter((*spec.posonlyargs, *spec.args)), None)
    if first is None:
        file.by_hand(task.function, "pass_context without a first parameter", "ctx: TaskContext", CONTEXT)
        return
    is_async = isinstance(task.function, ast.AsyncFunctionDef)
    kind = file.names.need("horsies", "AsyncTaskContext" if is_async else "TaskContext")
    file.source.replace_node(first, f"{first.arg}: {kind}")
    for node in ast.walk(task.function):
        if isinstance(node, ast.Name) and node.id == first.arg and not _is_hidden(file, task, node):
            _convert_use(file, node)


def _is_hidden(file: File, task: OldTask, name: ast.Name) -> bool:
    """Has a function inside the task a parameter or variable of this name?"""
    for scope in file.source.above(name):
        if scope is task.function:
            return False
        if isinstance(scope, Function | ast.Lambda) and name.id in file.names.bound_in(scope):
            return True
    return False


def _convert_use(file: File, name: ast.Name) -> None:
    if not file.source.is_placed(name):
        file.by_hand(name, f"{name.id} inside an f-string", "the context has other names now", CONTEXT)
        return
    chain: list[str] = []
    expression: ast.expr = name
    while isinstance(up := file.source.parent(expression), ast.Attribute):
        chain.append(up.attr)
        expression = up
        if (new := _CONTEXT.get(".".join(chain))) is not None:
            text = f"{name.id}.{new}"
            outer = file.source.parent(expression)
            needs_brackets = " " in new and isinstance(outer, ast.BinOp | ast.Attribute | ast.UnaryOp)
            file.source.replace_node(expression, f"({text})" if needs_brackets else text)
            return
    call = file.source.parent(expression)
    if chain == ["should_abort"] and isinstance(call, ast.Call):
        file.source.replace_node(call, f"{name.id}.is_stopping")
        return
    instead = "the context has task_id, task_name, queue, attempt, deadline, is_stopping, logger and progress(...)"
    file.by_hand(name, f"{name.id}.{'.'.join(chain) or '…'}", instead, CONTEXT)
