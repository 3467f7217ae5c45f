"""What the tasks of `app.py` and the figures about them both know; nothing here needs a database."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import cache
from typing import Any

MEGABYTE = 1_000_000
SHORT_S = 0.01  # how long `short` takes
VARIABLE = "SCALE_APP"
LOCATOR = "benchmarks.scale.app:app"


@cache
def bulk(size: int = MEGABYTE) -> str:
    """Text of this size that a server compresses to about a half, like most documents: numbers and words."""
    chance = random.Random(1)
    words = ("customer", "order", "total", "pending", "shipped", "price")
    parts: list[str] = []
    length = 0
    while length < size:
        part = f"{chance.choice(words)}={chance.randrange(10**9)}; "
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size]


def settings(**given: Any) -> dict[str, str]:
    """The environment of a worker or a program whose app has these settings."""
    return {VARIABLE: json.dumps(given)}


def queue(name: str, priority: int = 1, cap: int | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "priority": priority, "max_concurrency": cap, **more}


def with_queues(queues: Sequence[dict[str, Any]], **more: Any) -> dict[str, str]:
    return settings(custom_queues=list(queues), **more)
