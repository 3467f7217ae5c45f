"""Does a value fit a JSON Schema? As much of the standard as our own documents use; a word that is not known here fails
the test, so that nothing is passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

TYPES: Mapping[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
SAID_ONLY = {"title", "description", "default"}
CHECKED = {
    "$ref", "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
    "anyOf", "enum", "const", "format", "maxLength", "minimum", "maximum", "exclusiveMinimum",
}  # fmt: skip


def problems(value: Any, schema: Any, document: Mapping[str, Any], where: str = "$") -> list[str]:
    """Where the value does not fit, and why."""
    if schema is True or schema == {}:
        return []
    if unknown := schema.keys() - CHECKED - SAID_ONLY:
        return [f"{where}: the schema says {sorted(unknown)}, which is not known here"]
    if "$ref" in schema:
        return problems(value, _referred(schema["$ref"], document), document, where)
    if "anyOf" in schema:
        tried = [problems(value, one, document, where) for one in schema["anyOf"]]
        return [] if any(not one for one in tried) else [line for one in tried for line in one]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    if "const" in schema and value != schema["const"]:
        return [f"{where}: {value!r} is not {schema['const']!r}"]
    return [*_of_type(value, schema, where), *_of_parts(value, schema, document, where)]


def _referred(reference: str, document: Mapping[str, Any]) -> Any:
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def _of_type(value: Any, schema: Mapping[str, Any], where: str) -> list[str]:
    wanted = schema.get("type")
    if wanted is not None:
        is_number = isinstance(value, bool) and wanted in ("integer", "number")
        if is_number or not isinstance(value, TYPES[wanted]):
            return [f"{where}: {value!r} is no {wanted}"]
    if schema.get("format") == "date-time" and not value.endswith("Z"):
        return [f"{where}: {value} is not in UTC"]
    if schema.get("format") == "date-time":
        datetime.fromisoformat(value)
    return []


def _of_parts(value: Any, schema: Mapping[str, Any], document: Mapping[str, Any], where: str) -> list[str]:
    found: list[str] = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{where}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        for name, one in value.items():
            # An answer has nothing that the document does not name.
            inner = known.get(name, schema.get("additionalProperties", not known))
            if inner is False:
                found.append(f"{where}: {name} is not in the document")
            else:
                found += problems(one, inner, document, f"{where}.{name}")
    if isinstance(value, list):
        for place, one in enumerate(value):
            found += problems(one, schema.get("items", True), document, f"{where}[{place}]")
    return found
