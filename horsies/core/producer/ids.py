"""Ids of tasks: UUIDs of version 7, so that tasks sort in the order of sending (claims break ties by id, and neighbours
in time are neighbours in the index).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

_NANOS_PER_MS = 1_000_000
_AT_ONCE = 128


def new_task_id() -> str:
    """48 bits of milliseconds, 12 bits of their fraction, 62 random bits (RFC 9562)."""
    return _id(_stamp(), int.from_bytes(os.urandom(8), "big"))


def new_task_ids() -> Iterator[str]:
    """Ids that sort in the order in which they are taken, even if that is very fast."""
    stamp = 0
    while True:
        for noise in memoryview(os.urandom(8 * _AT_ONCE)).cast("Q"):
            stamp = max(stamp + 1, _stamp())
            yield _id(stamp, noise)


def _stamp() -> int:
    """The time in fractions of a millisecond."""
    return (time.time_ns() << 12) // _NANOS_PER_MS


def _id(stamp: int, noise: int) -> str:
    time = (stamp >> 12 & 0xFFFF_FFFF_FFFF) << 80 | (stamp & 0xFFF) << 64
    text = f"{time | 0x7 << 76 | 0b10 << 62 | noise >> 2:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
