"""What the source of a task function says about the error codes that it returns.

Only a function in which every `return` is a literal `TaskResult(...)` is understood; nothing is claimed about other
functions. Nothing is run here, and a missing source yields nothing.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

from horsies.core.errors import SourceLocation
from horsies.core.models.tasks import TaskError, TaskResult

Function = Callable[..., Any]
_CODE = re.compile(r"[A-Z][A-Z0-9_]*")


class _NotUnderstood(Exception):
    """Something other than a literal result."""


def codes(fn: Function) -> frozenset[str] | None:
    """The codes of the errors that a function returns; None if its source does not show them all."""
    tree = _tree(fn)
    if tree is None:
        return None
    try:
        return frozenset(code for value in _returned(tree.body) for code in _codes_of(value, fn))
    except _NotUnderstood:
        return None


def texts_of_module(fn: Function) -> frozenset[str]:
    """The texts in the module of a function that could be codes, except those that a retry policy lists."""
    return _texts(fn.__code__.co_filename)


def place_of_text(fn: Function, text: str) -> SourceLocation | None:
    """The line above a function, among its decorators, that contains a text."""
    tree = _tree(fn)
    for decorator in () if tree is None else tree.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.expr) and text in (getattr(node, "value", None), getattr(node, "attr", None)):
                return SourceLocation(fn.__code__.co_filename, fn.__code__.co_firstlineno + node.lineno - 1)
    return None


@lru_cache(maxsize=64)
def _texts(file: str) -> frozenset[str]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    listed = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "auto_retry_for"
        for part in ast.walk(node.value)
    }
    return frozenset(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and id(node) not in listed
        if isinstance(node.value, str) and _CODE.fullmatch(node.value)
    )


def _tree(fn: Function) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        [found] = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return None
    return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _returned(body: list[ast.stmt]) -> Iterator[ast.expr | None]:
    """The values of the function's own `return` statements, without those of nested functions."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            yield node.value
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _codes_of(value: ast.expr | None, fn: Function) -> Iterator[str]:
    if value is None or isinstance(value, ast.Constant):
        return  # no result at all, for which there is a built-in code
    if isinstance(value, ast.IfExp):
        yield from _codes_of(value.body, fn)
        yield from _codes_of(value.orelse, fn)
        return
    error = _arguments(value, TaskResult, fn).get("err")
    code = None if error is None else _arguments(error, TaskError, fn).get("error_code")
    if code is not None and (text := _value(code, fn)) is not None:
        yield text


def _arguments(call: ast.expr, kind: type, fn: Function) -> dict[str, ast.expr]:
    """The keyword arguments of a call of this class."""
    if not isinstance(call, ast.Call) or call.args:
        raise _NotUnderstood
    called = call.func.value if isinstance(call.func, ast.Subscript) else call.func  # TaskResult[int, TaskError](...)
    if _global(called, fn) is not kind:
        raise _NotUnderstood
    named = {argument.arg: argument.value for argument in call.keywords if argument.arg is not None}
    if len(named) != len(call.keywords):
        raise _NotUnderstood
    return named


def _value(code: ast.expr, fn: Function) -> str | None:
    value = code.value if isinstance(code, ast.Constant) else _global(code, fn)
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise _NotUnderstood


def _global(name: ast.expr, fn: Function) -> Any:
    """The value of a name of the module, or of an attribute of one."""
    if isinstance(name, ast.Attribute):
        owner = _global(name.value, fn)
        if isinstance(owner, ModuleType | type) and hasattr(owner, name.attr):  # of anything else it could run code
            return getattr(owner, name.attr)
    elif isinstance(name, ast.Name) and name.id not in _own_names(fn) and name.id in fn.__globals__:
        return fn.__globals__[name.id]
    raise _NotUnderstood


def _own_names(fn: Function) -> tuple[str, ...]:
    return (*fn.__code__.co_varnames, *fn.__code__.co_cellvars, *fn.__code__.co_freevars)
