"""`Ok` and `Err`: expected outcomes as values. `Result[T, E]` is `Ok[T] | Err[E]`.

Both are frozen, match positionally (`case Ok(value)`, `case Err(error)`) and have the customary methods, each defined
on both sides so that a type checker understands the union.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

from typing_extensions import TypeIs

T = TypeVar("T")
E = TypeVar("E")
U = TypeVar("U")
T_co = TypeVar("T_co", covariant=True)
E_co = TypeVar("E_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Ok(Generic[T_co]):
    """A success."""

    value: T_co

    def is_ok(self) -> Literal[True]:
        return True

    def is_err(self) -> Literal[False]:
        return False

    def ok(self) -> T_co:
        """The value; `Err` has None here."""
        return self.value

    def err(self) -> None:
        """None; `Err` has its error here."""

    @property
    def ok_value(self) -> T_co:
        return self.value

    @property
    def err_value(self) -> NoReturn:
        raise ValueError(f"there is no error value in {self!r}")

    def unwrap(self) -> T_co:
        return self.value

    def unwrap_err(self) -> NoReturn:
        raise ValueError(f"unwrap_err() called on {self!r}")

    def expect(self, msg: str) -> T_co:
        return self.value

    def unwrap_or(self, default: object) -> T_co:
        return self.value

    def unwrap_or_raise(self, exc: BaseException | type[BaseException]) -> T_co:
        return self.value

    def map(self, fn: Callable[[T_co], U]) -> Ok[U]:
        return Ok(fn(self.value))


@dataclass(frozen=True, slots=True)
class Err(Generic[E_co]):
    """A failure."""

    error: E_co

    def is_ok(self) -> Literal[False]:
        return False

    def is_err(self) -> Literal[True]:
        return True

    def ok(self) -> None:
        """None; `Ok` has its value here."""

    def err(self) -> E_co:
        """The error; `Ok` has None here."""
        return self.error

    @property
    def ok_value(self) -> NoReturn:
        raise ValueError(f"there is no ok value in {self!r}")

    @property
    def err_value(self) -> E_co:
        return self.error

    def unwrap(self) -> NoReturn:
        self._fail(f"unwrap() called on {self!r}")

    def unwrap_err(self) -> E_co:
        return self.error

    def expect(self, msg: str) -> NoReturn:
        self._fail(f"{msg}: {self.error!r}")

    def unwrap_or(self, default: U) -> U:
        return default

    def unwrap_or_raise(self, exc: BaseException | type[BaseException]) -> NoReturn:
        """Raise the exception. A class is called with the error, so that the error is not lost."""
        made = self._made(exc)
        if isinstance(self.error, BaseException) and made is not self.error and made.__cause__ is None:
            made.__cause__ = self.error
        raise made

    def map(self, fn: Callable[[Any], object]) -> Err[E_co]:
        return self

    def _made(self, exc: BaseException | type[BaseException]) -> BaseException:
        if isinstance(exc, BaseException):
            return exc
        try:
            return exc(self.error)
        except TypeError:  # it takes other arguments
            made = exc()
            made.add_note(f"the error was {self.error!r}")
            return made

    def _fail(self, text: str) -> NoReturn:
        # A wrapped exception stays visible as the cause of the new one.
        raise ValueError(text) from (self.error if isinstance(self.error, BaseException) else None)


Result: TypeAlias = Ok[T] | Err[E]


def is_ok(result: Result[T, E]) -> TypeIs[Ok[T]]:
    """True for `Ok`; narrows the type on both branches."""
    return isinstance(result, Ok)


def is_err(result: Result[T, E]) -> TypeIs[Err[E]]:
    """True for `Err`; narrows the type on both branches."""
    return isinstance(result, Err) and result.is_err()  # it is asked, so that it knows that somebody has looked
