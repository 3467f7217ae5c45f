"""The OpenAPI document of the JSON API, made from the same table that answers (`api.py`, `actions.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from horsies.core import distribution
from horsies.web.answers import JSON, RefusalBody
from horsies.web.endpoints import Endpoint, model_of
from horsies.web.security import INTENT, INTENT_HEADER

REFUSAL = TypeAdapter(RefusalBody)
TEMPLATE = "#/components/schemas/{model}"
COMMON = {
    400: "The host or the body is not acceptable.",
    403: "The policy does not allow it.",
    405: "The path has other methods.",
    422: "A parameter is wrong.",
    503: "The database does not answer.",
}
OF_ACTIONS = {
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "The state does not allow it, or the tables are of another version.",
    413: "The body is too large.",
    415: "The body is not JSON.",
}
NOT_FOUND = {404: "There is no such thing."}


def document(endpoints: Sequence[Endpoint], title: str, root: str) -> dict[str, Any]:
    """The whole document; `root` is where the dashboard is mounted."""
    answers, schemas = _answer_schemas(endpoints)
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, answers[endpoint], schemas)
        paths.setdefault(f"/api/{endpoint.path}", {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": f"{title} dashboard", "version": distribution.version()},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _answer_schemas(endpoints: Sequence[Endpoint]) -> tuple[dict[Endpoint, Any], dict[str, Any]]:
    """The schema of each answer, and those that they refer to."""
    inputs: list[Any] = [(endpoint, "serialization", TypeAdapter(endpoint.answer)) for endpoint in endpoints]
    inputs.append((None, "serialization", REFUSAL))
    found, definitions = TypeAdapter.json_schemas(inputs, ref_template=TEMPLATE)
    schemas: dict[str, Any] = dict(definitions.get("$defs", {}))
    return {key: schema for (key, _), schema in found.items() if key is not None}, schemas


def _operation(endpoint: Endpoint, answer: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    parameters, definitions = _parameters(endpoint)
    schemas |= definitions
    statuses = COMMON | (OF_ACTIONS if endpoint.action else NOT_FOUND if endpoint.in_path else {})
    refusal = {"content": {JSON: {"schema": {"$ref": TEMPLATE.format(model=RefusalBody.__name__)}}}}
    operation: dict[str, Any] = {
        "operationId": _name_of(endpoint),
        "summary": endpoint.doc,
        "parameters": [
            {"name": name, "in": "path", "required": True, **_described(parameters[name])} for name in endpoint.in_path
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {endpoint.media_type: {"schema": answer}}},
            **{str(status): {"description": words, **refusal} for status, words in sorted(statuses.items())},
        },
    }
    if endpoint.action is None:
        operation["parameters"] += [
            {"name": param.name, "in": "query", "required": param.default is ..., **_described(parameters[param.name])}
            for param in endpoint.others
        ]
        return operation
    operation["parameters"].append(
        {"name": INTENT_HEADER, "in": "header", "required": True, "schema": {"type": "string", "const": INTENT}}
    )
    body = {"type": "object", "additionalProperties": False}
    body["properties"] = {param.name: parameters[param.name] for param in endpoint.others}
    operation["requestBody"] = {"required": False, "content": {JSON: {"schema": body}}}
    return operation


def _parameters(endpoint: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of each parameter, and those that they refer to."""
    model = model_of(endpoint)
    found, definitions = models_json_schema([(model, "validation")], ref_template=TEMPLATE)
    schemas = dict(definitions.get("$defs", {}))
    own = schemas.pop(found[model, "validation"]["$ref"].rpartition("/")[2])
    return own.get("properties", {}), schemas


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in schema.items() if name not in ("description", "title")}
    return {"description": schema.get("description", ""), "schema": rest}


def _name_of(endpoint: Endpoint) -> str:
    words = endpoint.path.replace("{", "").replace("}", "").replace("/", "_").replace(".", "_")
    return f"{endpoint.method.lower()}_{words}"
