"""The arguments of a task: bound to its signature, encoded as a JSON list and a JSON object, and decoded by type.

Positional arguments are stored as a list, keyword arguments as an object; if there are none, the column is NULL. So a
plain SQL INSERT can write them too. Defaults are not stored, because they belong to the code that runs. Values that the
workflow engine fills in (F-36, F-37) are among the keyword arguments of a stored call; a sender cannot set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from horsies.core.codec.shapes import CodecError, MismatchError, Shape, list_shape, object_shape
from horsies.core.codec.signature import INJECTED, Signature
from horsies.core.models.workflow.context import WorkflowContext, WorkflowMeta


class ArgumentsCodec:
    """Encodes and decodes the arguments of one task."""

    __slots__ = ("_by_count", "_by_name", "_stored", "_usual_count", "signature")

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        named = {name: kind for name, kind in signature.kinds.items() if name in signature.keyword}
        others = signature.kinds[signature.var_keyword] if signature.var_keyword else None
        self._by_name = object_shape(named, others=others)
        # A stored call may hold both that the engine fills in: the task declared them when its workflow was started.
        self._stored = object_shape({**named, **_FILLED}, others=others) if signature.injected else self._by_name
        self._by_count: dict[int, Shape] = {}
        # Types that occur only by position are proven now as well, not at the first send.
        self._usual_count = len(signature.positional)
        self._positional(self._usual_count)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """The two texts of a call. A `CodecError` says which argument is wrong, where and why."""
        if problem := self.signature.problem(len(args), kwargs):
            raise CodecError(problem)
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
        kwargs = self._stored.decode(kwargs_json) if kwargs_json is not None else {}
        filled = self._take_filled(kwargs) if self.signature.injected else {}
        if problem := self.signature.problem(len(args), kwargs):
            raise CodecError(problem)
        if self.signature.injected:
            return self._beside_injected(args, {**kwargs, **filled})
        return args, kwargs

    def _decode_positional(self, text: str) -> tuple[Any, ...]:
        # The number of arguments decides which types to read, and calls of one task mostly have the same number.
        try:
            args: tuple[Any, ...] = self._positional(self._usual_count).decode(text)
        except MismatchError:
            count = _length(text)
            if count == self._usual_count:
                raise
            if problem := self._too_many(count):
                raise CodecError(problem) from None
            args = self._positional(count).decode(text)
            self._usual_count = count
        return args

    def _too_many(self, count: int) -> str | None:
        fits = count <= len(self.signature.positional) or self.signature.var_positional is not None
        return None if fits else self.signature.problem(count, ())

    def _positional(self, count: int) -> Shape:
        known, repeats = self.signature.positional, self.signature.var_positional
        variadic = repeats is not None and count >= len(known)
        key = -1 if variadic else count
        shape = self._by_count.get(key)
        if shape is None:
            kinds = [self.signature.kinds[name] for name in known[:count]]
            if variadic:
                kinds.append(self.signature.kinds[repeats or ""])
            shape = self._by_count[key] = list_shape(kinds, self._name_of, last_repeats=variadic)
        return shape

    def _name_of(self, index: Any) -> str:
        known = self.signature.positional
        if not isinstance(index, int):
            return str(index)
        return known[index] if index < len(known) else f"{self.signature.var_positional}[{index - len(known)}]"

    def _take_filled(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Take out the values that the engine has filled in; values that the task no longer declares are dropped."""
        filled = {name: kwargs.pop(name) for name in INJECTED if name in kwargs}
        return {name: value for name, value in filled.items() if name in self.signature.injected}

    def _beside_injected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Leave room for the values that the workflow engine fills in: their parameters may be between the others."""
        only = self.signature.positional_only
        named = dict(zip(self.signature.positional[only:], args[only:], strict=False))
        absent = {name: None for name, has_default in self.signature.injected.items() if not has_default}
        return args[:only], {**named, **absent, **kwargs}


_FILLED = {"workflow_ctx": WorkflowContext | None, "workflow_meta": WorkflowMeta | None}


def _length(text: str) -> int:
    values = from_json(text)  # it is JSON: a shape has already read it, and only did not like its members
    if not isinstance(values, list):
        raise CodecError("the arguments are not a JSON list")
    return len(values)
