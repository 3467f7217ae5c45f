"""The rules about one node and about the end of a workflow, as the contract tells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ENDED = ("COMPLETED", "FAILED", "SKIPPED")  # nodes
OVER = ("COMPLETED", "FAILED", "CANCELLED")  # workflows
TASK_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "EXPIRED")

# F-20 and F-21. A map is made RUNNING, a child workflow created, in the transaction that makes the node READY or in a
# later one; READY and ENQUEUED may not be seen from outside then.
WORKFLOW_ARROWS = {
    ("PENDING", "RUNNING"),
    ("RUNNING", "COMPLETED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "PAUSED"),
    ("PAUSED", "RUNNING"),
    ("PAUSED", "COMPLETED"),  # resumed with nothing left to do
    ("PENDING", "CANCELLED"),
    ("RUNNING", "CANCELLED"),
    ("PAUSED", "CANCELLED"),
    ("FAILED", "RUNNING"),
    ("PAUSED", "FAILED"),
}
NODE_ARROWS = {
    *((was, now) for was in ("PENDING", "READY") for now in ("READY", "ENQUEUED", "RUNNING", "SKIPPED") if was != now),
    ("PENDING", "FAILED"),
    ("READY", "FAILED"),
    ("PENDING", "COMPLETED"),  # a map over nothing
    ("READY", "COMPLETED"),
    ("ENQUEUED", "RUNNING"),
    ("ENQUEUED", "SKIPPED"),
    ("ENQUEUED", "COMPLETED"),
    ("ENQUEUED", "FAILED"),
    ("RUNNING", "COMPLETED"),
    ("RUNNING", "FAILED"),
    *(("FAILED", now) for now in ("PENDING", "READY", "ENQUEUED", "RUNNING")),
    ("SKIPPED", "PENDING"),
    ("READY", "PENDING"),  # what it had waited for runs again (F-94)
}


@dataclass(frozen=True)
class Made:
    """An error that the engine made: one of these codes, or whatever; its data has at least these entries."""

    codes: tuple[str, ...]
    data: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Perhaps:
    """A member that may be left out."""

    value: Any


ANYTHING = ...  # copies of it are the same


def verdict(join: str, min_success: int | None, allow_failed: bool, statuses: Sequence[str]) -> str | None:
    """F-30: READY, SKIPPED or not decided yet."""
    done = statuses.count("COMPLETED")
    lost = statuses.count("FAILED") + statuses.count("SKIPPED")
    still_open = len(statuses) - done - lost
    if not statuses:
        return "READY"
    if join == "all":
        if lost and not allow_failed:
            return "SKIPPED"
        return None if still_open else "READY"
    wanted = 1 if join == "any" else min_success or 0
    if done >= wanted:
        return "READY"
    return "SKIPPED" if done + still_open < wanted else None


def matches(expected: Any, found: Any) -> bool:
    """Whether a JSON value is the expected one; an error of the engine's is known by its code."""
    if expected is ANYTHING:
        return True
    if isinstance(expected, Made):
        error = found.get("err") if isinstance(found, dict) else None
        if not isinstance(error, dict) or (expected.codes and code_of(found) not in expected.codes):
            return False
        data = error.get("data") or {}
        return all(data.get(name) == value for name, value in expected.data)
    if isinstance(expected, Perhaps):
        return matches(expected.value, found)
    if isinstance(expected, dict):
        needed = {key for key, value in expected.items() if not isinstance(value, Perhaps)}
        is_same_keys = isinstance(found, dict) and needed <= found.keys() <= expected.keys()
        return is_same_keys and all(matches(expected[key], found[key]) for key in found)
    if isinstance(expected, list):
        is_same_length = isinstance(found, list) and len(expected) == len(found)
        return is_same_length and all(map(matches, expected, found))
    return bool(expected == found)


def code_of(result: Any) -> str | None:
    """The error code of a result."""
    if isinstance(result, Made):
        return result.codes[0] if result.codes else None
    error = result.get("err") if isinstance(result, dict) else None
    code = error.get("error_code") if isinstance(error, dict) else None
    return next(iter(code.values())) if isinstance(code, dict) else code
