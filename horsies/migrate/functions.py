"""What every conversion does with the function of a task: its decorator, its return type, and direct calls of it."""

from __future__ import annotations

import ast

from horsies.core.app import Horsies
from horsies.migrate import returns
from horsies.migrate.findings import FindingKind
from horsies.migrate.project import File, OldTask, Project
from horsies.migrate.retries import Retries
from horsies.migrate.source import Function


def arguments(parts: list[str], indent: str) -> str:
    """The arguments, in one line if there are few."""
    line = f"({', '.join(parts)})" if parts else ""
    if len(line) <= 90:
        return line
    return "(\n" + "".join(f"{indent}    {part},\n" for part in parts) + f"{indent})"


def retry_options(task: OldTask, retries: Retries) -> list[str]:
    """The options of the decorator that say what is retried, and when."""
    if retries.is_none:
        return []
    file, mapper = task.home, retries.mapper()
    if unkept := retries.unkept():
        what = f"a retry of {task.function.name} waits whole seconds, from 1 to 86400: the delay was {unkept[0]:g}"
        file.differs(task.decorator, what, "look at the delays of its retry_policy", "a-task-that-is-retried")
    parts = [] if mapper is None else [f"exception_mapper={mapper}"]
    return [*parts, f"retry_policy={retries.policy(file.names.need('horsies', 'RetryPolicy'))}"]


def note_queue(project: Project, file: File, node: ast.AST, queue: str, queues: list[str], topic: str) -> None:
    """Note a queue that a task or a send names. An app that is in none of the files cannot be told about it."""
    queues.append(queue)
    if not project.has_app:
        what = f"the queue {queue!r} belongs to the app, which is in none of these files"
        file.by_hand(node, what, 'list it in custom_queues of the app, beside "default"', topic)


def write_return_type(file: File, function: Function) -> None:
    if function.returns is not None:
        return
    found = returns.return_type(function, file.names.bound)
    if found is None:
        found = "Any"
        what = f"the return type of {function.name} is not written, so it is Any"
        file.differs(function, what, "write the type: the result is checked and decoded by it", "return-types")
    if "Any" in found:
        found = found.replace("Any", file.names.need("typing", "Any"))
    end = file.source.end_of_signature(function)
    file.source.replace(end, end, f" -> {found}")


def unwrap_direct_call(project: Project, file: File, call: ast.Call) -> None:
    """`task(1)` runs the function here and there, but returns a `TaskResult` here."""
    task = project.task_at(file, call.func)
    if task is None:
        return
    text, up = file.source.now(call), file.source.parent(call)
    if isinstance(task.function, ast.FunctionDef):
        file.source.replace_node(call, f"{text}.unwrap()")
    elif isinstance(up, ast.Await):
        file.source.replace_node(up, f"(await {text}).unwrap()")
    else:
        file.by_hand(
            call, f"{task.function.name}(...) gives a TaskResult when it is awaited", "unwrap() it", "direct-calls"
        )
        return
    what = f"{task.function.name}(...) is called as a function: an exception in it is a ValueError of unwrap()"
    file.differs(call, what, "move the code into a function of its own, and call that", "direct-calls")


def report_value(project: Project, file: File, node: ast.Name | ast.Attribute) -> None:
    """A task that is neither called nor asked for something: nobody knows what is done with it elsewhere."""
    up = file.source.parent(node)
    is_asked = isinstance(up, ast.Attribute) or (isinstance(up, ast.Call) and up.func is node)
    if not is_asked and isinstance(node.ctx, ast.Load) and (task := project.task_at(file, node)) is not None:
        what = f"the task {task.function.name} is used as a value"
        file.by_hand(node, what, "look where it is called or sent: unwrap(), send_or_raise(...)", "sends")


def report_comments(file: File, node: ast.stmt | ast.expr) -> None:
    """What is written anew as a whole has no place for the comments inside."""
    if file.source.has_comment(node):
        file.differs(node, "comments inside are gone", "write them again, if they still hold", "convert")


def report_rest(project: Project, file: File, old: str) -> None:
    """Names of the old library, and of the old app, that are still used somewhere, unless something says it already."""
    known = {*file.tasks, *file.apps, *file.names.imported} if file.tasks or file.apps or file.source.edits else set()
    report_unplaced(file, known)
    for node in file.source.nodes:
        if _is_conditional_import(file, node, old):
            file.by_hand(
                node, f"{old} is imported inside a block", "take the import out when nothing uses it", "convert"
            )
        if not isinstance(node, ast.Attribute | ast.Name) or (what := _old_name(project, file, node, old)) is None:
            continue
        start, end = file.source.span(node)
        if any(edit.covers(start, end) or (edit.start, edit.end) == (start, end) for edit in file.source.edits):
            continue
        told = {finding.line for finding in file.findings if finding.kind is FindingKind.BY_HAND}
        statement = file.source.statement_of(node)  # the lines of one with others inside tell nothing about this name
        first = node.lineno if hasattr(statement, "body") else statement.lineno
        if not told & set(range(first, (node.end_lineno or node.lineno) + 1)):
            file.by_hand(node, f"{what} is still used", "see the page for what takes its place", "words")


def report_unplaced(file: File, names: set[str]) -> None:
    """Names of tasks, apps and contexts inside of f-strings whose place this Python does not tell."""
    for node in file.names.unplaced:
        if node.id in names:
            file.by_hand(
                node, f"{node.id} inside an f-string", "take it out of the f-string, or use Python 3.12", "convert"
            )


def _is_conditional_import(file: File, node: ast.AST, old: str) -> bool:
    """In a `try`, an `if` or a function: what is around it may mean something, so it is left."""
    if not isinstance(node, ast.Import | ast.ImportFrom) or isinstance(file.source.parent(node), ast.Module):
        return False
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
    return any(name.partition(".")[0] == old for name in names) and not getattr(node, "level", 0)


def _old_name(project: Project, file: File, node: ast.Attribute | ast.Name, old: str) -> str | None:
    if isinstance(node, ast.Attribute) and not hasattr(Horsies, node.attr) and project.is_app(file, node.value):
        return f"{file.source.now(node.value)}.{node.attr}"
    dotted = file.names.dotted(node)
    is_whole = not isinstance(file.source.parent(node), ast.Attribute)
    return dotted if is_whole and dotted is not None and dotted.partition(".")[0] == old else None
