"""What is done with a task of Celery: sends, results, and what a bound task asks about itself."""

from __future__ import annotations

import ast
import keyword

from horsies.core.task_decorator import TaskFunction
from horsies.migrate.celery_canvas import Group, launched, why_left
from horsies.migrate.celery_retries import retry_call
from horsies.migrate.celery_settings import seconds_as_ms
from horsies.migrate.functions import note_queue, report_comments
from horsies.migrate.names import Names
from horsies.migrate.project import File, OldTask, Project, is_none, literal, number
from horsies.migrate.retries import Retries
from horsies.migrate.source import Function

SENDS, RESULTS, BOUND = "sends", "results", "the-task-itself"
CANVAS = "chains-groups-and-chords"
_ASYNC_POSITIONS = ("args", "kwargs", "task_id", "producer", "link", "link_error", "shadow")
_IRRELEVANT = {
    "producer",
    "connection",
    "retry",
    "retry_policy",
    "serializer",
    "compression",
    "ignore_result",
    "shadow",
}
_OF_SELF = {"request.id": "task_id", "request.retries": "attempt - 1", "name": "task_name"}


def send_names(project: Project, file: File, node: ast.Attribute, queues: list[str]) -> bool:
    """Change `task.delay` and `task.apply_async`, called or not. Whether it was something about a task."""
    task = project.task_at(file, node.value)
    if task is None:
        return False
    call = file.source.parent(node)
    is_called = isinstance(call, ast.Call) and call.func is node
    if node.attr == "delay":
        _rename(file, node, "send_or_raise")
    elif node.attr == "apply_async" and isinstance(call, ast.Call) and is_called:
        _apply_async(project, file, call, node, queues)
    elif node.attr in ("apply", "map", "starmap", "chunks", "retry", "request", "subtask", "apply_async", "backend"):
        instead = {
            "apply": "call the task: it runs here and returns a TaskResult",
            "retry": "return an error whose code the policy lists",
        }.get(node.attr, "send_many, a workflow with a map node, or with_options(...)")
        file.by_hand(node, f"{task.function.name}.{node.attr}", instead, SENDS)
    elif not (node.attr in ("s", "si") and is_called) and not hasattr(TaskFunction, node.attr):
        file.by_hand(node, f"{task.function.name}.{node.attr}", "a task here has no such attribute", SENDS)
    return True


def _rename(file: File, node: ast.Attribute, name: str) -> None:
    end = file.source.span(node)[1]
    file.source.replace(end - len(node.attr), end, name)


def _apply_async(project: Project, file: File, call: ast.Call, target: ast.Attribute, queues: list[str]) -> None:
    if (left := left_send(project, file, call)) is not None:
        file.by_hand(*left)
        return
    given = _given(call)
    report_comments(file, call)
    options = _send_options(project, file, given, queues)
    arguments = _arguments(file, given)
    task = file.source.now(target.value)
    chosen = f".with_options({', '.join(options)})" if options else ""
    file.source.replace_node(call, f"{task}{chosen}.send_or_raise({', '.join(arguments)})")


def left_send(project: Project, file: File, call: ast.Call) -> tuple[ast.expr, str, str, str] | None:
    """What is said of an `apply_async` of a task that stays as it is; None if it is changed, or no such send."""
    sends = isinstance(call.func, ast.Attribute) and call.func.attr == "apply_async"
    if not sends or project.task_at(file, getattr(call.func, "value", call.func)) is None:
        return None
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return call, "apply_async with * or **", "task.with_options(...).send_or_raise(...)", SENDS
    given = _given(call)
    for name in ("link", "link_error"):
        if name in given:
            return call, f"apply_async({name}=...)", "a workflow: a node that waits for the other", CANVAS
    args = given.get("args")
    if args is not None and not isinstance(args, ast.Tuple | ast.List) and literal(args) is not None:
        what = f"apply_async(args={file.source.now(args)}), which is no list of arguments"
        return args, what, "task.send_or_raise(...) with each argument", SENDS
    return None


def _given(call: ast.Call) -> dict[str, ast.expr]:
    by_position = dict(zip(_ASYNC_POSITIONS, call.args, strict=False))
    return by_position | {one.arg: one.value for one in call.keywords if one.arg is not None}


