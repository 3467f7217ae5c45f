"""The arguments of a task: read from its signature, bound to it, encoded as a JSON list and a JSON object, and decoded
by type.

Annotations may be strings (`from __future__ import annotations`) and may name things that are defined later. In that
case they cannot be resolved yet: `read` raises `NameError`, and the caller tries again later. Positional arguments are
stored as a list, keyword arguments as an object; if there are none, the column is NULL. So a plain SQL INSERT can write
them too. Defaults are not stored, because they belong to the code that runs. Values that the workflow engine fills in
(F-36, F-37) are among the keyword arguments of a stored call, and are given by name; a sender cannot set them.
"""

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from inspect import Parameter
from types import UnionType
from typing import Any

from pydantic_core import from_json

from horsies.core.codec import context, shapes
from horsies.core.text import instead_of

# Only the workflow engine fills in these parameters.
INJECTED = frozenset({"workflow_ctx", "workflow_meta"})
CONTEXT = "ctx"  # filled in if its annotation is a `RunContext`
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
FILLED = {"workflow_ctx": context.WorkflowContext | None, "workflow_meta": context.WorkflowMeta | None}
_MAX_REMEMBERED = 256
_LONGEST_NAME = 100


class FilledParameterError(ValueError):
    """A parameter that the library fills in is declared in a way in which it cannot be filled in."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name  # as it must be called


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters of a task by kind, with their types, and its return annotation."""

    positional: tuple[str, ...]  # in order, positional-only parameters first
    positional_only: int  # how many of them are positional-only
    keyword: frozenset[str]  # parameters that may be given by name
    required: frozenset[str]
    kinds: Mapping[str, Any]  # name -> annotation
    var_positional: str | None
    var_keyword: str | None
    injected: Mapping[str, bool]  # name -> has a default
    returns: Any
    context_kind: type[context.RunContext] | None = None  # of the parameter `ctx`
    context_at: int | None = None  # its position; None if it can only be given by name
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
            if name == CONTEXT and self.context_kind is not None:
                return f"argument {name!r} is filled in when the task runs"
            if name not in self.keyword:
                if self.var_keyword is None:
                    return self._unknown(name)
            elif name in by_position:
                return f"argument {name!r} was given twice, by position and by name"
        named = {name for name in names if name in self.keyword}
        missing = [name for name in self.kinds if name in self.required - by_position - named]
        return f"missing argument(s): {', '.join(map(repr, missing))}" if missing else None

    def with_context(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], value: context.RunContext
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with the context in its place."""
        at = self.context_at
        if at is None or len(args) < at:
            return args, {**kwargs, CONTEXT: value}
        return (*args[:at], value, *args[at:]), kwargs

    def _unknown(self, name: str) -> str:
        if name in self.positional[: self.positional_only]:
            return f"argument {name!r} can only be given by position"
        name = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"  # a row may name anything
        return f"unknown argument {name!r}{instead_of(name, self.keyword)}"


def names_around() -> dict[str, Any]:
    """Names that the annotations of a nested definition may use: those of the function of the user that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("horsies.core."):
        frame = frame.f_back
    is_function_scope = frame.f_code.co_name != "<module>"
    return dict(frame.f_locals) if is_function_scope else {}


def read(fn: Callable[..., Any], local_names: Mapping[str, Any] | None = None) -> Signature:
    """The signature with its annotations resolved. `NameError` if one of them names something that does not exist
    yet, `FilledParameterError` if the library could not fill in a parameter."""
    hints = typing.get_type_hints(fn, localns=dict(local_names or {}), include_extras=True)
    parameters = list(_signature(fn).parameters.values())
    _check_filled(parameters, hints)
    kind_of_context = _context_kind(hints.get(CONTEXT))
    filled = INJECTED if kind_of_context is None else INJECTED | {CONTEXT}
    taken = [parameter for parameter in parameters if parameter.name not in filled]
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
        context_kind=kind_of_context,
        context_at=next((at for at, p in enumerate(parameters) if p.name == CONTEXT and p.kind in _BY_POSITION), None),
    )


