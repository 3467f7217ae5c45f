"""Values to JSON and back, by declared type (T-100 to T-106)."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    computed_field,
    field_serializer,
    field_validator,
)
from typing_extensions import TypedDict

from horsies import Err, Ok, OutcomeCode, TaskError, TaskResult
from horsies.core.codec.arguments import read
from horsies.core.codec.serde import (
    TaskCodec,
    args_to_json,
    dumps_json,
    kwargs_to_json,
    loads_json,
    sanitize_text,
    serialize_error_payload,
    task_result_from_json,
)
from horsies.core.codec.shapes import CodecError
from tests.each import each

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    raw: bytes = b""


class Box(TypedDict):
    size: int
    raw: NotRequired[bytes]


class Pair(NamedTuple):
    left: int
    right: str


class User(BaseModel):
    name: str = Field(alias="userName")
    friends: list[User] = []
    score: float = 0.0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def loud(self) -> str:
        return self.name.upper()


class Page(BaseModel, Generic[T]):
    items: list[T]


def codec_for(fn: Callable[..., Any], ok_type: Any = int) -> TaskCodec:
    return TaskCodec(read(fn), ok_type)


def codec_of(kind: Any) -> TaskCodec:
    """The codec of a task that takes one value of this type and returns one."""

    def fn(value, *, named=None):  # type: ignore[no-untyped-def]
        pass

    fn.__annotations__.update(value=kind, named=kind)
    return codec_for(fn, kind)


SUPPORTED: list[tuple[Any, Any]] = [
    (int, 5),
    (int, 2**80),
    (float, 0.1),
    (bool, True),
    (str, "ü\u2028\0 \U0001f40e"),
    (bytes, b"\xff\x00"),
    (type(None), None),
    (int | None, None),
    (int | str, "5"),
    (Literal["a", 3], 3),
    (datetime, datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (datetime, datetime(2026, 1, 2)),
    (date, date(2026, 1, 2)),
    (time, time(1, 2, 3)),
    (timedelta, timedelta(days=400, microseconds=1)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Path, Path("/a/b")),
    (re.Pattern[str], re.compile("a+")),
    (Color, Color.BLUE),
    (list[Color], [Color.RED, Color.BLUE]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (deque[int], deque([1, 2])),
    (dict[int, str], {1: "a"}),
    (dict[str, list[date]], {"a": [date(2026, 1, 2)]}),
    (Point, Point(1, b"\xfe")),
    (list[Point], [Point(1, b"\xfe")]),
    (Box, {"size": 1, "raw": b"\xfd"}),
    (Pair, Pair(1, "a")),
    (User, User(userName="u", friends=[User(userName="v")], score=1.5)),
    (Page[User], Page[User](items=[User(userName="u")])),
    (User | Point, Point(1)),
    (Annotated[int, Field(gt=3)], 4),
    (TaskResult[Point, TaskError], TaskResult(ok=Point(1))),
    (TaskResult[int, TaskError], TaskResult(err=TaskError(error_code=OutcomeCode.TASK_EXPIRED, data={"a": [1]}))),
    (Any, {"a": [1, 2.5, None, "x", True, {}]}),
    (dict, {"a": 1}),
    (list, [1, "a"]),
    (object, "a"),
]


@pytest.mark.parametrize(("kind", "value"), SUPPORTED, ids=lambda part: str(part)[:40])
def test_t102_values_come_back_as_they_were_sent(kind: Any, value: Any) -> None:
    codec = codec_of(kind)
    args_json, kwargs_json = codec.arguments.encode((value,), {"named": value})
    ((by_position,), named) = codec.arguments.decode(args_json, kwargs_json)
    result = codec.result.decode(codec.result.encode(TaskResult(ok=value)))
    for back in (by_position, named["named"], result.ok):
        assert back == value and type(back) is type(value)


def test_t100_stored_text_is_plain_json_and_names_no_class() -> None:
    args_json, kwargs_json = codec_of(User).arguments.encode((User(userName="u"),), {"named": User(userName="v")})
    assert json.loads(args_json or "") == [{"name": "u", "friends": [], "score": 0.0}]
    assert json.loads(kwargs_json or "") == {"named": {"name": "v", "friends": [], "score": 0.0}}


def test_t102_models_are_read_by_name_and_by_alias() -> None:
    codec = codec_of(User)
    for key in ("name", "userName"):
        assert codec.arguments.decode(f'[{{"{key}":"u"}}]', None)[0] == (User(userName="u"),)


def test_t102_nothing_given_is_null() -> None:
    def fn(a: int = 1) -> None: ...

    assert codec_for(fn).arguments.encode((), {}) == (None, None)
    assert codec_for(fn).arguments.decode(None, None) == ((), {})


class Excluded(BaseModel):
    needed: str = Field(exclude=True)


class BadSerializer(BaseModel):
    x: int

    @field_serializer("x")
    def _text(self, x: int) -> str:
        return "hunter2"


class Raising(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def _boom(cls, x: int) -> int:
        if x == 13:
            raise RuntimeError("hunter2")
        return x


class RawBytes(BaseModel):
    raw: bytes


REFUSED: list[tuple[Any, Any, str]] = [
    (int, "5", "value: Input should be a valid integer"),
    (int, True, "value: Input should be a valid integer"),
    (int, 1.0, "valid integer"),
    (str, b"x", "valid string"),
    (date, "2026-01-01", "valid date"),
    (tuple[int, int], [1, 2], "valid tuple"),
    (Color, 1, "instance of Color"),
    (Point, {"x": 1}, "instance of Point"),
    (User, {"userName": 5}, "value.userName: Input should be a valid string"),
    (Annotated[int, Field(gt=3)], 3, "greater than 3"),
    (list[int], [1, "x"], r"value\[1\]: Input should be a valid integer"),
    (Box, {"size": "x"}, "value.size: "),
    (float, math.nan, "value: NaN and Infinity"),
    (float, -math.inf, "value: NaN and Infinity"),
    (Any, {"a": [math.nan]}, r"value.a\[0\]: NaN"),
    (Decimal, Decimal("NaN"), "value: Input should be a finite number"),
    (User, User(userName="u", score=math.nan), "value.score: NaN"),
    (Point | None, Point(math.nan), "value"),  # type: ignore[arg-type]
    (str, "a\ud800", "value: the text contains lone surrogates"),
    (dict[str, int], {"\udc80": 1}, "lone surrogates"),
    (User, User(userName="\ud800"), "value.name: the text contains lone surrogates"),
    (Any, datetime(2026, 1, 2), "not a valid JSON value; annotate it to send other types"),
    (Any, (1, 2), "not a valid JSON value"),
    (Any, print, "not a valid JSON value"),
    (dict[str, Any], {"a": {1, 2}}, "value.a: "),
    (dict, {1: 2}, "valid string"),
    (Callable[[], int], print, "Unable to serialize unknown type"),
    (dict[tuple[int, int], int], {(1, 2): 3}, "cannot be read back"),
    (Excluded, Excluded(needed="x"), "cannot be read back: value.needed: Field required"),
    (User, User.model_construct(name=5), "cannot be read back: value.name"),
    (int, 10**5000, "cannot be read back"),
    (Annotated[int | None, PlainSerializer(lambda value: "x")], 1, "cannot be read back"),
    (list[Annotated[int | None, PlainSerializer(lambda value: "x")]], [1], "cannot be read back"),
    (Annotated[tuple[int, int], PlainSerializer(lambda value: [1])], (1, 2), "cannot be read back"),
    (SecretStr, SecretStr("x"), "secret"),
    (RawBytes, RawBytes(raw=b"\xff"), "ser_json_bytes"),
]


@each(("kind", "value", "why"), REFUSED, ids=[f"{kind}"[:40] for kind, _, _ in REFUSED])
def test_t104_what_does_not_fit_is_refused_and_located(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec_of(kind).arguments.encode((value,), {})
    with pytest.raises(
        CodecError, match=re.sub("^value|: value", lambda found: found[0].replace("value", "named"), why)
    ):
        codec_of_named(kind).arguments.encode((), {"named": value})


def codec_of_named(kind: Any) -> TaskCodec:
    def fn(*, named):  # type: ignore[no-untyped-def]
        pass

    fn.__annotations__.update(named=kind)
    return codec_for(fn)


def test_t103_deep_nesting_is_refused_before_a_worker_meets_it() -> None:
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    with pytest.raises(CodecError):
        codec_of(Any).arguments.encode((nested,), {})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(CodecError):
        codec_of(Any).arguments.encode((loop,), {})


@each(
    ("kind", "value"),
    [
        (int, "hunter2"),
        (list[int], ["hunter2"]),
        (User, {"userName": ["hunter2"]}),
        (BadSerializer, BadSerializer(x=1)),
        (Raising, Raising.model_construct(x=13)),
        (Literal["a"], "hunter2"),
        (UUID, "hunter2"),
        (Any, {"a": b"hunter2"}),
        (User, User.model_construct(name={"hunter2"})),
    ],
)
def test_t104_values_are_not_echoed(kind: Any, value: Any) -> None:
    with pytest.raises(CodecError) as raised:
        codec_of(kind).arguments.encode((value,), {})
    assert "hunter2" not in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_t103_no_annotation_means_any_json_value() -> None:
    def fn(a, *rest, **more):  # type: ignore[no-untyped-def]
        pass

    codec = codec_for(fn)
    encoded = codec.arguments.encode(({"x": None}, [1]), {"k": "v"})
    assert codec.arguments.decode(*encoded) == (({"x": None}, [1]), {"k": "v"})
    for args, kwargs in (((date.today(),), {}), ((1, date.today()), {}), ((1,), {"k": date.today()})):
        with pytest.raises(CodecError):
            codec.arguments.encode(args, kwargs)


def every_kind(a: int, /, b: date, c: int = 0, *rest: Color, d: bytes, e: int = 0, **more: Point) -> None: ...


def test_t45_all_kinds_of_parameters() -> None:
    codec = codec_for(every_kind)
    day = date(2026, 1, 2)
    for args, kwargs in [
        ((1, day), {"d": b"\xff"}),
        ((1,), {"b": day, "d": b""}),
        ((1, day, 3, Color.RED, Color.BLUE), {"d": b"", "e": 5, "x": Point(1), "a": Point(2)}),
    ]:
        assert codec.arguments.decode(*codec.arguments.encode(args, kwargs)) == (args, kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((), {}, "missing argument.*'a', 'b', 'd'"),
        ((1,), {"d": b""}, "missing argument.*'b'"),
        ((1, date.min), {"d": b"", "b": date.min}, "'b' was given twice"),
        ((1, date.min, 0, "x"), {"d": b""}, r"rest\[0\]: "),
        ((1, date.min), {"d": b"", "z": 5}, "z: "),
    ],
)
def test_t45_binding_problems(args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec_for(every_kind).arguments.encode(args, kwargs)


def two(a: int, b: int = 0, /, *, c: int = 0) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ((1, 2, 3), {}, "takes 2 positional argument.*3 were given"),
        ((1,), {"z": 1}, "unknown argument 'z'"),
        ((1,), {"b": 1}, "'b' can only be given by position"),
        ((), {"a": 1}, "'a' can only be given by position"),
    ],
)
def test_t45_unknown_and_misplaced_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(CodecError, match=why):
        codec_for(two).arguments.encode(args, kwargs)


def test_t45_calls_with_different_numbers_of_arguments_do_not_disturb_each_other() -> None:
    codec = codec_for(two)
    for args in ((1,), (1, 2), (3,), (4, 5), (6, 7)):
        encoded = codec.arguments.encode(args, {})
        assert codec.arguments.decode(*encoded) == (args, {})


def test_t106_a_name_that_does_not_fit_is_told_with_what_was_meant() -> None:
    def ship(to: str, copies: int = 1, *, workflow_ctx: Any = None) -> None: ...

    decode = codec_for(ship).arguments.decode
    for text, why in (
        ('{"too": "ann"}', "^unknown argument 'too'; did you mean 'to'\\?$"),
        ('{"copies": "many"}', "^missing argument\\(s\\): 'to'$"),
        ('{"to": 1, "copies": 1}', "^to: "),
        ('{"to": "ann", "%s": 1}' % ("x" * 1_000_000), "^unknown argument 'x{100}…'$"),
        ("[]", "object"),
    ):
        with pytest.raises(CodecError, match=why):
            decode(None, text)


@each(
    ("args_json", "kwargs_json"),
    [
        ("", None),
        ("[1", None),
        ("{}", None),
        ("5", None),
        ("null", None),
        ("[]", None),
        ("[1,2,3]", None),
        ('["x"]', None),
        ("[1.5]", None),
        ("[1]", "[]"),
        ("[1]", '{"z":1}'),
        ("[1]", '{"b":1}'),
        ("[1]", '{"c":"x"}'),
        ("[1]", "{"),
        ("[1]\ud800", None),
        (None, None),
        ("[" * 500 + "]" * 500, None),
    ],
)
def test_t106_texts_that_do_not_decode(args_json: str | None, kwargs_json: str | None) -> None:
    with pytest.raises(CodecError):
        codec_for(two).arguments.decode(args_json, kwargs_json)


def test_t102_arguments_inserted_by_hand_are_read_leniently() -> None:
    def fn(when: datetime, raw: bytes, tags: set[str]) -> None: ...

    text = '["2026-01-02T00:00:00+00:00", "/w==", ["a", "a"]]'
    assert codec_for(fn).arguments.decode(text, None)[0] == (datetime(2026, 1, 2, tzinfo=UTC), b"\xff", {"a"})


def test_t64_without_a_type_the_value_stays_plain() -> None:
    text = codec_of(User).result.encode(TaskResult(ok=User(userName="u")))
    assert task_result_from_json(text).unwrap().ok == {"name": "u", "friends": [], "score": 0.0}


def test_t101_functions_return_values() -> None:
    assert args_to_json((1, "a", None)) == Ok('[1,"a",null]')
    assert kwargs_to_json({"a": [True]}) == Ok('{"a":[true]}')
    assert dumps_json({"a": "\0"}) == Ok('{"a":"\\u0000"}') and dumps_json(None) == Ok("null")
    assert loads_json('{"a":[1]}') == Ok({"a": [1]}) and loads_json(None) == Ok(None)


@each("value", [math.nan, {"a": math.inf}, object(), date.today(), {1: 2}, "\ud800", [print]])
def test_t101_what_is_not_json_is_an_err(value: Any) -> None:
    for made in (dumps_json(value), args_to_json((value,)), kwargs_to_json({"a": value})):
        assert isinstance(made, Err) and made.error.message


@each("text", ["", "{", "NaN", "[Infinity]", "nul", "[" * 100_000])
def test_t101_texts_that_are_not_json_are_an_err(text: str) -> None:
    assert isinstance(loads_json(text), Err)


class Unfriendly:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


@each(
    "error",
    [
        TaskError(error_code="X", message="fine", data={"a": 1}),
        TaskError(error_code="X", message="a\ud800\0"),
        TaskError(error_code="X\ud800"),
        TaskError(error_code="X", data=object()),
        TaskError(error_code="X", data={"a": math.nan}),
        TaskError(error_code="X", data=Unfriendly()),
        TaskError(error_code="X", data={(1, 2): 3}),
        TaskError(error_code="X", exception={"a": object(), "b": math.nan, "c": "\ud800"}),
        TaskError(error_code="X", exception={"a": Unfriendly()}),
        TaskError(error_code=OutcomeCode.TASK_EXPIRED, data=object()),
        TaskError.model_construct(error_code=5, message=object(), data=object(), exception=object()),
    ],
)
def test_t101_error_payloads_are_always_valid_json(error: TaskError) -> None:
    text = serialize_error_payload(TaskResult(err=error))
    text.encode()
    back = task_result_from_json(text).unwrap()
    assert back.is_err() and "err" in json.loads(text)


def test_t101_a_presentable_error_keeps_its_code_and_message() -> None:
    error = TaskError(error_code="X", message="a\ud800", data=object(), exception={"type": "E\ud800"})
    back = task_result_from_json(serialize_error_payload(TaskResult(err=error))).unwrap().err_value
    assert (back.error_code, back.message) == ("X", "a\ufffd")
    assert back.data == {"unserializable": "object"} and back.exception == {"type": "E\ufffd"}


def test_sanitized_text_fits_a_text_column() -> None:
    assert sanitize_text("plain ü \U0001f40e") == "plain ü \U0001f40e"
    assert sanitize_text("a\0b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"
    sanitize_text("\ud83d\udc0e" + "\ud800").encode()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=15,
)

ANY_CODEC = codec_of(Any)
MANY_CODEC = codec_of(tuple[bytes, datetime, Decimal, dict[str, set[int]], Sequence[str | None]])


@given(json_values)
@settings(max_examples=200, deadline=None)
def test_t102_any_json_value_round_trips(value: Any) -> None:
    encoded = ANY_CODEC.arguments.encode((value,), {"named": value})
    back = ANY_CODEC.arguments.decode(*encoded)
    assert back == ((value,), {"named": value})
    assert repr(back) == repr(((value,), {"named": value}))  # 1 and 1.0 and True are equal, but not the same
    encoded[0].encode()  # type: ignore[union-attr]


@given(
    st.tuples(
        st.binary(),
        st.datetimes(timezones=st.just(UTC)),
        st.decimals(allow_nan=False, allow_infinity=False),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.sets(st.integers())),
        st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))),
    )
)
@settings(max_examples=200, deadline=None)
def test_t102_typed_values_round_trip(value: Any) -> None:
    text = MANY_CODEC.result.encode(TaskResult(ok=value))
    assert MANY_CODEC.result.decode(text) == TaskResult(ok=value)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.a


def test_t102_computed_fields_do_not_get_in_the_way() -> None:
    codec = codec_of(Strict)
    assert codec.arguments.decode(*codec.arguments.encode((Strict(a=1),), {}))[0] == (Strict(a=1),)


PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    str: st.text(st.characters(codec="utf-8")),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    list[int]: st.lists(st.integers()),
    list[str | None]: st.lists(st.none() | st.text(st.characters(codec="utf-8"))),
}
PLAIN_CODECS = {kind: codec_of(kind) for kind in PLAIN}


@given(st.sampled_from(list(PLAIN)), st.data())
@settings(max_examples=200, deadline=None)
def test_t102_plain_values_are_read_as_they_were_written(kind: Any, data: st.DataObject) -> None:
    """Nobody reads them back when they are sent."""
    value, codec = data.draw(PLAIN[kind]), PLAIN_CODECS[kind]
    assert codec.arguments.decode(*codec.arguments.encode((value,), {}))[0] == (value,)
    assert codec.result.decode(codec.result.encode(TaskResult(ok=value))) == TaskResult(ok=value)
