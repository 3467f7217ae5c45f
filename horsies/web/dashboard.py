"""What all parts of one dashboard share: the database, the policy, the settings, what is masked, the state of the
tables and the live updates. Nothing is opened before the first request needs it, so it works wherever it is mounted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial

from starlette.requests import Request

from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.monitoring.changes import read_schema_version
from horsies.core.monitoring.masking import Masking, names_known_to, unknown_names
from horsies.web.answers import Refusal
from horsies.web.config import WebConfig
from horsies.web.events import LiveStreams
from horsies.web.pacing import SharedAnswers
from horsies.web.policies import AuthPolicy, actor_of
from horsies.web.schema_state import SchemaCheck

MOST_CONNECTIONS = 10
PATIENCE_S = 5  # for a connection; a person waits for the answer
MOST_EXACT = 2  # queries at the same time that may read a whole table


class Dashboard:
    """One dashboard. Its connections are its own: the app that it shows keeps using its own broker."""

    def __init__(self, source: Horsies | PostgresConfig | str, policy: AuthPolicy, config: WebConfig) -> None:
        self.app = source if isinstance(source, Horsies) else None
        self.policy = policy
        self.config = config
        database = source.config.broker if isinstance(source, Horsies) else source
        names = unknown_names if self.app is None else names_known_to(self.app.tasks)
        self.masking = Masking.of(config.mask, hides_all=config.hide_payloads, positional=names)
        self._exact = 0
        self._use(_modest(PostgresConfig(database_url=database) if isinstance(database, str) else database))

    def _use(self, database: PostgresConfig) -> None:
        """Everything that belongs to a database."""
        self.database = database
        self.broker = PostgresBroker(database, app=self.app)
        self.broker.only_look()
        self.schema = SchemaCheck(partial(read_schema_version, self.broker))
        self.streams = LiveStreams(self.broker)
        self.shared = SharedAnswers()
        self.__dict__.pop("acting_broker", None)

    def follow_app(self) -> None:
        """Show the database that the app uses now, when a server starts: in a test it is that of the test (X-10)."""
        if self.app is not None and (database := _modest(self.app.config.broker)) != self.database:
            self._use(database)

    @property
    def has_app(self) -> bool:
        return self.app is not None

    @cached_property
    def acting_app(self) -> Horsies:
        """The app, or an empty one: what only the code of an app can do is left to the workers instead of being failed
        (F-64)."""
        return self.app or Horsies(AppConfig(broker=self.database))

    @cached_property
    def acting_broker(self) -> PostgresBroker:
        """For actions. It has the same connections, so that there are never more of them."""
        return self.broker if self.has_app else self.broker.knowing(self.acting_app)

    def actor(self, request: Request) -> str:
        return actor_of(self.policy, request)

    @contextmanager
    def place_for_exact(self) -> Iterator[None]:
        """Exact numbers read whole tables: a few at a time are enough."""
        if self._exact >= MOST_EXACT:
            message = "exact numbers are being counted already; try again later, or without exact"
            raise Refusal(503, "TOO_MANY_EXACT", message, {"Retry-After": "10"})
        self._exact += 1
        try:
            yield
        finally:
            self._exact -= 1

    async def close(self) -> None:
        """Close every connection; the next request opens them again."""
        await self.streams.stop()
        await self.broker.close_async()


def checked_policy(policy: AuthPolicy) -> AuthPolicy:
    """Raise if this cannot decide about requests; who forgets the parentheses would let everybody in."""
    methods = [getattr(policy, name, None) for name in ("can_view", "can_act")]
    if isinstance(policy, type) or not all(map(callable, methods)):
        raise ConfigurationError(
            f"auth_policy needs an object with can_view and can_act, not {policy!r}",
            code=ErrorCode.CONFIG_INVALID,
            help_text="AllowAll(), ViewOnly(), TrustedHeader(…), Token(…), or an object of your own",
        )
    return policy


def _modest(config: PostgresConfig) -> PostgresConfig:
    """The same database with few connections and little patience."""
    limits = {"pool_size": 1, "max_overflow": MOST_CONNECTIONS - 1}
    patience = min(config.pool_timeout, PATIENCE_S)
    return PostgresConfig(**{**dict(config), **limits, "pool_timeout": patience})


def dashboard_of(request: Request) -> Dashboard:
    """The dashboard that answers this request."""
    found = request.app.state.dashboard
    assert isinstance(found, Dashboard)
    return found
