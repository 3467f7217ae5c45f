"""How to reach PostgreSQL, and what the broker returns.

The URL is a secret: it is shown only with its password masked, and `redact` removes it from messages of the driver.
`db/connections.py` opens the connections.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

from pydantic import Field, PrivateAttr, SecretStr, field_validator

from horsies.core.errors import ErrorCode
from horsies.core.libpq import psycopg
from horsies.core.models.base import A_DAY_MS, ConfigModel, Violation
from horsies.core.models.failures import OperationFailed
from horsies.core.types import Err, Ok

T = TypeVar("T")

MASK = "***"
DRIVER_SCHEME = "postgresql+psycopg"
EMBEDDED_PREFIX = "embedded:"
MOST_CONNECTIONS = 10_000
_SCHEMES = (DRIVER_SCHEME, "postgresql", "postgres")
_SECRET_PARAMETERS = ("password", "sslpassword")
_SHORTEST_SECRET = 4
_URL = re.compile(r"(?P<scheme>[^:]*)://(?:(?P<user>[^@/:]*)(?::(?P<password>[^@/]*))?@)?(?P<rest>.*)", re.DOTALL)


class PostgresConfig(ConfigModel):
    """Where the database is, and how many connections may be open."""

    error_code: ClassVar[ErrorCode] = ErrorCode.BROKER_INVALID_URL

    database_url: SecretStr = Field(
        description="`postgresql://…`, `postgresql+psycopg://…` or `embedded:DIRECTORY`; never shown"
    )
    session_database_url: SecretStr | None = Field(
        default=None,
        description="a direct address for LISTEN and schema changes, if `database_url` leads to a pooler",
    )
    pgbouncer_transaction_mode: bool = Field(
        default=False,
        description="`database_url` leads to a transaction pooler: nothing over it needs a session of its own; without "
        "`session_database_url`, workers and waiting programs poll",
    )
    pool_size: int = Field(
        default=5, ge=1, le=MOST_CONNECTIONS, description="connections that a sending program keeps open"
    )
    max_overflow: int = Field(
        default=10, ge=0, le=MOST_CONNECTIONS, description="connections that a sending program may open in addition"
    )
    worker_pool_size: int | None = Field(
        default=3,
        ge=1,
        le=MOST_CONNECTIONS,
        description="connections that a busy worker uses, without its listener and heartbeat connections; "
        "an idle one keeps one of them; `None`: `pool_size`",
    )
    worker_max_overflow: int | None = Field(
        default=2, ge=0, le=MOST_CONNECTIONS, description="`max_overflow` of a worker; `None`: `max_overflow`"
    )
    notify: Literal["always", "when_waiting", "off"] = Field(
        default="always",
        description="when to send notifications: always, only when a process waits, or never (polling only)",
    )
    pool_timeout: int = Field(default=30, ge=1, le=86_400, description="seconds to wait for a connection")
    pool_recycle: int = Field(
        default=1800, ge=1, le=31_536_000, description="seconds after which a connection is replaced"
    )
    pool_pre_ping: bool = Field(default=True, description="check that a connection still answers before it is used")
    echo: bool = Field(default=False, description="log every statement")
    tcp_keepalives: bool = Field(default=True, description="use TCP keepalives to notice a server that disappeared")
    tcp_keepalives_idle: int = Field(
        default=30, ge=1, le=32_767, description="seconds of silence before the first probe"
    )
    tcp_keepalives_interval: int = Field(default=10, ge=1, le=32_767, description="seconds between probes")
    tcp_keepalives_count: int = Field(
        default=3, ge=1, le=127, description="unanswered probes after which the connection counts as lost"
    )
    tcp_user_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=A_DAY_MS,
        description="milliseconds that sent data may stay unacknowledged; 0: the default of the operating system",
    )

    # The address of the embedded server, and the process that has asked for it: a fork must ask again.
    _embedded_dsn: tuple[int, str] | None = PrivateAttr(default=None)

    if TYPE_CHECKING:
        # This tells type checkers that a URL may be given as plain text. A typing test keeps it up to date.
        def __init__(
            self,
            *,
            database_url: str | SecretStr,
            session_database_url: str | SecretStr | None = None,
            pgbouncer_transaction_mode: bool = ...,
            pool_size: int = ...,
            max_overflow: int = ...,
            worker_pool_size: int | None = ...,
            worker_max_overflow: int | None = ...,
            notify: Literal["always", "when_waiting", "off"] = ...,
            pool_timeout: int = ...,
            pool_recycle: int = ...,
            pool_pre_ping: bool = ...,
            echo: bool = ...,
            tcp_keepalives: bool = ...,
            tcp_keepalives_idle: int = ...,
            tcp_keepalives_interval: int = ...,
            tcp_keepalives_count: int = ...,
            tcp_user_timeout_ms: int = ...,
        ) -> None: ...

    @classmethod
    def embedded(cls, path: str | Path, **fields: Any) -> PostgresConfig:
        """A private PostgreSQL that keeps its data in this directory and is started when it is needed."""
        return cls(database_url=SecretStr(f"{EMBEDDED_PREFIX}{path}"), **fields)

    @field_validator("database_url", "session_database_url")
    @classmethod
    def _url_is_one_we_speak(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and (problem := url_problem(url.get_secret_value())):
            raise ValueError(problem)
        return url

    def _violations(self) -> Iterator[Violation]:
        if self.is_embedded and self.session_database_url is not None:
            yield Violation(("session_database_url", "database_url"), "the embedded server has only one address")
        if self.is_embedded and self.pgbouncer_transaction_mode:
            yield Violation(("pgbouncer_transaction_mode", "database_url"), "the embedded server has no pooler")

    @property
    def is_embedded(self) -> bool:
        return self.database_url.get_secret_value().startswith(EMBEDDED_PREFIX)

    @property
    def embedded_path(self) -> Path | None:
        url = self.database_url.get_secret_value()
        return Path(url.removeprefix(EMBEDDED_PREFIX)) if self.is_embedded else None

    def dsn(self) -> str:
        """A URL for libpq. This starts the embedded server if the URL names one."""
        if (path := self.embedded_path) is not None:
            return self._dsn_of_embedded(path)
        return plain_url(self.database_url.get_secret_value())

    def session_dsn(self) -> str:
        """A URL for connections that need their own session, as far as there is one: LISTEN, advisory locks, schema
        creation."""
        if self.session_database_url is None:
            return self.dsn()
        return plain_url(self.session_database_url.get_secret_value())

    @property
    def has_sessions(self) -> bool:
        """Whether some connection keeps its session: for notifications, and for locks that outlive a transaction."""
        return not self.pgbouncer_transaction_mode or self.session_database_url is not None

    def is_shared(self, *, session: bool) -> bool:
        """Whether such a connection shares its session with others, because it goes through a transaction pooler."""
        return self.pgbouncer_transaction_mode and not (session and self.has_sessions)

    def elsewhere(self, url: str) -> PostgresConfig:
        """The same settings for another database. A session URL and a pooler belong to the old one."""
        fields = {**dict(self), "session_database_url": None, "pgbouncer_transaction_mode": False}
        return PostgresConfig(**{**fields, "database_url": SecretStr(driver_url(url))})

    def connect_kwargs(self) -> dict[str, Any]:
        """Connection parameters in addition to the URL; parameters in the URL take precedence."""
        wanted: dict[str, Any] = {"application_name": "horsies", "keepalives": int(self.tcp_keepalives)}
        if self.tcp_keepalives:
            wanted["keepalives_idle"] = self.tcp_keepalives_idle
            wanted["keepalives_interval"] = self.tcp_keepalives_interval
            wanted["keepalives_count"] = self.tcp_keepalives_count
        if self.tcp_user_timeout_ms:
            wanted["tcp_user_timeout"] = self.tcp_user_timeout_ms
        said = {} if self.is_embedded else psycopg.conninfo.conninfo_to_dict(self.dsn())
        return {name: value for name, value in wanted.items() if name not in said}

    def display_url(self) -> str:
        """The database URL without its password."""
        return redact_url(self.database_url.get_secret_value())

    def redact(self, text: str) -> str:
        """The text without our passwords, for messages of the driver that are passed on."""
        for url in (self.database_url, self.session_database_url):
            if url is not None:
                for secret in _secrets_of(url.get_secret_value()):
                    text = text.replace(secret, MASK)
        return text

    def _dsn_of_embedded(self, path: Path) -> str:
        from horsies.core.embedded import ensure_running  # the extra is needed only by those who use it

        if self._embedded_dsn is None or self._embedded_dsn[0] != os.getpid():
            self._embedded_dsn = (os.getpid(), ensure_running(path))
        return self._embedded_dsn[1]


def plain_url(url: str) -> str:
    """The URL without a driver name, as libpq reads it."""
    return url.replace(f"{DRIVER_SCHEME}://", "postgresql://", 1)


def driver_url(url: str) -> str:
    """The URL with the driver name; other schemes are left to the validation."""
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return f"{DRIVER_SCHEME}://{url.removeprefix(plain)}"
    return url


def url_problem(url: str) -> str | None:
    """Why this URL cannot be used, without repeating it; None if it can."""
    if url.startswith(EMBEDDED_PREFIX):
        path = url.removeprefix(EMBEDDED_PREFIX)
        return (
            None if path.strip() and "\0" not in path else "embedded: must be followed by the directory of the server"
        )
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        shown = f" (not {scheme!r})" if separator and scheme.replace("+", "").isalnum() else ""
        return f"the URL must begin with {DRIVER_SCHEME}://, postgresql://, postgres:// or embedded:{shown}"
    return None if _is_readable(plain_url(url)) else _UNREADABLE


_UNREADABLE = "libpq cannot read this URL; special characters in the password must be percent-encoded"


def _is_readable(url: str) -> bool:
    """Whether libpq reads the URL as its author meant it: a stray @ or / in a password moves a part of it elsewhere."""
    if "@" in _parts(url)["rest"].partition("?")[0]:
        return False
    try:
        ports = str(psycopg.conninfo.conninfo_to_dict(url).get("port") or "")
    except (psycopg.Error, ValueError):
        return False
    return all(port.isdigit() for port in ports.split(",") if port)


def _parts(url: str) -> dict[str, str]:
    """The URL as libpq divides it: credentials end at the first @ that comes before any slash."""
    match = _URL.fullmatch(url)
    return match.groupdict("") if match else {"scheme": "", "user": "", "password": "", "rest": url}


def redact_url(url: str) -> str:
    """The URL with every password in it replaced."""
    parts = _parts(url)
    rest, mark, query = parts["rest"].partition("?")
    credentials = parts["user"] + (f":{MASK}" if parts["password"] else "")
    shown = (parts["scheme"] and f"{parts['scheme']}://") + (credentials and f"{credentials}@") + rest + mark
    return shown + "&".join(_masked(pair) for pair in query.split("&"))


def _masked(pair: str) -> str:
    name, sign, _ = pair.partition("=")
    return f"{name}{sign}{MASK}" if name in _SECRET_PARAMETERS else pair


def _secrets_of(url: str) -> list[str]:
    """The passwords in the URL, as written and decoded, longest first. Very short passwords cannot be distinguished
    from other text."""
    parts = _parts(url)
    pairs = [pair.partition("=") for pair in parts["rest"].partition("?")[2].split("&")]
    found = {parts["password"]} | {value for name, _, value in pairs if name in _SECRET_PARAMETERS}
    found |= {unquote(secret) for secret in found}
    return sorted((secret for secret in found if len(secret) >= _SHORTEST_SECRET), key=len, reverse=True)


class BrokerErrorCode(StrEnum):
    """What failed between horsies and the database."""

    SCHEMA_INIT_FAILED = "SCHEMA_INIT_FAILED"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"
    ENQUEUE_FAILED = "ENQUEUE_FAILED"
    PAYLOAD_MISMATCH = "PAYLOAD_MISMATCH"
    INVALID_JSON_PAYLOAD = "INVALID_JSON_PAYLOAD"
    NO_TYPE_AVAILABLE = "NO_TYPE_AVAILABLE"
    LOOP_RUNNER_FAILED = "LOOP_RUNNER_FAILED"
    INTERNAL_FAILED = "INTERNAL_FAILED"


@dataclass(frozen=True, slots=True)
class BrokerOperationError(OperationFailed):
    """An infrastructure failure; `retryable` if the same call may succeed later."""

    code: BrokerErrorCode


BrokerResult: TypeAlias = Ok[T] | Err[BrokerOperationError]


@dataclass(frozen=True, slots=True)
class DatabasePing:
    """The database answered."""

    latency_ms: float


@dataclass(frozen=True, slots=True)
class WorkerPong:
    """A worker answered."""

    worker_id: str
    hostname: str
    pid: int
    latency_ms: float


@dataclass(frozen=True, slots=True)
class WorkerStateSnapshot:
    """A worker as it described itself at one moment (a row of horsies_worker_states)."""

    id: int
    worker_id: str
    snapshot_at: datetime
    hostname: str
    pid: int
    processes: int
    max_claim_batch: int
    max_claim_per_worker: int
    cluster_wide_cap: int | None
    queues: list[str]
    queue_priorities: dict[str, int] | None
    queue_max_concurrency: dict[str, int | None] | None
    recovery_config: dict[str, Any] | None
    tasks_running: int
    tasks_claimed: int
    memory_usage_mb: float | None
    memory_percent: float | None
    cpu_percent: float | None
    worker_started_at: datetime
    children_memory_mb: float | None = None