def unwrapped(annotation: Any) -> Any:
    """The type that an annotation means: without `Annotated`, and without the name that `type X = ...` has given it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return unwrapped(typing.get_args(annotation)[0])
    if _is_alias(annotation):
        return unwrapped(annotation.__value__)
    if _is_alias(origin):
        meant = dict(zip(origin.__type_params__, typing.get_args(annotation), strict=True))
        value = origin.__value__
        return unwrapped(value[tuple(meant[variable] for variable in value.__parameters__)])
    return annotation


def _is_alias(annotation: Any) -> bool:
    return type(annotation).__name__ == "TypeAliasType"  # of typing or, for older Pythons, of typing_extensions


def _context_kind(annotation: Any) -> type[context.RunContext] | None:
    """The kind of context that an annotation names, also as `TaskContext | None`."""
    meant = unwrapped(annotation)
    if typing.get_origin(meant) in (typing.Union, UnionType):
        return next(filter(None, map(_context_kind, typing.get_args(meant))), None)
    return meant if isinstance(meant, type) and issubclass(meant, context.RunContext) else None


def _check_filled(parameters: list[Parameter], hints: Mapping[str, Any]) -> None:
    """Each parameter that is filled in has its name, and is one that a value can be given to in every call."""
    may_be_left_out = False  # one of the parameters before
    rest = _only(parameters, Parameter.VAR_POSITIONAL)
    for parameter in parameters:
        name, is_context = parameter.name, _context_kind(hints.get(parameter.name)) is not None
        if is_context and name != CONTEXT:
            raise FilledParameterError(CONTEXT, f"has a context as {name!r}, and only a parameter {CONTEXT!r} gets one")
        if not is_context and name not in INJECTED:
            may_be_left_out |= parameter.default is not Parameter.empty
        elif parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is Parameter.VAR_POSITIONAL else "**"
            raise FilledParameterError(name, f"has {stars}{name}, and what is filled in there is one value")
        elif parameter.kind is Parameter.POSITIONAL_ONLY and (may_be_left_out or not is_context):
            why = "behind a parameter that may be left out" if is_context else "and it is filled in by name"
            raise FilledParameterError(name, f"takes {name!r} only by position, {why}")
        elif not is_context and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and rest is not None:
            raise FilledParameterError(name, f"has {name!r} before *{rest}, and it is filled in by name")


def has_return_annotation(fn: Callable[..., Any]) -> bool:
    """Whether the function declares what it returns, resolvable or not."""
    return _signature(fn).return_annotation is not inspect.Signature.empty


def _signature(fn: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # Names that do not exist yet must not keep us from seeing the parameters.
        return inspect.signature(fn, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(fn)


def _only(parameters: list[Parameter], kind: Any) -> str | None:
    return next((parameter.name for parameter in parameters if parameter.kind is kind), None)


class ArgumentsCodec:
    """Encodes and decodes the arguments of one task."""

    __slots__ = ("_by_count", "_by_name", "_stored", "_usual_count", "signature")

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        named = {name: kind for name, kind in signature.kinds.items() if name in signature.keyword}
        others = signature.kinds[signature.var_keyword] if signature.var_keyword else None
        self._by_name = shapes.object_shape(named, others=others)
        # A stored call may hold both parameters, because the task may have declared both when its workflow was started.
        self._stored = shapes.object_shape({**named, **FILLED}, others=others) if signature.injected else self._by_name
        self._by_count: dict[int, shapes.Shape] = {}
        # Types that occur only by position are checked now too, and not at the first send.
        self._usual_count = len(signature.positional)
        self._positional(self._usual_count)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The two texts of a call. A `CodecError` says which argument is wrong, where and why."""
        if problem := self.signature.problem(len(args), kwargs):
            raise shapes.CodecError(problem)
        return (
            self._positional(len(args)).encode(args) if args else None,
            self._by_name.encode(kwargs) if kwargs else None,
        )

    def encode_named(self, kwargs: Mapping[str, Any]) -> str | None:
        """The text of some of the keyword arguments, as given to a node of a workflow; the others follow later."""
        return self._by_name.encode(dict(kwargs)) if kwargs else None

    def decode(self, args_json: str | None, kwargs_json: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that two texts describe, ready to be made."""
        args = self._decode_positional(args_json) if args_json is not None else ()
        kwargs = self._decode_named(kwargs_json, len(args)) if kwargs_json is not None else {}
        filled = self._take_filled(kwargs) if self.signature.injected else {}
        if problem := self.signature.problem(len(args), kwargs):
            raise shapes.CodecError(problem)
        if not self.signature.injected:
            return args, kwargs
        # Their parameters may stand between the others, so what may be given by name is given by name.
        first = len(args) if self.signature.var_positional is not None else self.signature.positional_only
        named = dict(zip(self.signature.positional[first:], args[first:], strict=False))
        return args[:first], {**named, **kwargs, **filled}

    def decode_typed(self, args_json: str | None, kwargs_json: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call that a person has typed as JSON, ready to be sent. It is as strict as a send of the same values in
        Python: a text is no number, although a worker would read one."""
        args = from_json(args_json) if args_json is not None else []
        kwargs = from_json(kwargs_json) if kwargs_json is not None else {}
        if problem := self.signature.problem(len(args), kwargs):
            raise shapes.CodecError(problem)
        return (
            self._positional(len(args)).decode(args_json, strict=True) if args_json is not None else (),
            self._by_name.decode(kwargs_json, strict=True) if kwargs_json is not None else {},
        )

    def _decode_positional(self, text: str) -> tuple[Any, ...]:
        # The number of arguments decides which types to read, and calls of one task mostly have the same number.
        try:
            args: tuple[Any, ...] = self._positional(self._usual_count).decode(text)
        except shapes.TypeMismatchError:
            count = _length(text)
            if count == self._usual_count:
                raise
            if problem := self._too_many(count):
                raise shapes.CodecError(problem) from None
            args = self._positional(count).decode(text)
            self._usual_count = count
        return args

    def _decode_named(self, text: str, count: int) -> dict[str, Any]:
        try:
            named: dict[str, Any] = self._stored.decode(text)
        except shapes.TypeMismatchError:
            if problem := self._wrong_names(text, count):
                raise shapes.CodecError(problem) from None
            raise
        return named

    def _wrong_names(self, text: str, count: int) -> str | None:
        """Which names would fit says more than which one is too many."""
        given = from_json(text)  # a shape has already read this as JSON
        if not isinstance(given, dict):
            return None
        return self.signature.problem(count, [name for name in given if name not in INJECTED])

    def _too_many(self, count: int) -> str | None:
        fits = count <= len(self.signature.positional) or self.signature.var_positional is not None
        return None if fits else self.signature.problem(count, ())

    def _positional(self, count: int) -> shapes.Shape:
        known, repeats = self.signature.positional, self.signature.var_positional
        variadic = repeats is not None and count >= len(known)
        key = -1 if variadic else count
        shape = self._by_count.get(key)
        if shape is None:
            kinds = [self.signature.kinds[name] for name in known[:count]]
            if variadic:
                kinds.append(self.signature.kinds[repeats or ""])
            shape = self._by_count[key] = shapes.list_shape(kinds, self._name_of, last_repeats=variadic)
        return shape

    def _name_of(self, index: Any) -> str:
        known = self.signature.positional
        if not isinstance(index, int):
            return str(index)
        return known[index] if index < len(known) else f"{self.signature.var_positional}[{index - len(known)}]"

    def _take_filled(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Take out the values that the engine has filled in. Those that the task no longer declares are dropped. One
        that is missing is None, unless its parameter has a default."""
        filled = {name: kwargs.pop(name) for name in INJECTED if name in kwargs}
        declared = self.signature.injected.items()
        return {name: filled.get(name) for name, has_default in declared if name in filled or not has_default}


def _length(text: str) -> int:
    values = from_json(text)  # a shape has already read this as JSON, and refused only its members
    if not isinstance(values, list):
        raise shapes.CodecError("the arguments are not a JSON list")
    return len(values)
