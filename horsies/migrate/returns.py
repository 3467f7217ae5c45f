"""The return type of a function that does not say it, as far as it can be seen without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horsies.migrate.source import Function

_CALLS = {"len": "int", "str": "str", "int": "int", "float": "float", "bool": "bool", "repr": "str"}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """What belongs to the function itself and not to a function inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def is_generator(function: Function) -> bool:
    return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in own_nodes(function))


def return_type(function: Function, bound: frozenset[str]) -> str | None:
    """The type as it is written; None if only a person can tell. `bound` are names that hide built-in functions."""
    values = [node.value for node in own_nodes(function) if isinstance(node, ast.Return) and node.value is not None]
    found = {_type_of(value, bound) for value in values}
    if None in found:
        return None
    types = sorted({one for one in found if one is not None and one != "None"})
    if len(types) > 1:
        return None
    if not types:
        return "None"
    is_optional = "None" in found or _falls_through(function.body) or _returns_nothing(function)
    return f"{types[0]} | None" if is_optional else types[0]


def _returns_nothing(function: Function) -> bool:
    return any(isinstance(node, ast.Return) and node.value is None for node in own_nodes(function))


def _type_of(node: ast.expr, bound: frozenset[str]) -> str | None:
    match node:
        case ast.Constant(value=None):
            return "None"
        case ast.Constant(value=str() | int() | float() as value):
            return type(value).__name__
        case ast.JoinedStr():
            return "str"
        case ast.UnaryOp(op=ast.Not()):
            return "bool"
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS and name not in bound:
            return _CALLS[name]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format" | "join")):
            return "str"
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return "str"
        case ast.Dict(keys=keys) if keys and all(_is_text(key) for key in keys):
            return "dict[str, Any]"
        case ast.List() | ast.ListComp():
            return "list[Any]"
    return None


def _is_text(key: ast.expr | None) -> bool:
    return isinstance(key, ast.Constant) and isinstance(key.value, str)


def _falls_through(body: list[ast.stmt]) -> bool:
    """May the end of these statements be reached? True also if it is not known."""
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or _falls_through(last.body) or _falls_through(last.orelse)
    if isinstance(last, ast.Try):
        ends = [last.orelse or last.body, *(handler.body for handler in last.handlers)]
        return any(_falls_through(one) for one in ends)
    return True
