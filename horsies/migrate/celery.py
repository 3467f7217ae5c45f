"""Celery to horsies: the order in which the parts of a project are looked at and changed."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from horsies.migrate import celery_settings, celery_tasks
from horsies.migrate.celery_calls import Results, Self, left_send, send_names
from horsies.migrate.celery_canvas import HELPER, Canvas, Launch, canvas, launched, signature
from horsies.migrate.functions import note_queue, report_comments, report_rest, report_value, unwrap_direct_call
from horsies.migrate.project import File, OldTask, Project
from horsies.migrate.retries import Retries
from horsies.migrate.source import SourceFile

OLD = "celery"
PAGE = "from-celery"
_SIGNALS = {
    "task_prerun": "@app.before_task, a function of the context",
    "task_postrun": "@app.after_task, a function of the context and the result",
    "task_success": "@app.after_task, if result.is_ok()",
    "task_failure": "@app.on_failure, a function of the context and the error",
    "task_retry": "@app.on_failure: it is called for each attempt that failed",
}
_CANVAS = "chains-groups-and-chords"


def convert(sources: Sequence[SourceFile], app: str | None = None) -> Project:
    """The project with edits and findings in its files."""
    project = Project({source.module: File(source) for source in sources}, app)
    for file in project.files.values():
        _find_apps(file)
    for file in project.files.values():
        celery_tasks.survey(project, file)
    celery_tasks.leave_orphans(project)
    return _Conversion(project).run()


def _find_apps(file: File) -> None:
    """`app = Celery(...)` in a module."""
    for node in file.source.nodes:
        if not isinstance(node, ast.Call) or file.names.dotted(node.func) not in (
            "celery.Celery",
            "celery.app.base.Celery",
        ):
            continue
        up = file.source.parent(node)
        is_module = up is not None and isinstance(file.source.parent(up), ast.Module)
        match up:
            case ast.Assign(targets=[ast.Name(id=name)]) if is_module:
                file.apps[name] = node
            case ast.AnnAssign(target=ast.Name(id=name)) if is_module:
                file.apps[name] = node
            case _:
                instead = "app = Horsies(AppConfig.for_database_url(...)) in a module"
                file.by_hand(node, "a Celery app that is not assigned to a name of a module", instead, "settings")


class _Conversion:
    def __init__(self, project: Project) -> None:
        self.project = project
        self.retries = {task.place: Retries() for task in project.tasks}
        self.queues: list[str] = []
        self.helpers: dict[str, OldTask] = {}
        self.keys: dict[ast.Call, str] = {}
        self.settings = celery_settings.Settings()

    def run(self) -> Project:
        files = self.project.files.values()
        apps = [(file, name) for file in files for name in file.apps]
        for file, name in apps:
            self.settings = celery_settings.read(self.project, file, name)
        if len(apps) > 1:
            for file, name in apps:
                what = f"{name} is one of {len(apps)} apps: each got all queues, and the tasks of shared_task are left"
                file.by_hand(file.apps[name], what, "keep one app, or name it with --app", "settings")
        for task in self.project.tasks:
            if task.is_bound:
                Self(self.project, task).convert(self.retries[task.place])
        for file in files:
            self._change_uses(file)
        self._finish(apps)
        return self.project

    def _change_uses(self, file: File) -> None:
        """From the inside to the outside, so that an outer change takes the inner ones with it."""
        results = Results(self.project, file)
        self._name_workflows(file)
        for node in reversed(file.source.nodes):
            if isinstance(node, ast.Name | ast.Call):
                results.report_kept(node)
            if isinstance(node, ast.Name | ast.Attribute):
                report_value(self.project, file, node)
            if isinstance(node, ast.Attribute) and not results.change(node):
                send_names(self.project, file, node, self.queues)
            elif isinstance(node, ast.Call):
                self._change_call(file, node)
        for starred in file.names.starred:
            if (starred.module or "").partition(".")[0] == OLD:
                file.by_hand(starred, "from celery import *", "import the names, then run this again", "tasks")

    def _change_call(self, file: File, call: ast.Call) -> None:
        what = launched(self.project, file, call)
        if what is not None:
            self._launch(file, call, what)
        elif isinstance(call.func, ast.Attribute) and self.project.is_app(file, call.func.value):
            self._change_app_call(file, call, call.func.attr)
        elif isinstance(call.func, ast.Attribute) and call.func.attr == "connect":
            self._report_signal(file, call.func.value)
        elif file.names.dotted(call.func) == "celery.utils.log.get_task_logger":
            file.source.replace_node(call.func, f"{file.names.need_module('logging')}.getLogger")
        elif self.project.task_at(file, call.func) is not None:
            unwrap_direct_call(self.project, file, call)
        elif self._is_left_canvas(file, call):
            file.by_hand(call, "a signature that is not started here", "task.node(...)(...) in a workflow", _CANVAS)

    def _launch(self, file: File, call: ast.Call, what: Canvas) -> None:
        helper = Launch(self.project, file, call).change(what, self.keys[call])
        if helper is not None:
            self.helpers.setdefault(helper.home.source.module, helper)

    def _name_workflows(self, file: File) -> None:
        """Each workflow is called by the function that starts it; a second one in it has a number."""
        for call in file.source.nodes:
            if not isinstance(call, ast.Call) or launched(self.project, file, call) is None:
                continue
            function = file.source.function_of(call)
            wanted = f"{file.source.module}.{function.name if function is not None else 'workflow'}"
            key, number = wanted, 2
            while key in self.keys.values():
                key, number = f"{wanted}_{number}", number + 1
            self.keys[call] = key

    def _is_left_canvas(self, file: File, call: ast.Call) -> bool:
        """A signature, or a call of `chain` and the others, that nothing around it has used or reported."""
        is_part = signature(self.project, file, call) is not None or canvas(self.project, file, call) is not None
        name = file.names.dotted(call.func) or ""
        if not is_part and name not in ("celery.chain", "celery.group", "celery.chord", "celery.signature"):
            return False
        around = [up for up in file.source.above(call) if isinstance(up, ast.Call | ast.BinOp)]
        for up in around:
            if isinstance(up, ast.Call) and launched(self.project, file, up) is not None:
                return False
            if isinstance(up, ast.Call) and left_send(self.project, file, up) is not None:
                return False
            if isinstance(up, ast.Call) and (file.names.dotted(up.func) or "").startswith("celery."):
                return False
        return True

    def _change_app_call(self, file: File, call: ast.Call, name: str) -> None:
        if name == "send_task":
            file.by_hand(call, "send_task by name", "import the task and task.send_or_raise(...)", "sends")
        elif name in ("add_periodic_task", "register_task", "start", "worker_main", "signature"):
            file.by_hand(call, f"app.{name}(...)", "see the page", "beat" if name == "add_periodic_task" else "tasks")

    def _report_signal(self, file: File, node: ast.expr) -> None:
        module, _, name = (file.names.dotted(node) or "").rpartition(".")
        if module == "celery.signals":
            instead = _SIGNALS.get(name, "@app.on_child_process_start, or a hook of the page about tasks")
            file.by_hand(node, f"the signal {name}", instead, "signals")
        elif self.project.is_app(file, getattr(node, "value", node)) and "on_after" in name:
            file.by_hand(node, f"app.{name}", "TaskSchedule(...) in ScheduleConfig", "beat")

    def _finish(self, apps: list[tuple[File, str]]) -> None:
        files = self.project.files.values()
        for task in self.project.tasks:
            if (queue := self.settings.queue_of(task)) is not None:
                note_queue(self.project, task.home, task.decorator, queue, self.queues, "queues")
        queues = celery_settings.queues_of(self.settings, self.queues)
        for task in self.project.tasks:
            celery_tasks.convert(self.project, task, self.settings, self.retries[task.place], bool(queues))
        for task in self.helpers.values():
            self._write_helper(task, bool(queues))
        for file, name in apps:
            self._write_app(file, name)
        for file in files:
            for node in file.source.nodes:
                if isinstance(node, ast.ClassDef):
                    self._report_class(file, node)
            report_rest(self.project, file, OLD)

    def _write_helper(self, task: OldTask, has_queues: bool) -> None:
        """The task that gives a map node its list."""
        source, names = task.home.source, task.home.names
        app = celery_tasks.app_of(self.project, task)
        queue = f'(queue_name="{self.settings.default_queue}")' if has_queues else ""
        any_type = names.need("typing", "Any")
        text = (
            f"\n\n\n@{app}.task{queue}\ndef {HELPER}(elements: list[{any_type}]) -> list[{any_type}]:\n"
            '    """The list that the map node of a workflow goes over."""\n    return elements'
        )
        end = source.span(task.function)[1]
        source.replace(end, end, text)

    def _write_app(self, file: File, name: str) -> None:
        call = file.apps[name]
        for statement in self.settings.statements:
            if statement in file.source.tree.body:
                report_comments(file, statement)
                file.source.remove(statement)
        report_comments(file, file.source.statement_of(call))
        text = celery_settings.app_call(self.project, file, self.settings, self.queues)
        modules = celery_settings.modules_of(self.project, file, self.settings)
        if modules:
            text += f"\n{name}.discover_tasks([{', '.join(f'{one!r}' for one in modules)}])".replace("'", '"')
        file.source.replace_node(call, text)
        what = "broker and result backend are one PostgreSQL"
        file.differs(call, what, "set DATABASE_URL, and run horsies init-db or a worker", "settings")

    def _report_class(self, file: File, node: ast.ClassDef) -> None:
        for base in node.bases:
            if file.names.dotted(base) in ("celery.Task", "celery.app.task.Task"):
                instead = "a function; what is around it: @app.before_task, @app.on_failure, @app.around_task"
                file.by_hand(node, f"the task class {node.name}", instead, "tasks")
