"""The decorators of Celery's tasks and the functions under them."""

from __future__ import annotations

import ast

from horsies.migrate import returns
from horsies.migrate.celery_retries import read_retries
from horsies.migrate.celery_settings import Settings, default_options, seconds_as_ms
from horsies.migrate.functions import arguments, report_comments, retry_options, write_return_type
from horsies.migrate.project import File, OldTask, Project, is_none, is_written, literal, options_of
from horsies.migrate.retries import Retries
from horsies.migrate.source import Function

TASKS, LIMITS = "tasks", "time-limits"
_SHARED = {"celery.shared_task", "celery.app.shared_task", "celery.current_app.task"}
# Options that change nothing here.
_GONE = {"track_started", "store_errors_even_if_ignored", "send_events", "trail", "pydantic", "throws"}
_RETRY = {
    "autoretry_for", "max_retries", "retry_backoff", "retry_backoff_max", "retry_jitter", "default_retry_delay",
    "retry_kwargs", "acks_late",
}  # fmt: skip
# Options whose value must be seen to be changed. A time limit may be any expression, and so may a name.
_LITERAL = (_RETRY - {"autoretry_for", "retry_kwargs"}) | {"bind", "queue"}
_BY_HAND = {
    "base": "write what the class does as hooks: @app.before_task, @app.after_task, @app.on_failure, @app.around_task",
    "rate_limit": "max_concurrency of its queue limits how many run at once; there is no rate limit",
    "priority": "with_options(priority=...) of a send; 1 is first",
    "expires": "with_options(good_until=...) of a send",
    "dont_autoretry_for": "map these exceptions to a code that the policy does not list",
    "on_failure": "@app.on_failure",
}


def kind_of(project: Project, file: File, decorator: ast.expr) -> str | None:
    """`shared` or `app` for a decorator that makes a task of Celery."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    if file.names.dotted(target) in _SHARED:
        return "shared"
    if isinstance(target, ast.Attribute) and target.attr == "task" and project.is_app(file, target.value):
        return "app"
    return None


def survey(project: Project, file: File) -> None:
    """Note the tasks of a file, and say which of them are of a kind that cannot be changed."""
    for node in file.source.nodes:
        if not isinstance(node, Function | ast.ClassDef):
            continue
        for place, decorator in enumerate(node.decorator_list):
            if kind_of(project, file, decorator) is not None:
                _note(file, node, decorator, place)


def _note(file: File, node: Function | ast.ClassDef, decorator: ast.expr, place: int) -> None:
    options = options_of(decorator)
    if isinstance(node, ast.ClassDef) or isinstance(file.source.parent(node), ast.ClassDef):
        file.by_hand(node, f"{node.name} is a class or a method", "a task is a plain function", TASKS)
    elif place != len(node.decorator_list) - 1:
        instead = "call the other decorator's function inside the task, or use @app.around_task"
        file.by_hand(node, f"another decorator is between {node.name} and its task decorator", instead, TASKS)
    elif options is None or (isinstance(decorator, ast.Call) and decorator.args):
        file.by_hand(decorator, f"the options of {node.name} are not written here", '@app.task("name", ...)', TASKS)
    elif returns.is_generator(node):
        file.by_hand(node, f"{node.name} is a generator", "return a list", TASKS)
    elif file.source.function_of(node) is not None:
        file.by_hand(node, f"{node.name} is defined inside a function", "define the task in its module", TASKS)
    else:
        is_bound = literal(options.get("bind")) is True
        file.tasks[node.name] = OldTask(file, node, decorator, options, is_bound)


def convert(project: Project, task: OldTask, settings: Settings, retries: Retries, has_queues: bool) -> None:
    """Write the decorator and the signature anew."""
    file, decorator = task.home, task.decorator
    app = app_of(project, task)
    options = default_options(settings, task)
    parts = [file.source.now(options["name"])] if "name" in options else []
    if has_queues:
        parts.append(f'queue_name="{settings.queue_of(task) or settings.default_queue}"')
    read_retries(file, task, options, retries)
    parts += retry_options(task, retries)
    parts += _limit(file, task, options)
    _report_rest(file, task, options)
    report_comments(file, decorator)
    start, end = file.source.span(decorator)
    file.source.replace(start, end, f"{app}.task{arguments(parts, file.source.indent_of(task.function))}")
    write_return_type(file, task.function)


def leave_orphans(project: Project) -> None:
    """Shared tasks whose app is not known stay as they are, and so does everything that is done with them."""
    if project.the_app() is not None:
        return
    for file in project.files.values():
        for task in list(file.tasks.values()):
            if kind_of(project, file, task.decorator) == "shared":
                instead = "name the file with Celery(...) as well, or the app with --app shop.app:app"
                file.by_hand(task.decorator, f"the app of {task.function.name} is not known", instead, TASKS)
                del file.tasks[task.function.name]


def app_of(project: Project, task: OldTask) -> str:
    """How the app is called in the file of a task; it is imported if it is not there."""
    file, decorator = task.home, task.decorator
    if kind_of(project, file, decorator) == "app":
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        assert isinstance(target, ast.Attribute)
        return file.source.now(target.value)
    found = project.the_app()
    assert found is not None, "leave_orphans has left the tasks without an app"
    module, name = found
    home, own = project.files.get(module), file.source.module
    if home is not None and any(f"{origin}.".startswith(f"{own}.") for origin in home.names.imported.values()):
        what = f"{module} imports {own}, which imports the app from it now"
        file.by_hand(decorator, what, "take that import out: discover_tasks names the module", TASKS)
    return name if module == file.source.module else file.names.need(module, name)


def _limit(file: File, task: OldTask, options: dict[str, ast.expr]) -> list[str]:
    hard, soft = options.get("time_limit"), options.get("soft_time_limit")
    limits = [one for one in (hard, soft) if one is not None and not is_none(one)]
    if soft is not None:
        what = "soft_time_limit: nothing is raised in the task before its end"
        file.differs(soft, what, "ctx.deadline tells when timeout_ms is over", LIMITS)
    return [f"timeout_ms={seconds_as_ms(file, one, LIMITS)}" for one in limits[:1]]


def _report_rest(file: File, task: OldTask, options: dict[str, ast.expr]) -> None:
    known = {"name", "bind", "queue", "time_limit", "soft_time_limit", *_RETRY, *_GONE}
    for option, value in options.items():
        if option == "ignore_result":
            what = f"the result of {task.function.name} is kept, as all results are"
            file.differs(value, what, "terminal_record_retention_hours says how long", "results")
        elif option == "typing":
            if literal(value) is not True:
                what = f"typing=False of {task.function.name}: arguments are checked against the signature"
                file.differs(value, what, "a send that does not fit is refused", TASKS)
        elif option in _LITERAL and not is_written(value):
            file.by_hand(value, f"{option}=... of {task.function.name} is no literal", "write what it says", TASKS)
        elif option == "serializer" and literal(value) == "json":
            continue
        elif option == "serializer":
            file.by_hand(value, "values are JSON, by the annotations", "annotate the parameters", TASKS)
        elif option not in known:
            instead = _BY_HAND.get(option, "there is no such option here")
            file.by_hand(value, f"{option}=... of {task.function.name} was left out", instead, TASKS)
