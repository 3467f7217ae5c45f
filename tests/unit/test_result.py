"""Ok and Err (T-03a, T-65)."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from horsies import Err, Ok, Result, is_err, is_ok
from tests.each import each


def half(number: int) -> Result[int, str]:
    return Ok(number // 2) if number % 2 == 0 else Err("odd")


def test_t65_match_positionally() -> None:
    seen = []
    for result in (half(4), half(3)):
        match result:
            case Ok(value):
                seen.append(value)
            case Err(error):
                seen.append(error)
    assert seen == [2, "odd"]


def test_t65_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ok(1).value = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Err(1).error = 2  # type: ignore[misc]


@each("result", [Ok(1), Err("e")])
def test_t03a_no_attribute_can_be_set_or_deleted(result: Result[int, str]) -> None:
    for name in ("value", "error", "other", "ok"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(result, name, 2)
        with pytest.raises((AttributeError, TypeError)):
            delattr(result, name)
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result


def test_t65_values_of_the_right_side() -> None:
    assert (Ok(1).ok_value, Ok(1).unwrap(), Err("e").err_value, Err("e").unwrap_err()) == (1, 1, "e", "e")
    assert Ok(1).is_ok() and not Ok(1).is_err() and Err(1).is_err() and not Err(1).is_ok()
    assert is_ok(Ok(1)) and is_err(Err(1)) and not is_ok(Err(1)) and not is_err(Ok(1))


@each(
    "wrong",
    [
        lambda: Err("e").ok_value,
        lambda: Err("e").unwrap(),
        lambda: Err("e").expect("said"),
        lambda: Ok(1).err_value,
        lambda: Ok(1).unwrap_err(),
    ],
)
def test_t65_values_of_the_wrong_side_raise_value_error(wrong) -> None:
    with pytest.raises(ValueError):
        wrong()


def test_t65_unwrapping_an_exception_keeps_it_as_the_cause() -> None:
    cause = OSError("gone")
    with pytest.raises(ValueError) as raised:
        Err(cause).unwrap()
    assert raised.value.__cause__ is cause


def test_t03a_expect_says_what_was_expected() -> None:
    with pytest.raises(ValueError, match="a number: 'odd'"):
        half(3).expect("a number")


def test_t03a_defaults() -> None:
    assert (Ok(1).unwrap_or(9), Err("e").unwrap_or(9)) == (1, 9)
    assert Ok(1).unwrap_or_raise(KeyError("k")) == 1
    with pytest.raises(KeyError, match="k"):
        Err("e").unwrap_or_raise(KeyError("k"))


def test_t03a_ok_and_err_are_the_value_or_none() -> None:
    assert (Ok(1).ok(), Ok(1).err(), Err("e").ok(), Err("e").err()) == (1, None, None, "e")


class Strict(Exception):
    def __init__(self) -> None:
        super().__init__("no")


def test_t03a_a_class_of_exceptions_is_raised_with_the_error() -> None:
    with pytest.raises(ValueError, match=r"^nay$") as raised:
        Err("nay").unwrap_or_raise(ValueError)
    assert raised.value.args == ("nay",)
    with pytest.raises(Strict) as other:
        Err("nay").unwrap_or_raise(Strict)
    assert other.value.__notes__ == ["the error was 'nay'"], "a class that takes no error is told of it all the same"


def test_t03a_an_error_that_is_an_exception_becomes_the_cause() -> None:
    problem, own = OSError("gone"), KeyError("own")
    for given in (ValueError, ValueError("instead")):
        with pytest.raises(ValueError) as raised:
            Err(problem).unwrap_or_raise(given)
        assert raised.value.__cause__ is problem
    with pytest.raises(OSError, match="gone"):
        Err(problem).unwrap_or_raise(problem)
    caused = ValueError("with a cause")
    caused.__cause__ = own
    with pytest.raises(ValueError) as kept:
        Err(problem).unwrap_or_raise(caused)
    assert kept.value.__cause__ is own


def test_t03a_maps() -> None:
    assert (Ok(2).map(str), Err("e").map(str)) == (Ok("2"), Err("e"))
