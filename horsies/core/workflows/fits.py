"""Whether a value of one annotation fits where another is declared.

It is a best effort that says yes in doubt: what it cannot judge passes, and the task that decodes the value decides.
"""

from __future__ import annotations

import collections.abc
import re
import types
import typing
from typing import Annotated, Any, Literal, NewType, TypeVar, get_args, get_origin

from horsies.core.models.tasks import TaskResult

_ARRAYS = (list, tuple, set, frozenset)
_MODULES = re.compile(r"\btyping\.|\bhorsies\.(?:\w+\.)*")  # one writes the names without them
_ABSTRACT_ARRAYS = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Set,
    collections.abc.Collection,
    collections.abc.Iterable,
)


def fits(source: Any, target: Any) -> bool:
    """Whether a `source` fits a `target`."""
    source, target = _bare(source), _bare(target)
    if _is_open(source) or _is_open(target) or source == target:
        return True
    if _is_union(source):
        return all(fits(part, target) for part in get_args(source))
    if _is_union(target):
        return any(fits(source, part) for part in get_args(target))
    if get_origin(source) is Literal:
        return all(fits(type(value), target) for value in get_args(source))
    if get_origin(target) is Literal:
        return fits(source, type(get_args(target)[0]))
    return _classes_fit(source, target)


def results_in(annotation: Any) -> list[Any]:
    """The types `T` of every `TaskResult[T, ...]` that the annotation accepts; none if it accepts no result."""
    annotation = _bare(annotation)
    if _is_union(annotation):
        return [found for part in get_args(annotation) for found in results_in(part)]
    if annotation is TaskResult:
        return [Any]
    return [get_args(annotation)[0]] if get_origin(annotation) is TaskResult else []


def element_of(annotation: Any) -> tuple[Any] | None:
    """The type of the elements if its values are lists in JSON; None if they are not."""
    annotation = _bare(annotation)
    if _is_open(annotation):
        return (Any,)
    if _is_union(annotation):
        found = [element_of(part) for part in get_args(annotation) if part is not type(None)]
        return found[0] if found and None not in found else None
    origin, given = get_origin(annotation) or annotation, get_args(annotation)
    # Not everything that can be iterated over is a list: a model is not, nor is a text.
    if not isinstance(origin, type) or not (_is_subclass(origin, _ARRAYS) or origin in _ABSTRACT_ARRAYS):
        return None
    if not given:
        return (Any,)
    if origin is tuple and not (len(given) == 2 and given[1] is Ellipsis):
        return (typing.Union[given],)  # noqa: UP007  the members are only known here
    return (given[0],)


def shown(annotation: Any) -> str:
    """An annotation as one would write it."""
    if annotation is type(None):
        return "None"
    plain = isinstance(annotation, type) and not get_args(annotation)
    return annotation.__qualname__ if plain else _MODULES.sub("", str(annotation))


def _classes_fit(source: Any, target: Any) -> bool:
    ours, theirs = get_origin(source) or source, get_origin(target) or target
    if not isinstance(ours, type) or not isinstance(theirs, type):
        return True
    if not _is_subclass(ours, theirs):
        return (ours, theirs) in _PROMOTED
    mine, wanted = get_args(source), get_args(target)
    if not mine or not wanted:
        return True
    if ours is tuple or theirs is tuple:
        return _tuples_fit(mine, wanted) if ours is theirs else True
    if ours is TaskResult:
        return fits(mine[0], wanted[0])
    return len(mine) != len(wanted) or all(map(fits, mine, wanted))


_PROMOTED = {(int, float), (int, complex), (float, complex)}


def _tuples_fit(mine: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    if Ellipsis in wanted:
        return all(fits(part, wanted[0]) for part in mine if part is not Ellipsis)
    return Ellipsis in mine or (len(mine) == len(wanted) and all(map(fits, mine, wanted)))


def _bare(annotation: Any) -> Any:
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return type(None) if annotation is None else annotation


def _is_open(annotation: Any) -> bool:
    return annotation is Any or annotation is object or isinstance(annotation, TypeVar | str)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (typing.Union, types.UnionType)


def _is_subclass(kind: type, other: Any) -> bool:
    try:
        return issubclass(kind, other)
    except TypeError:  # a protocol with attributes, or something that only looks like a class
        return True
