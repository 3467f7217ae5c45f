"""Reads arguments that an older version of a task was sent with (O-32). `@app.task(..., accepts=[old])` names functions
with the signatures of before; each returns the arguments for the function of today.

The signature of today is tried first. Only if it does not fit are the others tried, in their order, and the first one
that fits is called. What it returns is checked against the signature of today like any other arguments.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_core import from_json

from horsies.core.codec import shapes
from horsies.core.codec.arguments import INJECTED, ArgumentsCodec, Signature


class OlderSignature:
    """A function whose parameters are those of an older version, and which returns the arguments of today: a dict of
    keyword arguments, or a tuple of positional ones."""

    __slots__ = ("_codec", "_fn")

    def __init__(self, fn: Callable[..., Any], signature: Signature) -> None:
        self._fn = fn
        self._codec = ArgumentsCodec(signature)

    def read(self, args_json: str | None, kwargs_json: str | None) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of today; None if these texts are not of this version."""
        try:
            args, kwargs = self._codec.decode(args_json, kwargs_json)
        except shapes.CodecError:
            return None
        try:
            found = self._fn(*args, **kwargs)
        except Exception as problem:
            raise shapes.CodecError(f"{self._name} raised {type(problem).__name__}: {problem}") from problem
        if isinstance(found, dict):
            return (), found
        if isinstance(found, tuple):
            return found, {}
        wanted = "a dict of keyword arguments or a tuple of positional ones"
        raise shapes.CodecError(f"{self._name} returned {type(found).__name__}, not {wanted}")

    @property
    def _name(self) -> str:
        return f"{getattr(self._fn, '__qualname__', self._fn)} of accepts=[...]"


class AcceptingCodec(ArgumentsCodec):
    """The codec of a task that also accepts the arguments of older versions."""

    __slots__ = ("_older",)

    def __init__(self, signature: Signature, older: Sequence[OlderSignature]) -> None:
        super().__init__(signature)
        self._older = older

    def decode(self, args_json: str | None, kwargs_json: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            return super().decode(args_json, kwargs_json)
        except shapes.CodecError as problem:
            found = self._from_older(args_json, kwargs_json)
            if found is None:
                raise shapes.CodecError(f"{problem}; nor do they fit one of the older signatures") from problem
            return found

    def _from_older(
        self, args_json: str | None, kwargs_json: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        given, filled = _split(kwargs_json)
        for version in self._older:
            found = version.read(args_json, given)
            if found is not None:
                args, kwargs = self.encode(*found)
                declared = {name: value for name, value in filled.items() if name in self.signature.injected}
                return super().decode(args, json.dumps({**from_json(kwargs or "{}"), **declared}))
        return None


def _split(kwargs_json: str | None) -> tuple[str | None, dict[str, Any]]:
    """The keyword arguments of the sender, and those that the workflow engine has filled in."""
    try:
        values = None if kwargs_json is None else from_json(kwargs_json)
    except ValueError:
        return kwargs_json, {}
    if not isinstance(values, dict) or INJECTED.isdisjoint(values):
        return kwargs_json, {}
    filled = {name: values.pop(name) for name in INJECTED if name in values}
    return json.dumps(values), filled
