"""Applications for tests: made for a database, closed at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.task_decorator import TaskFunction

Add = TaskFunction[[int, int], int]


@contextlib.contextmanager
def an_app(url: str, *, postgres: dict[str, Any] | None = None, **config: Any) -> Iterator[Horsies]:
    """An app on this database; `postgres` are settings of its broker."""
    app = Horsies(AppConfig(broker=PostgresConfig(database_url=url, **(postgres or {})), **config))
    try:
        yield app
    finally:
        app.get_broker().close()


def define_add(app: Horsies) -> Add:
    """A task with two parameters."""

    @app.task("add")
    def add(a: int, b: int = 0) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a + b)

    return add
