"""A typed TypeScript client from the document of an app's tasks (X-40): its types, and a small runtime over one
function that runs a statement (`typescript_client.ts`). The same document gives the same text.

Names come from others: every one is written as a quoted text, in which only ASCII stands as it is, and never inside a
comment; so no name can end a text or a comment. The names of types are made of letters, digits and `_` only.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RUNTIME = Path(__file__).with_name("typescript_client.ts")
HEAD = """\
// Made by `horsies schema --typescript`. Do not edit: make it anew when the tasks change.
//
//   const client = new Client((text, values) => pool.query(text, values));
//   const id = await client.send("name", {...}, { delay: 60 });
//   const ended = await client.wait(id, { timeout: 30_000 });

"""
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
_WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
_OURS = {
    "JsonValue", "Query", "TaskName", "TaskId", "SendOptions", "Ended", "TaskState", "WaitOptions", "WaitTimeout",
    "UnknownTask", "Client", "Tasks", "Date", "Error", "Promise", "Record", "Array", "Iterable", "Infinity", "Math",
    "String", "JSON", "ReturnType",
}  # fmt: skip


def client_of(document: Mapping[str, Any]) -> str:
    """The text of the client's module."""
    names = _type_names(document["$defs"])
    types = _Types(names)
    parts = [HEAD, RUNTIME.read_text(encoding="utf-8"), "\n"]
    for key, schema in document["$defs"].items():
        if key != "JsonValue":
            parts.append(f"export type {names[key]} = {types.of(schema)};\n\n")
    parts.append("/** Every task by its name. */\nexport interface Tasks {\n")
    for name, task in document["tasks"].items():
        given = types.union(_given(types, task))
        parts.append(
            f"  {_quoted(name)}: {{\n    arguments: {given};\n    result: {types.of(task['result'])};\n  }};\n"
        )
    parts.append("}\n")
    return "".join(parts)


def _given(types: "_Types", task: Mapping[str, Any]) -> Iterable[str]:
    """The ways in which arguments can be given: by name, and by position where nothing else will do."""
    if "not" not in task["arguments"]:
        yield types.of(task["arguments"])
    has_rest = task["positional"].get("items", False) is not False
    if "not" not in task["positional"] and ("not" in task["arguments"] or has_rest):
        yield types.of(task["positional"])


class _Types:
    """Writes schemas as types."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def of(self, schema: Any) -> str:
        if schema is False:
            return "never"
        if schema is True or not isinstance(schema, Mapping):
            return "JsonValue"
        if "$ref" in schema:
            return self._names[schema["$ref"].removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")]
        if "const" in schema:
            return _quoted(schema["const"])
        if "enum" in schema:
            return self.union(_quoted(value) for value in schema["enum"])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self.union(self.of(one) for one in options)
        if every := schema.get("allOf"):
            return " & ".join(f"({self.of(one)})" for one in every)
        match schema.get("type"):
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case list() as kinds:
                return self.union(self.of({**schema, "type": kind}) for kind in kinds)
            case str() as kind:
                return _WORDS[kind]
            case _:
                return self._object(schema) if "properties" in schema else "JsonValue"

    def union(self, parts: Iterable[str]) -> str:
        return " | ".join(dict.fromkeys(parts)) or "never"

    def _object(self, schema: Mapping[str, Any]) -> str:
        known: Mapping[str, Any] = schema.get("properties", {})
        required = set(schema.get("required", ()))
        members = [f"{_quoted(name)}{'' if name in required else '?'}: {self.of(one)}" for name, one in known.items()]
        others = schema.get("additionalProperties", schema.get("patternProperties"))
        if others not in (None, False) and not members:
            return f"{{ [name: string]: {self.of(others)} }}"
        # TypeScript wants every named member to fit an index signature, so further members are any JSON.
        named = f"{{ {'; '.join(members)} }}" if members else "{ [name: string]: never }"
        return f"({named} & {{ [name: string]: JsonValue | undefined }})" if others not in (None, False) else named

    def _array(self, schema: Mapping[str, Any]) -> str:
        first: Sequence[Any] = schema.get("prefixItems", ())
        rest = schema.get("items", not first)
        least = schema.get("minItems", 0)
        if not first:
            return f"Array<{self.of(rest)}>" if rest is not False else "[]"
        members = [f"({self.of(one)}){'' if place < least else '?'}" for place, one in enumerate(first)]
        tail = [] if rest is False else [f"...Array<{self.of(rest)}>"]
        return f"[{', '.join([*members, *tail])}]"


def _type_names(definitions: Mapping[str, Any]) -> dict[str, str]:
    """A name for each definition, that nothing else has."""
    found: dict[str, str] = {"JsonValue": "JsonValue"}
    taken = set(_OURS)
    for key in definitions:
        if key in found:
            continue
        name = _UNSAFE.sub("_", key).strip("_") or "Type"
        name = f"_{name}" if name[0].isdigit() else name
        name = name[0].upper() + name[1:]  # no reserved word begins with a capital letter
        free, number = name, 2
        while free in taken:
            free, number = f"{name}{number}", number + 1
        taken.add(free)
        found[key] = free
    return found


def _quoted(value: Any) -> str:
    """A literal of JavaScript: JSON, in which nothing but ASCII is left as it is."""
    return json.dumps(value, ensure_ascii=True).replace("</", "<\\/")
