"""What a task function takes and returns, read from its signature.

Annotations may be strings (`from __future__ import annotations`) and may name things that are defined later. They
cannot be resolved yet in that case: `read` raises `NameError`, and the caller tries again later.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

# Parameters that the workflow engine fills in; nobody else may.
INJECTED = frozenset({"workflow_ctx", "workflow_meta"})
_MAX_REMEMBERED = 256


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a task by kind, with their types, and its return annotation."""

    positional: tuple[str, ...]  # in order, those that only go by position first
    positional_only: int  # how many of them
    keyword: frozenset[str]  # what may be given by name
    required: frozenset[str]
    kinds: Mapping[str, Any]  # name -> annotation
    var_positional: str | None
    var_keyword: str | None
    injected: Mapping[str, bool]  # name -> has a default
    returns: Any
    _fits: set[tuple[Any, ...]] = field(default_factory=set, compare=False, repr=False)

    def problem(self, count: int, names: Collection[str]) -> str | None:
        """Why `count` positional arguments and these names cannot be bound; None if they can."""
        call = (count, *names)
        if call in self._fits:
            return None
        problem = self._find_problem(count, names)
        if problem is None and len(self._fits) < _MAX_REMEMBERED:
            self._fits.add(call)
        return problem

    def _find_problem(self, count: int, names: Collection[str]) -> str | None:
        if count > len(self.positional) and self.var_positional is None:
            return f"takes {len(self.positional)} positional argument(s), {count} were given"
        by_position = set(self.positional[:count])
        for name in names:
            if name in INJECTED:
                return f"argument {name!r} is filled in by the workflow engine"
            if name not in self.keyword:
                if self.var_keyword is None:
                    return self._unknown(name)
            elif name in by_position:
                return f"argument {name!r} was given twice, by position and by name"
        named = {name for name in names if name in self.keyword}
        missing = [name for name in self.kinds if name in self.required - by_position - named]
        return f"missing argument(s): {', '.join(map(repr, missing))}" if missing else None

    def _unknown(self, name: str) -> str:
        if name in self.positional[: self.positional_only]:
            return f"argument {name!r} can only be given by position"
        return f"unknown argument {name!r}"


def read(fn: Callable[..., Any], local_names: Mapping[str, Any] | None = None) -> Signature:
    """The signature with its annotations resolved. `NameError` if one of them names something that does not exist
    yet."""
    hints = typing.get_type_hints(fn, localns=dict(local_names or {}), include_extras=True)
    parameters = _parameters(fn)
    taken = [parameter for parameter in parameters if parameter.name not in INJECTED]
    plain = [parameter for parameter in taken if parameter.kind in _BY_POSITION or parameter.kind in _BY_NAME]
    return Signature(
        positional=tuple(parameter.name for parameter in plain if parameter.kind in _BY_POSITION),
        positional_only=sum(parameter.kind is Parameter.POSITIONAL_ONLY for parameter in plain),
        keyword=frozenset(parameter.name for parameter in plain if parameter.kind in _BY_NAME),
        required=frozenset(parameter.name for parameter in plain if parameter.default is Parameter.empty),
        kinds={parameter.name: hints.get(parameter.name, Any) for parameter in taken},
        var_positional=_only(parameters, Parameter.VAR_POSITIONAL),
        var_keyword=_only(parameters, Parameter.VAR_KEYWORD),
        injected={p.name: p.default is not Parameter.empty for p in parameters if p.name in INJECTED},
        returns=hints.get("return", Parameter.empty),
    )


def has_return_annotation(fn: Callable[..., Any]) -> bool:
    """Whether the function declares what it returns, resolvable or not."""
    return _signature(fn).return_annotation is not inspect.Signature.empty


_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # Names that do not exist yet must not keep us from seeing the parameters.
        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _parameters(fn: Callable[..., Any]) -> list[Parameter]:
    return list(_signature(fn).parameters.values())


def _only(parameters: list[Parameter], kind: Any) -> str | None:
    return next((parameter.name for parameter in parameters if parameter.kind is kind), None)
