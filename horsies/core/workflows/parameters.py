"""The parameters of a definition's `build_with`, without the app: how they are bound by name, encoded and decoded."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from horsies.core.codec import signature as signatures
from horsies.core.codec.arguments import ArgumentsCodec
from horsies.core.codec.signature import Signature

if TYPE_CHECKING:
    from horsies.core.models.workflow.definition import WorkflowDefinition

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})
# A workflow may hold a thousand nodes of one definition, and building a codec takes a while.
_codecs: WeakKeyDictionary[type[Any], ArgumentsCodec] = WeakKeyDictionary()


class NoPlaceForApp(ValueError):
    """`build_with` does not take the app as its first argument."""


def parameters_of(definition: type[WorkflowDefinition[Any]]) -> ArgumentsCodec:
    """The codec of its parameters. It raises what the user's annotations raise, or `NoPlaceForApp`."""
    codec = _codecs.get(definition)
    if codec is None:
        codec = _codecs[definition] = ArgumentsCodec(signature_of(definition))
    return codec


def prepare(definition: type[WorkflowDefinition[Any]], local_names: Mapping[str, Any]) -> None:
    """Read the parameters now, while these names exist. A failure is reported when they are needed."""
    with suppress(Exception):
        _codecs[definition] = ArgumentsCodec(signature_of(definition, local_names))


def signature_of(definition: type[WorkflowDefinition[Any]], local_names: Mapping[str, Any] = _NO_NAMES) -> Signature:
    """The signature of `build_with` without the app."""
    # The two are often imported for type checkers only, and are of no importance here.
    names = {**local_names, "Horsies": object, "WorkflowSpec": _Anything}
    signature = signatures.read(definition.build_with, names)
    if not signature.positional:
        if signature.var_positional is None:
            raise NoPlaceForApp("build_with must take the app as its first argument")
        return signature
    first = signature.positional[0]
    return replace(
        signature,
        positional=signature.positional[1:],
        positional_only=max(0, signature.positional_only - 1),
        keyword=signature.keyword - {first},
        required=signature.required - {first},
        kinds={name: kind for name, kind in signature.kinds.items() if name != first},
        _fits=set(),
    )


class _Anything:
    """Replaces a generic class in an annotation that is not used."""

    def __class_getitem__(cls, item: Any) -> Any:
        return inspect.Parameter.empty
