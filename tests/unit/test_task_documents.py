"""JSON Schema of tasks (X-40): what the codec writes fits it, and what does not fit is refused by the codec."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from horsies.core.codec.shapes import CodecError
from horsies.core.tasks.documents import document_of
from tests.apps import doors
from tests.each import each

DOCUMENT = document_of(doors.app.tasks)


def problems(task: str, part: str, value: Any) -> list[str]:
    schema = {**DOCUMENT["tasks"][task][part], "$defs": DOCUMENT["$defs"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def test_x40_the_document_is_a_schema_and_its_order_is_stable() -> None:
    for task in DOCUMENT["tasks"].values():
        for part in ("arguments", "positional", "result"):
            Draft202012Validator.check_schema({**task[part], "$defs": DOCUMENT["$defs"]})
    assert DOCUMENT["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(DOCUMENT["tasks"]) == sorted(doors.app.tasks)
    assert json.dumps(document_of(dict(reversed(doors.app.tasks.items())))) == json.dumps(DOCUMENT)


def test_x40_it_says_what_a_sender_must_give() -> None:
    mail = DOCUMENT["tasks"]["mail.send"]
    assert (mail["queue"], mail["priority"], mail["errors"]) == ("mail", 7, ["REFUSED"])
    assert mail["arguments"] == {
        "type": "object",
        "properties": {"to": {"type": "string"}, "copies": {"type": "integer", "default": 1}},
        "additionalProperties": False,
        "required": ["to"],
    }
    assert DOCUMENT["tasks"]["by_position"]["arguments"] == {"not": {}}
    assert DOCUMENT["tasks"]["every/kind"]["arguments"]["properties"]["raw"] == {
        "type": "string",
        "contentEncoding": "base64url",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab\u2028", max_size=3),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=4,
)
POINTS = st.builds(doors.Point, st.integers(), st.floats(allow_nan=False, allow_infinity=False))
LINES = st.deferred(
    lambda: st.builds(lambda first, parent: doors.Line(**{"from": first, "parent": parent}), POINTS, st.none() | LINES)
)
CALLS = st.fixed_dictionaries(
    {
        "text": st.text(max_size=5),
        "when": st.datetimes(timezones=st.timezones()),
        "day": st.dates(),
        "took": st.timedeltas(),
        "price": st.decimals(allow_nan=False, allow_infinity=False),
        "key": st.uuids(),
        "color": st.sampled_from(doors.Color),
        "raw": st.binary(max_size=9),
        "address": st.fixed_dictionaries({"street": st.text(max_size=3)}, optional={"number": st.integers()}),
        "pair": st.tuples(st.integers(), st.text(max_size=3)),
        "members": st.sets(st.integers(), max_size=3),
        "word": st.sampled_from(["x", 1]),
    },
    optional={"line": st.none() | LINES, "anything": JSON, "number": st.floats(allow_nan=False, allow_infinity=False)},
)  # fmt: skip


@given(CALLS)
def test_x40_what_the_codec_writes_fits_the_document(call: dict[str, Any]) -> None:
    codec = doors.every_kind.codec
    try:
        _, written = codec.arguments.encode((), call)
    except (CodecError, UnicodeError):
        return  # lone surrogates, or a time outside of the calendar: nothing is sent
    assert written is not None and problems("every/kind", "arguments", json.loads(written)) == []
    value = {"price": call["price"], "raw": call["raw"], "line": call.get("line")}
    stored = json.loads(codec.result.encode(_ok(value)))["ok"]
    assert problems("every/kind", "result", stored) == []


def _ok(value: Any) -> Any:
    from horsies import TaskResult

    return TaskResult(ok=value)


@given(
    st.integers(),
    st.lists(st.text("abc", max_size=2), max_size=3),
    st.dictionaries(st.text("xyz", min_size=1), st.integers()),
)
def test_x40_arguments_by_position_and_any_name_fit_too(first: int, rest: list[str], more: dict[str, int]) -> None:
    args, kwargs = doors.variadic.codec.arguments.encode((first, *rest), more)
    assert problems("variadic", "positional", json.loads(args or "")) == []
    assert problems("variadic", "arguments", {"first": first, **json.loads(kwargs or "{}")}) == []


@each(
    ("task", "part", "value"),
    [
        ("mail.send", "arguments", {}),
        ("mail.send", "arguments", {"to": 5}),
        ("mail.send", "arguments", {"to": "a", "bcc": "b"}),
        ("mail.send", "positional", ["a", 1, 2]),
        ("mail.send", "positional", []),
        ("by_position", "arguments", {"first": 1}),
        ("variadic", "positional", [1, 2]),
        ("variadic", "arguments", {"first": 1, "x": "text"}),
    ],
)
def test_x40_what_does_not_fit_is_refused_by_the_worker_as_well(task: str, part: str, value: Any) -> None:
    assert problems(task, part, value)
    text = json.dumps(value)
    with pytest.raises(CodecError):
        doors.app.tasks[task].codec.arguments.decode(*((None, text) if part == "arguments" else (text, None)))
