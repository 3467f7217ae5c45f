"""What Celery says about retries, in the options of a task and in calls of `self.retry`."""

from __future__ import annotations

import ast
import builtins

from horsies.migrate.project import File, OldTask, literal, number
from horsies.migrate.retries import DEFAULT_RETRIES, MOST_RETRIES, Retries
from horsies.migrate.source import Function

RETRIES = "a-task-that-is-retried"
_CODE = "return TaskResult(err=TaskError(error_code=...)) with a code that the policy lists"


def read_retries(file: File, task: OldTask, options: dict[str, ast.expr], retries: Retries) -> None:
    """What the options say about retries, in addition to what the calls of `self.retry` have said."""
    more = options.get("retry_kwargs")
    given = {str(key): value for key, value in (literal(more) or {}).items()} if isinstance(more, ast.Dict) else {}  # type: ignore[attr-defined]
    if more is not None and not given:
        file.by_hand(more, "retry_kwargs are no literals", "RetryPolicy.fixed([...], auto_retry_for=[...])", RETRIES)
    for name in sorted(set(given) - {"max_retries", "countdown"}):
        file.by_hand(task.decorator, f"{name} of retry_kwargs was left out", "a policy has no such option", RETRIES)
    for one in _classes(file, options.get("autoretry_for")):
        _add_class(file, task, one, retries)
    is_retried = bool(retries.classes)
    if retries.max_retries is None:
        retries.max_retries = _most(options, given)
    if is_retried and retries.max_retries > MOST_RETRIES:
        file.differs(task.decorator, f"there are at most {MOST_RETRIES} retries", "rerun what failed", RETRIES)
    _read_delays(file, task, options, given, retries)
    if literal(options.get("acks_late")) is True:
        retries.after_crash = True
        if not is_retried:
            retries.delay, retries.max_retries = 1, max(1, retries.most)
        what = "acks_late is WORKER_CRASHED in the policy: also after the death of only a child process"
        file.differs(task.decorator, what, "the task must bear being run again", "at-least-once")


def _most(options: dict[str, ast.expr], given: dict[str, object]) -> int:
    """How often a task is retried: `retry_kwargs` are asked before the option, and None of the option is for ever."""
    most = given.get("max_retries")
    if most is None:
        most = number(options["max_retries"]) if "max_retries" in options else DEFAULT_RETRIES
    return int(most) if isinstance(most, int | float) else MOST_RETRIES + 1


def _read_delays(
    file: File, task: OldTask, options: dict[str, ast.expr], given: dict[str, object], retries: Retries
) -> None:
    fixed = number(options.get("default_retry_delay"))
    countdown = given.get("countdown")
    if retries.delay is None:
        retries.delay = countdown if isinstance(countdown, int | float) else fixed
    backoff = literal(options.get("retry_backoff"))
    if backoff:
        retries.doubles = True
        retries.delay = 1 if backoff is True else int(max(1, number(options["retry_backoff"]) or 1))
        retries.longest = number(options.get("retry_backoff_max")) or 600
        retries.jitter = literal(options.get("retry_jitter")) is not False
        if retries.jitter and retries.classes:
            what = "the delay of a retry varies by a quarter, not between nothing and all of it"
            file.differs(task.decorator, what, "jitter=False for exact delays", RETRIES)


def _classes(file: File, node: ast.expr | None) -> list[ast.expr]:
    """The classes of `autoretry_for`, which must be a tuple: a name stands for one that is written elsewhere."""
    listed = list(node.elts) if isinstance(node, ast.Tuple | ast.List) else []
    if node is not None and not isinstance(node, ast.Tuple | ast.List):
        file.by_hand(node, "the classes of autoretry_for are not written here", "exception_mapper={...: code}", RETRIES)
    return listed


