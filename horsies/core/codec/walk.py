"""Searches a value for parts that would not survive as JSON: NaN, Infinity, text that is not Unicode, masked
secrets.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel, Secret, SecretBytes, SecretStr

Path = tuple[Any, ...]

_NOT_FINITE = "NaN and Infinity cannot be sent"
_SECRET = "a secret would be stored masked; send a reference to it instead"
_NOT_TEXT = "the text contains lone surrogates, which are not valid Unicode"


def find_unsendable(value: Any) -> tuple[Path, str] | None:
    """Where the first such part is, and what is wrong with it; None if there is none."""
    seen: set[int] = set()
    pending: list[tuple[Path, Any]] = [((), value)]
    while pending:
        path, item = pending.pop()
        if problem := _problem(item):
            return path or ("value",), problem
        if isinstance(item, _LEAVES) or id(item) in seen:
            continue
        seen.add(id(item))
        children = list(_children(item))
        pending.extend(((*path, key), child) for key, child in reversed(children))
    return None


_LEAVES = (str, bytes, int, float, Enum, type(None))


def _problem(item: Any) -> str | None:
    if isinstance(item, float) and not math.isfinite(item):
        return _NOT_FINITE
    if isinstance(item, str) and not _is_text(item):
        return _NOT_TEXT
    if isinstance(item, Secret | SecretStr | SecretBytes):
        return _SECRET
    return None


def _is_text(item: str) -> bool:
    try:
        item.encode()
    except UnicodeEncodeError:
        return False
    return True


def _children(item: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(item, BaseModel):
        yield from item.__dict__.items()
        yield from (item.model_extra or {}).items()
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        yield from ((field.name, getattr(item, field.name, None)) for field in dataclasses.fields(item))
    elif isinstance(item, Mapping):
        for key, child in item.items():
            yield _shown(key), key
            yield _shown(key), child
    elif isinstance(item, list | tuple | set | frozenset | deque):
        yield from enumerate(item)


def _shown(key: Any) -> Any:
    return key if isinstance(key, int) or (isinstance(key, str) and _is_text(key)) else "[key]"
