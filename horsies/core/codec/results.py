"""The result of a task: `{"ok": …}` by its declared type or `{"err": {…}}`, and back."""

from __future__ import annotations

from typing import Any

from horsies.core.codec.shapes import CodecError, object_shape
from horsies.core.models.tasks import SubWorkflowError, TaskError, TaskResult


class ResultCodec:
    """Encodes and decodes the results of one task."""

    __slots__ = ("_both", "_ok")

    def __init__(self, ok_type: Any) -> None:
        self._ok = object_shape({"ok": ok_type})
        # Of the two kinds of error the fields tell which it is: neither accepts the other's.
        self._both = object_shape({"ok": ok_type, "err": SubWorkflowError | TaskError})

    def check(self, value: Any) -> None:
        """`MismatchError` if the ok value is not of the declared type."""
        self._ok.check({"ok": value})

    def encode(self, result: TaskResult[Any, TaskError]) -> str:
        """The result as JSON. A `MismatchError` means a value of the wrong type; any other `CodecError` means that it
        cannot be encoded."""
        if result.is_ok():
            return self._ok.encode({"ok": result.ok})
        return self._both.encode({"err": result.err})

    def decode(self, text: str) -> TaskResult[Any, TaskError]:
        """The result of a text. `MismatchError.first` is "ok" if only the value does not fit."""
        sides = self._both.decode(text)
        if len(sides) != 1:
            raise CodecError("a result must have either ok or err")
        return TaskResult(ok=sides["ok"]) if "ok" in sides else TaskResult(err=sides["err"])