def _add_class(file: File, task: OldTask, node: ast.expr, retries: Retries) -> bool:
    """Note a class of exceptions; whether it is one that the decorator can name."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    known = isinstance(root, ast.Name) and (hasattr(builtins, root.id) or _is_class(file, task, root.id))
    if not known:
        what = f"{file.source.now(node)} is not known as a class of exceptions where {task.function.name} is defined"
        file.by_hand(node, what, "import it in the module, and name it in exception_mapper={...: code}", RETRIES)
    elif (text := file.source.now(node)) not in retries.classes:
        retries.classes.append(text)
    return known


def _is_class(file: File, task: OldTask, name: str) -> bool:
    """Does the module import or define it before the task? Something that is assigned may be a tuple of classes."""
    before = [one for one in file.source.tree.body if one.lineno < task.function.lineno]
    inside = [one for statement in before for one in ast.walk(statement) if file.source.function_of(one) is None]
    is_set = any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store) for one in inside)
    is_defined = any(isinstance(one, ast.ClassDef) and one.name == name for one in inside)
    imports = [one for one in inside if isinstance(one, ast.Import | ast.ImportFrom)]
    is_imported = any((one.asname or one.name.partition(".")[0]) == name for each in imports for one in each.names)
    return (is_defined or is_imported) and not is_set


def retry_call(file: File, task: OldTask, call: ast.AST | None, retries: Retries) -> None:
    """`raise self.retry(exc=exc, countdown=5)` in a handler: the exception leaves the task; its code is retried."""
    source = file.source
    statement = source.statement_of(call) if call is not None else None
    handler = next((up for up in source.above(call) if isinstance(up, ast.ExceptHandler)), None) if call else None
    if not isinstance(call, ast.Call) or statement is None or handler is None or handler.type is None:
        file.by_hand(call or task.function, "self.retry outside of a handler of exceptions", _CODE, RETRIES)
        return
    if statement not in handler.body:
        what = "self.retry in some cases only: an exception that leaves the task is retried always"
        file.by_hand(call, what, _CODE, RETRIES)
        return
    given = {str(one.arg): one.value for one in call.keywords}
    if not _is_plain(call, statement, handler, given) or not _takes_delay(given.get("countdown"), retries):
        file.by_hand(call, "self.retry with its own arguments, times or delays", _CODE, RETRIES)
        return
    classes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not all(_add_class(file, task, one, retries) for one in classes):
        return
    if (most := number(given.get("max_retries"))) is not None:
        retries.max_retries = int(most)
    source.replace_node(statement, "raise")
    if _is_needless(handler, statement, task):
        source.replace(*source.name_of_handler(handler), "")
    what = "self.retry: the exception leaves the task, and is retried wherever in the task it comes from"
    file.differs(call, what, "a code of your own for each reason to retry", RETRIES)


def _is_needless(handler: ast.ExceptHandler, retry: ast.stmt, task: OldTask) -> bool:
    """Has only the retry used the name of the exception? Functions inside the task may use it too."""
    inside = [one for one in ast.walk(task.function) if isinstance(one, Function | ast.Lambda)]
    scopes = [handler, *(one for one in inside if one is not task.function)]
    uses = {one for scope in scopes for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == handler.name}
    return bool(uses) and uses <= set(ast.walk(retry))


def _is_plain(call: ast.Call, statement: ast.stmt, handler: ast.ExceptHandler, given: dict[str, ast.expr]) -> bool:
    """Is the whole statement a retry because of the exception that was caught?"""
    is_whole = isinstance(statement, ast.Expr) or (isinstance(statement, ast.Raise) and statement.exc is call)
    reason = given.get("exc")
    is_caught = reason is None or (isinstance(reason, ast.Name) and reason.id == handler.name)
    most = given.get("max_retries")
    is_told = most is None or number(most) is not None
    return is_whole and is_caught and is_told and not call.args and not set(given) - {"exc", "countdown", "max_retries"}


def _takes_delay(node: ast.expr | None, retries: Retries) -> bool:
    """Note how long the retry waits; False if it cannot be told, or another call says something else."""
    wanted = _delay(node)
    if wanted is None or (retries.called is not None and retries.called != wanted):
        return False
    retries.called = wanted
    if node is not None:
        retries.delay, retries.doubles = wanted
    return True


def _delay(node: ast.expr | None) -> tuple[float, bool] | None:
    """The first delay, and whether each is twice the one before."""
    if node is None:
        return 0.0, False  # what the task says
    if (seconds := number(node)) is not None:
        return seconds, False
    factor = 1.0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and (left := number(node.left)) is not None:
        factor, node = left, node.right
    match node:
        case ast.BinOp(left=ast.Constant(value=2), op=ast.Pow(), right=ast.Attribute(attr="retries")):
            return factor, True
    return None
