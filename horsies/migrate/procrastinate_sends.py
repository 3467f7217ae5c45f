"""What is deferred in Procrastinate is sent here."""

from __future__ import annotations

import ast

from horsies.migrate.functions import note_queue
from horsies.migrate.project import File, Project, literal

TOPIC, LOCKS = "sends", "locks"
_METHODS = {"defer": "send_or_raise", "defer_async": "send_or_raise_async"}
_MANY = {"batch_defer": "send_many", "batch_defer_async": "send_many_async"}
_BY_HAND = {
    "lock": ("a queue with max_concurrency=1, if everything with this lock can have one", LOCKS),
    "queueing_lock": ("with_options(idempotency_key=..., reuse_after_failure=True), if that is what you mean", LOCKS),
    "priority": ("with_options(priority=...): 1 is first here, the highest is first there", TOPIC),
}


def change(project: Project, file: File, call: ast.Call, queues: list[str]) -> bool:
    """Change a call that defers a known task; whether it is one."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, method = call.func.value, call.func.attr
    task = project.task_at(file, owner)
    options: list[str] = []
    if task is None and isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
        if owner.func.attr != "configure" or project.task_at(file, owner.func.value) is None:
            return False
        if (found := _options(project, file, owner, queues)) is None:
            return True
        options, owner = found, owner.func.value
    elif task is None:
        return False
    chosen = f".with_options({', '.join(options)})" if options else ""
    target = f"{file.source.now(owner)}{chosen}"
    if method in _METHODS:
        given = ", ".join([*map(file.source.now, call.args), *map(file.source.now, call.keywords)])
        file.source.replace_node(call, f"{target}.{_METHODS[method]}({given})")
        _say_what_it_gives(file, call)
    elif method in _MANY:
        _send_many(file, call, target, _MANY[method])
    elif method != "configure":
        file.by_hand(call, f".{method} of a task", "send_or_raise, send_many or with_options(...)", TOPIC)
    elif not isinstance(file.source.parent(call), ast.Attribute):
        file.by_hand(call, "configure(...) that is kept for later", "task.with_options(...)", TOPIC)
    return True


def report_method(project: Project, file: File, node: ast.Name | ast.Attribute) -> None:
    """`task.defer` that is not called here."""
    up = file.source.parent(node)
    is_called = isinstance(up, ast.Call) and up.func is node
    if isinstance(node, ast.Attribute) and not is_called and project.task_at(file, node.value) is not None:
        file.by_hand(
            node, f".{node.attr} of a task, as a value", "send_or_raise, send_many or with_options(...)", TOPIC
        )


def _say_what_it_gives(file: File, call: ast.Call) -> None:
    up = file.source.parent(call)
    up = file.source.parent(up) if isinstance(up, ast.Await) else up
    if not isinstance(up, ast.Expr):
        file.differs(call, "a send gives a handle, not the number of a job", "handle.task_id, a text", TOPIC)


def _send_many(file: File, call: ast.Call, target: str, method: str) -> None:
    now, up = file.source.now, file.source.parent(call)
    if call.keywords:
        file.by_hand(call, "batch_defer with keywords", "task.send_many([...])", TOPIC)
        return
    calls = ", ".join(now(one) for one in call.args)
    if method == "send_many":
        file.source.replace_node(call, f"{target}.send_many([{calls}]).unwrap()")
    elif isinstance(up, ast.Await):
        file.source.replace_node(up, f"(await {target}.send_many_async([{calls}])).unwrap()")
    else:
        file.by_hand(call, "batch_defer_async that is not awaited here", "task.send_many_async([...])", TOPIC)
        return
    file.differs(call, "send_many gives handles, not numbers of jobs", "handle.task_id, a text", TOPIC)


def _options(project: Project, file: File, configure: ast.Call, queues: list[str]) -> list[str] | None:
    if configure.args or any(one.arg is None for one in configure.keywords):
        file.by_hand(configure, "configure(**...)", "task.with_options(...)", TOPIC)
        return None
    parts, now = [], file.source.now
    for one in configure.keywords:
        match one.arg:
            case "queue":
                parts.append(f"queue={now(one.value)}")
                if isinstance(queue := literal(one.value), str):
                    note_queue(project, file, one.value, queue, queues, TOPIC)
                else:
                    file.by_hand(one.value, "a queue that is not written here", "list it in custom_queues", TOPIC)
            case "schedule_in":
                parts.append(f"delay={_delay(file, one.value)}")
            case "schedule_at":
                parts.append(f"eta={now(one.value)}")
            case name if name in _BY_HAND:
                instead, topic = _BY_HAND[name]
                file.by_hand(one.value, f"configure({name}=...) was left out", instead, topic)
            case name:
                file.by_hand(one.value, f"configure({name}=...) was left out", "there is no such option", TOPIC)
    return parts


def _delay(file: File, value: ast.expr) -> str:
    """`{"seconds": 30}` are the keywords of a timedelta."""
    kind = file.names.need("datetime", "timedelta")
    if isinstance(value, ast.Dict) and all(isinstance(literal(key), str) for key in value.keys):
        pairs = zip(value.keys, value.values, strict=True)
        return f"{kind}({', '.join(f'{literal(key)}={file.source.now(one)}' for key, one in pairs)})"
    return f"{kind}(**{file.source.now(value)})"


def change_app_call(file: File, call: ast.Call, method: str) -> None:
    """Calls of the app itself: nothing needs to be opened or closed here."""
    source, up = file.source, file.source.parent(call)
    statement = source.parent(up) if isinstance(up, ast.Await) else up
    if method in ("open", "open_async", "close", "close_async"):
        if isinstance(statement, ast.Expr):
            source.remove(statement)
            return
        if isinstance(up, ast.withitem) and up.optional_vars is None:
            source.replace_node(call, f"{file.names.need('contextlib', 'nullcontext')}()")
            return
        file.by_hand(call, f"app.{method}(...)", "nothing: connections are opened at their first use", "the-app")
    elif method in ("run_worker", "run_worker_async"):
        file.by_hand(call, f"app.{method}(...)", "the command horsies worker, or Worker(app).run()", "workers")
    elif method not in ("task", "periodic"):
        file.by_hand(call, f"app.{method}(...)", "see the page for what takes its place", "the-app")
