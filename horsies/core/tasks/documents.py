"""The tasks of an app as one JSON Schema document (2020-12), for programs in other languages (X-40): the arguments and
the result of each task, from the very types by which the codec reads and writes them, its queue, its priority and the
error codes that it names itself. The order is stable, so that the document can be kept in a repository. Pure.

What the codec writes always fits the document. A worker is more patient than the document: it also reads "5" for a
number, and fields of models by their aliases.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from horsies.core.codec import shapes
from horsies.core.codec.arguments import Signature
from horsies.core.codec.shapes import CodecError

if TYPE_CHECKING:
    from horsies.core.tasks.definition import TaskDefinition

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NEVER: JsonSchemaValue = {"not": {}}


class _Generator(GenerateJsonSchema):
    """A type that JSON Schema has no words for may be anything; the worker checks it."""

    def emit_warning(self, kind: Any, detail: str) -> None:
        """A default that JSON has no words for is left out."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaValue:
        return {}

    def bytes_schema(self, schema: Any) -> JsonSchemaValue:
        """As the codec writes and reads them."""
        return {"type": "string", "contentEncoding": "base64url"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def document_of(tasks: Mapping[str, TaskDefinition[Any, Any]]) -> dict[str, Any]:
    """The document. `{"$defs": …}` of it and a part of a task are a schema of their own."""
    inputs: list[tuple[Any, Any, pydantic.TypeAdapter[Any]]] = []
    for name in sorted(tasks):
        inputs += _adapters(name, tasks[name])
    parts, definitions = pydantic.TypeAdapter.json_schemas(inputs, by_alias=False, schema_generator=_Generator)
    found = {
        name: _task(tasks[name], {part: parts[(name, part), mode] for part, mode in _PARTS}) for name in sorted(tasks)
    }
    return {"$schema": DIALECT, "tasks": found, "$defs": definitions.get("$defs", {})}


_PARTS: tuple[tuple[str, Literal["validation", "serialization"]], ...] = (
    ("arguments", "validation"),
    ("positional", "validation"),
    ("result", "serialization"),
)


def _adapters(name: str, task: TaskDefinition[Any, Any]) -> list[tuple[Any, Any, pydantic.TypeAdapter[Any]]]:
    signature = task.codec.signature
    named = {one: kind for one, kind in signature.kinds.items() if one in signature.keyword}
    others = signature.kinds[signature.var_keyword] if signature.var_keyword else None
    by_position = [signature.kinds[one] for one in signature.positional]
    if signature.var_positional is not None:
        by_position.append(signature.kinds[signature.var_positional])
    builders = (
        shapes.object_builder(named, others),
        shapes.list_builder(by_position, last_repeats=signature.var_positional is not None),
        shapes.object_builder({"ok": task.codec.ok_type}),
    )
    return [
        ((name, part), mode, shapes.adapter_of(build)) for (part, mode), build in zip(_PARTS, builders, strict=True)
    ]


def _task(task: TaskDefinition[Any, Any], parts: Mapping[str, JsonSchemaValue]) -> dict[str, Any]:
    signature = task.codec.signature
    codes = {*task.exception_mapper.values(), *filter(None, [task.default_unhandled_error_code])}
    return {
        "queue": task.queue_name,
        "priority": task.priority,
        "arguments": _arguments(task, signature, dict(parts["arguments"])),
        "positional": _positional(signature, dict(parts["positional"])),
        "result": parts["result"]["properties"]["ok"],
        "errors": sorted(codes),
    }


def _arguments(task: TaskDefinition[Any, Any], signature: Signature, schema: JsonSchemaValue) -> JsonSchemaValue:
    """Whatever has no default must be there. A parameter that can only be given by position leaves no way by name."""
    if signature.required - signature.keyword:
        return NEVER
    schema.pop("title", None)
    properties = {name: dict(schema["properties"][name]) for name in signature.kinds if name in signature.keyword}
    for name, default in _defaults(task).items():
        if name in properties:
            properties[name]["default"] = default
    required = [name for name in properties if name in signature.required]
    schema["properties"] = properties
    schema.setdefault("additionalProperties", False)
    return schema | ({"required": required} if required else {})


def _positional(signature: Signature, schema: JsonSchemaValue) -> JsonSchemaValue:
    """A parameter that can only be given by name and has no default leaves no way by position."""
    if signature.required - set(signature.positional):
        return NEVER
    items = list(schema.pop("prefixItems", []))
    rest: Any = False
    if signature.var_positional is not None:
        # With a variadic end, pydantic has a single schema for all if there is nothing in front of it.
        rest = items.pop() if len(items) > len(signature.positional) else schema.get("items", {})
    schema.pop("title", None)
    least = sum(name in signature.required for name in signature.positional)
    found: JsonSchemaValue = {"type": "array", "minItems": least}
    return found | ({"prefixItems": items} if items else {}) | {"items": rest}


def _defaults(task: TaskDefinition[Any, Any]) -> dict[str, Any]:
    """The defaults that are JSON; they belong to the code, so a sender need not give them."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(task.fn).parameters.items():
        if parameter.default is inspect.Parameter.empty or name not in task.codec.signature.keyword:
            continue
        try:
            text = task.codec.arguments.encode_named({name: parameter.default})
        except CodecError:
            continue
        found[name] = json.loads(text or "{}").get(name)
    return found