def _arguments(file: File, given: dict[str, ast.expr]) -> list[str]:
    """The arguments of the task as one writes them in a call."""
    args, kwargs, now = given.get("args"), given.get("kwargs"), file.source.now
    parts: list[str] = []
    if isinstance(args, ast.Tuple | ast.List):
        parts += [now(one) for one in args.elts]
    elif args is not None and not is_none(args):
        parts.append(f"*{now(args)}")
        _report_none(file, "args", args, "*(... or ())")
    if isinstance(kwargs, ast.Dict):
        for key, value in zip(kwargs.keys, kwargs.values, strict=True):
            name = literal(key)
            if key is None:
                parts.append(f"**{now(value)}")
            elif isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name):
                parts.append(f"{name}={now(value)}")
            else:
                parts.append(f"**{{{now(key)}: {now(value)}}}")
    elif kwargs is not None and not is_none(kwargs):
        parts.append(f"**{now(kwargs)}")
        _report_none(file, "kwargs", kwargs, "**(... or {})")
    return parts


def _report_none(file: File, name: str, value: ast.expr, instead: str) -> None:
    """Celery takes None for no arguments; here it cannot be unpacked."""
    if _may_be_none(value):
        what = f"apply_async({name}=...) is unpacked: {file.source.now(value)} must not be None any more"
        file.differs(value, what, f"{instead}, where it may be None", SENDS)


def _may_be_none(value: ast.expr) -> bool:
    """Whether it takes more than this expression to know that it is not None."""
    match value:
        case ast.Tuple() | ast.List() | ast.Dict() | ast.ListComp() | ast.DictComp() | ast.BinOp():
            return False
        case ast.BoolOp(op=ast.Or(), values=[*_, last]):
            return _may_be_none(last)
        case _:
            return True


def _send_options(project: Project, file: File, given: dict[str, ast.expr], queues: list[str]) -> list[str]:
    now, parts = file.source.now, []
    for name, value in given.items():
        match name:
            case "countdown":
                parts.append(f"delay={now(value)}")
            case "eta":
                parts.append(f"eta={now(value)}")
                file.differs(value, "eta must have a time zone", "datetime.now(UTC) + ...", SENDS)
            case "expires":
                parts.append(f"good_until={_deadline(file, value)}")
            case "queue":
                parts.append(f"queue={now(value)}")
                if isinstance(queue := literal(value), str):
                    note_queue(project, file, value, queue, queues, "queues")
                else:
                    file.by_hand(value, "a queue that is not written here", "list it in custom_queues", "queues")
            case "priority":
                instead = "with_options(priority=...): 1 is first, 100 is last"
                file.by_hand(value, "priority was left out: brokers count it in two directions", instead, SENDS)
            case "task_id":
                instead = "with_options(idempotency_key=...), if it keeps a task from being sent twice"
                file.by_hand(value, "task_id was left out: ids are made here", instead, SENDS)
            case "args" | "kwargs":
                pass
            case _ if name in _IRRELEVANT:
                file.differs(value, f"apply_async({name}=...) was left out", "a send is one committed row", SENDS)
            case _:
                file.by_hand(value, f"apply_async({name}=...) was left out", "there is no such option here", SENDS)
    return parts


def _deadline(file: File, value: ast.expr) -> str:
    seconds = number(value)
    if seconds is None:
        instead = "a datetime with a time zone; seconds: datetime.now(UTC) + timedelta(seconds=...)"
        file.by_hand(value, "expires became good_until, which is a time", instead, SENDS)
        return file.source.now(value)
    need = file.names.need
    moment = f"{need('datetime', 'datetime')}.now({need('datetime', 'UTC')})"
    return f"{moment} + {need('datetime', 'timedelta')}(seconds={file.source.now(value)})"


