"""Ids of tasks: UUIDs of version 7, so that tasks sent one after the other also sort that way (claims break ties by id,
and neighbours in time are neighbours in the index).
"""

from __future__ import annotations

import secrets
import time
import uuid

_NANOS_PER_MS = 1_000_000


def new_task_id() -> str:
    """48 bits of milliseconds, 12 bits of their fraction, 62 random bits (RFC 9562)."""
    millis, rest = divmod(time.time_ns(), _NANOS_PER_MS)
    fraction = (rest << 12) // _NANOS_PER_MS
    bits = (millis & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=bits))
