"""Every statement of the engine is in a `.sql` file in this directory, one statement per file; `load` reads it once.

`texts` and `numbers` turn a column of a batch into an array literal, which is bound as one text. psycopg can encode
lists, but checks the type and the escaping of every element in Python; on the hot path, with hundreds of ids and
results in a batch, this took more time than anything else in the supervisor. `stored` reads a state back.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TypeVar

S = TypeVar("S", bound=StrEnum)

_HOME = Path(__file__).parent
_PART = re.compile(r"^\s*--\{ (?P<not>!?)(?P<name>\w+)\n(?P<text>.*?)^\s*--\}\n", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^\s*--.*\n?|\s+--.*$|^\s+", re.MULTILINE)


@cache
def load(name: str, *parts: str) -> str:
    """The text of `<name>.sql`, for example `load("tasks/claim")`. Frequent statements are returned without comments
    and indentation, because psycopg caches its analysis of a text only if it is short. Lines between `--{ part` and
    `--}` are left out unless that part is wanted, those between `--{ !part` and `--}` if it is."""
    text = (_HOME / f"{name}.sql").read_text(encoding="utf-8")
    text = _PART.sub(lambda found: found["text"] if (found["name"] in parts) != bool(found["not"]) else "", text)
    return text if name.startswith("schema/") else _COMMENT.sub("", text)


def texts(values: Iterable[str | None]) -> str:
    """For a parameter that is cast to `text[]`."""
    return "{" + ",".join(["NULL" if value is None else _quoted(value) for value in values]) + "}"


def numbers(values: Iterable[float | None]) -> str:
    """For a parameter that is cast to `int[]` or `float8[]`."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def stored(kind: type[S], word: str) -> S:
    """The state that a row names. A constraint refuses other words (D-13); where somebody has dropped it, a word that
    nobody knows is shown as it is, and is equal to no member."""
    try:
        return kind(word)
    except ValueError:
        unknown = str.__new__(kind, word)
        unknown._name_ = unknown._value_ = word
        return unknown


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
