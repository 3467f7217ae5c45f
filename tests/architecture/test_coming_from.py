"""What the pages for people who come from another queue say of horsies exists: the names, the keywords of calls and the
options of commands. The other queues are not installed for it."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from pydantic import BaseModel

import horsies
import pytest_horsies
from horsies import monitoring
from horsies.core.models.notes import TaskProgress
from horsies.core.models.task_pg import Base
from horsies.core.models.tasks import BuiltInTaskCode
from horsies.core.task_decorator import TaskFunction
from horsies.testing.kit import AppTesting
from horsies.testing.sent import SentTasks
from tests.architecture.test_documents import OPTION, PAGES
from tests.deploy.command_lines import known_options

# What stands for an object in the tables, by the text in front of a dot.
OBJECTS: dict[str, tuple[Any, ...]] = {
    "app": (horsies.Horsies,),
    "app.schedules": (horsies.Schedules,),
    "app.testing": (AppTesting,),
    "app.testing.sent": (SentTasks,),
    "broker": (horsies.PostgresBroker,),
    "ctx": (horsies.TaskContext,),
    "handle": (horsies.TaskHandle, horsies.WorkflowHandle),
    "horsies": (horsies,),
    "horsies.monitoring": (monitoring,),
    "monitoring": (monitoring,),
    "spec": (horsies.WorkflowSpec,),
    "task": (TaskFunction,),
}
# Names of Python, PostgreSQL and Django, and what the cells call their own things.
FOREIGN = {
    *dir(builtins), "Decimal", "HORSIES", "HorsiesBackend", "HorsiesTransactionTestCase", "INSTALLED_APPS",
    "NO_COLOR", "UTC", "UUID", "_async", "a", "add", "atexit", "atomic", "b", "c", "conn", "connections",
    "datetime", "default", "first", "full", "functools", "handles", "horsies_send", "items", "items_node", "live",
    "logging", "module", "moment", "name", "node", "one", "os", "pg_advisory_xact_lock", "psql", "request_stop",
    "seconds", "shop", "socket", "sslmode", "task_id", "time", "timedelta", "url", "verify",
}  # fmt: skip
ENUMS = (horsies.TaskStatus, horsies.WorkflowTaskStatus, horsies.TaskSendErrorCode, *get_args(BuiltInTaskCode))


def parameters(thing: Any) -> set[str]:
    """What a call takes by name."""
    options = str(getattr(thing, "__annotations__", {}).get("options", ""))
    if options.startswith("Unpack["):
        return {*inspect.signature(thing).parameters, *eval(options[7:-1], thing.__globals__).__optional_keys__}
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        return set(thing.model_fields)
    return set(inspect.signature(thing).parameters)


def words() -> set[str]:
    """Every name that may stand alone in a cell, as `timeout_ms` or `PENDING`."""
    public = [TaskProgress, *(getattr(horsies, name) for name in horsies.__all__)]
    attributes = {name for thing in public for name in (*dir(thing), *getattr(thing, "__annotations__", ()))}
    calls = (horsies.Horsies.task, horsies.TaskNode, TaskFunction.with_options)
    taken = set().union(*map(parameters, calls))
    members = {str(member.value) for enum in ENUMS for member in enum}
    fixtures = {name for name in vars(pytest_horsies) if name.startswith("horsies_")}
    return attributes | taken | members | fixtures | {*Base.metadata.tables, *OBJECTS} | FOREIGN


def rows(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """The code in the two columns of the tables of a page: of the other queue, and of horsies."""
    for row in re.findall(r"^\| .* \|$", PAGES[f"docs/from-{page}.md"], re.MULTILINE):
        theirs, ours = re.split(r"(?<!\\) \| ", row.strip("| "))
        yield re.findall(r"`([^`]+)`", theirs), re.findall(r"`([^`]+)`", ours)


def parsed(code: str) -> ast.AST | None:
    text = code.removeprefix("@").replace("\\|", "|")
    for form in (text, f"{text} pass", f"dict({text})", f"{text} 0"):  # also `with x:`, `a=1`, `a=1, b=2`, `return`
        try:
            return ast.parse(form)
        except SyntaxError:
            continue
    return None


def found(name: str, known: set[str]) -> Any:
    """What a dotted name is: an object, True if it is only a word, or None."""
    front, _, last = name.rpartition(".")
    if front in OBJECTS:
        return next((getattr(one, last) for one in OBJECTS[front] if hasattr(one, last)), None)
    if front:
        owner = found(front, known)
        return owner is not None or None
    return getattr(horsies, name, None) or (True if name in known else None)


def problems(code: str, known: set[str]) -> Iterator[str]:
    tree = parsed(code)
    if code.startswith(("horsies ", "python ", "-", "/")) or tree is None:
        yield from (option for option in OPTION.findall(code) if option not in known_options())
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            if re.fullmatch(r"[\w.]+", name) and found(name, known) is None:
                yield name
        elif isinstance(node, ast.Call) and (called := found(ast.unparse(node.func), known)) not in (None, True):
            taken = parameters(called)
            takes_any = "kwargs" in taken
            yield from (f"{code}: {one.arg}" for one in node.keywords if one.arg not in taken and not takes_any)


@pytest.mark.parametrize("page", ["celery", "procrastinate"])
def test_what_the_tables_name_exists(page: str) -> None:
    theirs, ours = ({code for row in rows(page) for code in row[column]} for column in (0, 1))
    known = words() | theirs
    assert len(theirs) > 100 and len(ours) > 150
    assert sorted({problem for code in ours for problem in problems(code, known)}) == []


def test_a_name_that_does_not_exist_is_seen() -> None:
    known = words()
    wrong = [
        "task.delay(1)",
        "task.with_options(countdown=3)",
        "RetryPolicy(tries=3)",
        "AppConfig(timezone=1)",
        "queu_name",
    ]
    assert [list(problems(code, known)) == [] for code in wrong] == [False] * len(wrong)
