"""The ways through a PgBouncer, and the app that goes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from horsies import Horsies, PostgresConfig
from tests.apps.pooled import make_app
from tests.pooler.support import POOLED_APP, PgBouncer
from tests.worker_support import Rows, WorkerProcess


@dataclass
class Route:
    """How an app is configured, and the PgBouncer that it goes through. `has_sessions`: notifications arrive."""

    name: str
    bouncer: PgBouncer
    direct_url: str
    settings: dict[str, Any]
    has_sessions: bool

    @property
    def env(self) -> dict[str, str]:
        """For commands with the app of these tests."""
        return {
            "DATABASE_URL": self.bouncer.url,
            "DIRECT_URL": self.settings.get("session_database_url", ""),
            "BEHIND_POOLER": "1" if self.settings.get("pgbouncer_transaction_mode") else "",
        }

    @property
    def config(self) -> PostgresConfig:
        return PostgresConfig(database_url=self.bouncer.url, **self.settings)

    @property
    def rows(self) -> Rows:
        return Rows(self.direct_url)

    def worker(self, *options: str, **env: str) -> WorkerProcess:
        return WorkerProcess(self.bouncer.url, *options, locator=POOLED_APP, env={**self.env, **env})


def routed(name: str, database_url: str, **settings: object) -> Route:
    """A route whose PgBouncer is not started yet."""
    mode = "session" if name == "session mode" else "transaction"
    declared: dict[str, dict[str, Any]] = {
        "with a session": {"pgbouncer_transaction_mode": True, "session_database_url": database_url},
        "alone": {"pgbouncer_transaction_mode": True},
        "session mode": {},
    }
    bouncer = PgBouncer(database_url, mode, **settings)
    return Route(name, bouncer, database_url, declared[name], has_sessions=name != "alone")


@pytest.fixture(params=["with a session", "alone", "session mode"])
def route(request: pytest.FixtureRequest, database_url: str) -> Iterator[Route]:
    """Each way in which everything must work, with PgBouncer's own defaults."""
    with (made := routed(request.param, database_url)).bouncer:
        yield made


@pytest.fixture
def alone(database_url: str) -> Iterator[Route]:
    """Only the pooled URL, and that is declared."""
    with (made := routed("alone", database_url)).bouncer:
        yield made


@pytest.fixture
def app(route: Route) -> Iterator[Horsies]:
    yield from opened(route)


@pytest.fixture
def app_alone(alone: Route) -> Iterator[Horsies]:
    yield from opened(alone)


def opened(route: Route) -> Iterator[Horsies]:
    app = make_app(route.config)
    try:
        yield app
    finally:
        app.get_broker().close()