class Results:
    """Names and expressions of a file that are results of sends, so that what is asked of them can be changed."""

    def __init__(self, project: Project, file: File) -> None:
        self.project, self.file = project, file
        self._names: dict[tuple[ast.AST, str], str | None] = {}  # scope and name: what it always is
        for node in file.source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                parent = file.source.parent(node)
                key = (self._scope(node), node.id)
                value = parent.value if isinstance(parent, ast.Assign) and node in parent.targets else None
                kind = self._kind_of_call(value)
                self._names[key] = kind if self._names.get(key, kind) == kind else None

    def _scope(self, node: ast.AST) -> ast.AST:
        return self.file.source.function_of(node) or self.file.source.tree

    def _kind_of_call(self, node: ast.AST | None) -> str | None:
        """`task`, `workflow` or `group`: what a call gives the caller. None also for a call that stays as it is, so
        that what is asked of its result stays too."""
        if not isinstance(node, ast.Call):
            return None
        sends = isinstance(node.func, ast.Attribute) and node.func.attr in ("delay", "apply_async")
        if sends and self.project.task_at(self.file, getattr(node.func, "value", node.func)) is not None:
            return "task" if left_send(self.project, self.file, node) is None else None
        found = launched(self.project, self.file, node)
        if found is None or why_left(self.project, self.file, node, found) is not None:
            return None
        return "group" if isinstance(found, Group) else "workflow"

    def _kind(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            for scope in self.file.source.above(node):
                if (scope, node.id) in self._names:
                    return self._names[scope, node.id]
                if isinstance(scope, Function | ast.Lambda) and node.id in self.file.names.bound_in(scope):
                    return None
            return None
        return self._kind_of_call(node)

    def report_kept(self, node: ast.Name | ast.Call) -> None:
        """A handle that is passed on: what others ask of it is not seen here."""
        up = self.file.source.parent(node)
        if isinstance(up, ast.Attribute | ast.Expr | ast.Lambda) or self._kind(node) not in ("task", "workflow"):
            return
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            return
        targets = up.targets if isinstance(up, ast.Assign) else []
        if targets and all(isinstance(one, ast.Name) and self._kind(one) is not None for one in targets):
            return
        what = "the handle of a send is passed on, and what is asked of it there was not looked at"
        instead = "handle.result(timeout_ms=...) for get, handle.task_id for id, handle.info() for the state"
        self.file.differs(node, what, instead, RESULTS)

    def change(self, node: ast.Attribute) -> bool:
        """`result.get(timeout=1)`, `result.id` and others; whether it was about a result."""
        by_id = self._by_id(node.value)
        kind = "id" if by_id is not None else self._kind(node.value)
        if kind is None:
            return False
        call, source = self.file.source.parent(node), self.file.source
        called = call if isinstance(call, ast.Call) and call.func is node else None
        if node.attr == "get" and called is not None and not called.args and self._is_plain(called):
            self._get(node, called, kind, by_id)
        elif kind in ("task", "workflow") and node.attr in ("id", "task_id") and called is None:
            _rename(self.file, node, f"{kind}_id")
        elif kind == "task" and node.attr == "revoke" and called is not None and not called.args:
            running = any(one.arg == "terminate" and literal(one.value) is True for one in called.keywords)
            wanted = "include_running=True" if running else ""
            source.replace_node(called, f"{source.now(node.value)}.cancel({wanted})")
        else:
            instead = "handle.info() for the state, handle.get(), handle.cancel(); app.get_task_info(id)"
            self.file.by_hand(node, f".{node.attr} of a result", instead, RESULTS)
        return True

    def _get(self, node: ast.Attribute, called: ast.Call, kind: str, by_id: tuple[str, ast.expr] | None) -> None:
        now = self.file.source.now
        limits = [one.value for one in called.keywords if not is_none(one.value)]
        limit = [f"timeout_ms={seconds_as_ms(self.file, one, RESULTS)}" for one in limits]
        what = "a failed task raises TaskFailed with its error, not the exception of the task"
        instead = "except TaskFailed as failed: failed.error.error_code"
        if kind == "task":
            text = f"{now(node.value)}.result({', '.join(limit)})"
        elif kind == "group":
            text = f"[one.result({', '.join(limit)}) for one in {now(node.value)}]"
            if limit:
                each = "the limit holds for each result of the group, not for all of them together"
                self.file.differs(node, each, "count the time down from one result to the next", RESULTS)
        else:
            what, instead = "a failure is a ValueError of unwrap()", "look at .is_err() and .err_value before unwrap()"
            text = f"{now(node.value)}.get({', '.join(limit)}).unwrap()"
            if by_id is not None:
                text = f"{by_id[0]}.get_result({', '.join([now(by_id[1]), *limit])}).unwrap().unwrap()"
        self.file.source.replace_node(called, text)
        self.file.differs(node, what, instead, RESULTS)

    @staticmethod
    def _is_plain(call: ast.Call) -> bool:
        return all(one.arg == "timeout" for one in call.keywords)

    def _by_id(self, node: ast.AST) -> tuple[str, ast.expr] | None:
        """App and id of `AsyncResult(id)` or `app.AsyncResult(id)`."""
        if not isinstance(node, ast.Call) or len(node.args) != 1:
            return None
        names: Names = self.file.names
        if names.dotted(node.func) in ("celery.result.AsyncResult", "celery.AsyncResult"):
            app = self.project.the_app()
            if app is None:
                return None
            local = app[1] if app[0] == self.file.source.module else names.need(*app)
            return local, node.args[0]
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "AsyncResult":
            return None
        is_ours = self.project.is_app(self.file, node.func.value)
        return (self.file.source.now(node.func.value), node.args[0]) if is_ours else None


class Self:
    """The first parameter of a bound task, and everything that its function asks of it."""

    def __init__(self, project: Project, task: OldTask) -> None:
        self.project, self.task, self.file = project, task, task.home
        spec = task.function.args
        first = [*spec.posonlyargs, *spec.args]
        self.parameter = first[0] if first else None
        inside = [one for one in ast.walk(task.function) if isinstance(one, ast.Name | ast.arg)]
        named = {one.id if isinstance(one, ast.Name) else one.arg for one in inside}
        self.new = "ctx" if "ctx" not in named else self.parameter.arg if self.parameter else "ctx"

    def convert(self, retries: Retries) -> None:
        if self.parameter is None:
            self.file.by_hand(self.task.function, "bind=True without a first parameter", "ctx: TaskContext", BOUND)
            return
        is_async = isinstance(self.task.function, ast.AsyncFunctionDef)
        kind = self.file.names.need("horsies", "AsyncTaskContext" if is_async else "TaskContext")
        self.file.source.replace_node(self.parameter, f"{self.new}: {kind}")
        uses = [
            one for one in ast.walk(self.task.function) if isinstance(one, ast.Name) and one.id == self.parameter.arg
        ]
        for node in uses:
            if isinstance(node.ctx, ast.Store):
                self.file.by_hand(node, f"{node.id} is another thing from here on", "give it a name of its own", BOUND)
        for node in uses:
            if self._is_ours(node):
                if self.file.source.is_placed(node):
                    self._use(node, retries)
                else:
                    self.file.by_hand(node, f"{node.id} inside an f-string", f"{self.new} has its place now", BOUND)

    def _is_ours(self, name: ast.Name) -> bool:
        for scope in self.file.source.above(name):
            if scope is self.task.function:
                return isinstance(name.ctx, ast.Load)
            if isinstance(scope, Function | ast.Lambda) and any(
                one.arg == name.id for one in ast.walk(scope.args) if isinstance(one, ast.arg)
            ):
                return False
        return False

    def _use(self, name: ast.Name, retries: Retries) -> None:
        source, chain, node = self.file.source, [], name
        expression: ast.expr = node
        while isinstance(up := source.parent(expression), ast.Attribute):
            chain.append(up.attr)
            expression = up
            if ".".join(chain) in _OF_SELF:
                new = _OF_SELF[".".join(chain)]
                outer = source.parent(expression)
                needs_brackets = " " in new and isinstance(outer, ast.BinOp | ast.Attribute | ast.UnaryOp)
                text = f"{self.new}.{new}"
                source.replace_node(expression, f"({text})" if needs_brackets else text)
                return
        if chain[:1] == ["retry"]:
            retry_call(self.file, self.task, source.parent(expression), retries)
            source.replace_node(name, self.new)  # unless it is gone with its statement
        elif chain[:1] in (["delay"], ["apply_async"]):
            source.replace_node(name, self.task.function.name)
            if chain == ["delay"] and isinstance(expression, ast.Attribute):
                _rename(self.file, expression, "send_or_raise")
            else:
                self.file.by_hand(name, "apply_async of the task itself", "with_options(...).send_or_raise(...)", BOUND)
        elif chain == ["update_state"] and self._progress(source.parent(expression)):
            pass
        else:
            source.replace_node(name, self.new)
            what = f"{self.parameter.arg if self.parameter else 'self'}.{'.'.join(chain) or '…'}"
            instead = "the context has task_id, task_name, queue, attempt, deadline, logger and progress(...)"
            self.file.by_hand(name, what, instead, BOUND)

    def _progress(self, call: ast.AST | None) -> bool:
        """`self.update_state(state="PROGRESS", meta={"current": i, "total": n})`."""
        if not isinstance(call, ast.Call) or call.args:
            return False
        given = {one.arg: one.value for one in call.keywords}
        meta = given.get("meta")
        if not isinstance(meta, ast.Dict) or set(given) - {"state", "meta"}:
            return False
        parts = {literal(key): value for key, value in zip(meta.keys, meta.values, strict=True)}
        done = parts.get("current", parts.get("done"))
        if done is None or set(parts) - {"current", "done", "total"} or len(parts) > 2:
            return False
        now = self.file.source.now
        total = f", {now(parts['total'])}" if "total" in parts else ""
        wait = "await " if isinstance(self.task.function, ast.AsyncFunctionDef) else ""
        self.file.source.replace_node(call, f"{wait}{self.new}.progress({now(done)}{total})")
        self.file.differs(call, "the state stays RUNNING", "handle.info() and handle.watch() have the progress", BOUND)
        return True
