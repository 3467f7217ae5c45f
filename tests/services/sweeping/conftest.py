"""One database for all tests of a module, emptied after each: making one takes longer than most of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

TABLES = ("workflow_tasks", "workflows", "task_attempts", "tasks", "heartbeats", "workers", "worker_states", "waiting")


@pytest.fixture
def database_url(module_url: str) -> Iterator[str]:
    """Instead of the fixture of the same name that makes a database for each test."""
    yield module_url
    with psycopg.connect(module_url, autocommit=True) as conn:
        for table in TABLES:
            conn.execute(f"DELETE FROM horsies_{table}".encode())  # noqa: S608
