"""A private PostgreSQL server from a pip wheel. It is started on first use, keeps its data in a directory, and is
stopped when the last process that uses it is gone. See docs/decisions/0001-embedded-postgres.md.
"""

from horsies.core.embedded.server import ensure_running, held_directories, stop

__all__ = ["ensure_running", "held_directories", "stop"]
