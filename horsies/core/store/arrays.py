"""Columns of a batch as array literals, each bound as one text. psycopg can encode lists, but checks the type and the
escaping of every element in Python; on the hot path, with hundreds of ids and results in a batch, this took more time
than anything else in the supervisor.
"""

from collections.abc import Iterable


def texts(values: Iterable[str | None]) -> str:
    """For a parameter that is cast to `text[]`."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def numbers(values: Iterable[float | None]) -> str:
    """For a parameter that is cast to `int[]` or `float8[]`."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
