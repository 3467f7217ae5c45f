"""Which types can be taken for which (F-33, F-95)."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

from pydantic import BaseModel

from horsies import TaskError, TaskResult
from horsies.core.models.workflow.input_checks import element_of, fits
from tests.each import each

UserId = NewType("UserId", int)


class Animal(BaseModel):
    pass


class Dog(Animal):
    pass


@dataclass
class Stone:
    pass


class Shape(TypedDict):
    sides: int


@each(
    ("source", "target", "expected"),
    [
        (int, int, True),
        (int, str, False),
        (int, float, True),
        (float, int, False),
        (Any, str, True),
        (str, Any, True),
        (object, str, True),
        (None, None, True),
        (type(None), None, True),
        (int, None, False),
        (Dog, Animal, True),
        (Animal, Dog, False),
        (Stone, Animal, False),
        (Shape, dict, True),
        (UserId, int, True),
        (int, UserId, True),
        (Annotated[int, "x"], int, True),
        (int, int | str, True),
        (int | str, int, False),
        (int | None, Optional[int], True),  # noqa: UP045
        (int, Union[str, bytes], False),  # noqa: UP007
        (list[int], list[int], True),
        (list[int], list[Any], True),
        (list[int], list, True),
        (list, list[int], True),
        (list[int], list[str], False),
        (list[int], collections.abc.Sequence[int], True),
        (list[int], dict[str, int], False),
        (dict[str, int], dict[str, str], False),
        (tuple[int, int], tuple[int, ...], True),
        (tuple[int, str], tuple[int, ...], False),
        (tuple[int, str], tuple[int, str], True),
        (tuple[int], tuple[int, int], False),
        (tuple[int, ...], tuple[int, int], True),
        (Literal["a"], str, True),
        (Literal[1], str, False),
        (str, Literal["a", "b"], True),
        (TaskResult[int, TaskError], TaskResult[int, TaskError], True),
        (TaskResult[int, TaskError], TaskResult[str, TaskError], False),
    ],
)
def test_f33_fits(source: Any, target: Any, expected: bool) -> None:
    assert fits(source, target) is expected


@each(
    ("annotation", "expected"),
    [
        (list[int], (int,)),
        (list, (Any,)),
        (Any, (Any,)),
        (tuple[int, ...], (int,)),
        (set[str], (str,)),
        (collections.abc.Sequence[int], (int,)),
        (list[int] | None, (int,)),
        (list[TaskResult[int, TaskError]], (TaskResult[int, TaskError],)),
        (tuple[int, str], (int | str,)),
        (str, None),
        (bytes, None),
        (dict[str, int], None),
        (int, None),
        (None, None),
        (Dog, None),
        (list[int] | str, None),
    ],
)
def test_f95_element_of(annotation: Any, expected: tuple[Any] | None) -> None:
    assert element_of(annotation) == expected
