"""A private PostgreSQL server that comes with a pip wheel: started on first use, kept with its data in a directory, and
stopped when the last process that uses it is gone. See docs/decisions/0001-embedded-postgres.md.
"""

from horsies.core.embedded.server import ensure_running, stop

__all__ = ["ensure_running", "stop"]
