"""Keys of the advisory locks: each is derived from a purpose string, so that two uses never collide by accident."""

from __future__ import annotations

from hashlib import sha256

SCHEMA = "horsies:schema"
CLAIM = "horsies:claim"
SWEEP = "horsies:sweep"
RETENTION = "horsies:retention"


def lock_key(purpose: str) -> int:
    """The first eight bytes of the purpose's SHA-256 as PostgreSQL's signed bigint."""
    return int.from_bytes(sha256(purpose.encode()).digest()[:8], "big", signed=True)


def schedule_purpose(name: str) -> str:
    """Firing one schedule."""
    return f"horsies:schedule:{name}"


def worker_purpose(worker_id: str) -> str:
    """Liveness of one worker, held shared by its LISTEN session."""
    return f"horsies:worker:{worker_id}"
