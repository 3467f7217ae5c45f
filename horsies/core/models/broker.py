"""How to reach PostgreSQL, and what the broker answers.

The URL is a secret: it is shown only with its password masked, and `redact` removes it from texts that come from the
driver. Opening connections is left to `brokers/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pydantic import Field, PrivateAttr, SecretStr, field_validator

from horsies.core.errors import ErrorCode
from horsies.core.models.base import ConfigModel, Violation
from horsies.core.types.result import Err, Ok

T = TypeVar("T")

MASK = "***"
DRIVER_SCHEME = "postgresql+psycopg"
EMBEDDED_PREFIX = "embedded:"
_SCHEMES = (DRIVER_SCHEME, "postgresql", "postgres")
_SECRET_PARAMETERS = ("password", "sslpassword")


class PostgresConfig(ConfigModel):
    """Where the database is and how many connections may be held to it."""

    error_code: ClassVar[ErrorCode] = ErrorCode.BROKER_INVALID_URL

    database_url: SecretStr
    session_database_url: SecretStr | None = None
    pgbouncer_transaction_mode: bool = False
    pool_size: int = Field(default=5, ge=1)
    max_overflow: int = Field(default=10, ge=0)
    worker_pool_size: int | None = Field(default=3, ge=1)
    worker_max_overflow: int | None = Field(default=2, ge=0)
    notify: Literal["always", "when_waiting", "off"] = "always"
    pool_timeout: int = Field(default=30, ge=1)
    pool_recycle: int = Field(default=1800, ge=1)
    pool_pre_ping: bool = True
    echo: bool = False
    tcp_keepalives: bool = True
    tcp_keepalives_idle: int = Field(default=30, ge=1)
    tcp_keepalives_interval: int = Field(default=10, ge=1)
    tcp_keepalives_count: int = Field(default=3, ge=1)
    tcp_user_timeout_ms: int = Field(default=30_000, ge=0)

    # The address of the embedded server, once asked for, and the process that asked: a fork must ask for itself.
    _embedded_dsn: tuple[int, str] | None = PrivateAttr(default=None)

    if TYPE_CHECKING:
        # What a checker cannot see by itself: a URL may be given as plain text. Kept in step by a typing test.
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
        """A private PostgreSQL that lives in this directory and is started when it is needed."""
        return cls(database_url=SecretStr(f"{EMBEDDED_PREFIX}{path}"), **fields)

    @field_validator("database_url", "session_database_url")
    @classmethod
    def _url_is_one_we_speak(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and (problem := url_problem(url.get_secret_value())):
            raise ValueError(problem)
        return url

    def _violations(self) -> Iterator[Violation]:
        if self.pgbouncer_transaction_mode and self.session_database_url is None:
            yield Violation(
                ("session_database_url", "pgbouncer_transaction_mode"),
                "behind a transaction pooler LISTEN and schema creation need a direct URL",
                help_text="set session_database_url to an address that does not go through the pooler",
            )
        if self.is_embedded and self.session_database_url is not None:
            yield Violation(("session_database_url", "database_url"), "the embedded server has only one address")

    @property
    def is_embedded(self) -> bool:
        return self.database_url.get_secret_value().startswith(EMBEDDED_PREFIX)

    @property
    def embedded_path(self) -> Path | None:
        url = self.database_url.get_secret_value()
        return Path(url.removeprefix(EMBEDDED_PREFIX)) if self.is_embedded else None

    def dsn(self) -> str:
        """A URL for libpq. Starts the embedded server if that is where the database is."""
        if (path := self.embedded_path) is not None:
            return self._dsn_of_embedded(path)
        return plain_url(self.database_url.get_secret_value())

    def session_dsn(self) -> str:
        """A URL for connections that must be a session of their own: LISTEN, advisory locks, schema creation."""
        if self.session_database_url is None:
            return self.dsn()
        return plain_url(self.session_database_url.get_secret_value())

    def connect_kwargs(self) -> dict[str, Any]:
        """Connection parameters beside the URL; what the URL itself says wins."""
        wanted: dict[str, Any] = {"application_name": "horsies", "keepalives": int(self.tcp_keepalives)}
        if self.tcp_keepalives:
            wanted["keepalives_idle"] = self.tcp_keepalives_idle
            wanted["keepalives_interval"] = self.tcp_keepalives_interval
            wanted["keepalives_count"] = self.tcp_keepalives_count
        if self.tcp_user_timeout_ms:
            wanted["tcp_user_timeout"] = self.tcp_user_timeout_ms
        said = {} if self.is_embedded else conninfo_to_dict(self.dsn())
        return {name: value for name, value in wanted.items() if name not in said}

    def display_url(self) -> str:
        """The database URL as it may be shown."""
        return redact_url(self.database_url.get_secret_value())

    def redact(self, text: str) -> str:
        """The text without our passwords: for messages of the driver that we pass on."""
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
    """The URL with the driver name; other schemes are left for the validation to judge."""
    for plain in ("postgresql://", "postgres://"):
        if url.startswith(plain):
            return f"{DRIVER_SCHEME}://{url.removeprefix(plain)}"
    return url


def url_problem(url: str) -> str | None:
    """Why this URL cannot be used, without repeating it; None if it can."""
    if url.startswith(EMBEDDED_PREFIX):
        path = url.removeprefix(EMBEDDED_PREFIX)
        return None if path.strip() and "\0" not in path else "embedded: needs the directory of the server"
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        shown = f" (not {scheme!r})" if separator and scheme.replace("+", "").isalnum() else ""
        return f"the URL must begin with {DRIVER_SCHEME}://, postgresql://, postgres:// or embedded:{shown}"
    try:
        conninfo_to_dict(plain_url(url))
    except (psycopg.Error, ValueError):
        return "libpq cannot read this URL; special characters in the password must be percent-encoded"
    return None


def redact_url(url: str) -> str:
    """The URL with every password in it replaced."""
    for secret in _secrets_of(url):
        url = url.replace(secret, MASK)
    return url


def _secrets_of(url: str) -> list[str]:
    """Passwords in the URL, as written and decoded, longest first."""
    try:
        parts = urlsplit(url)
        found = {parts.password or ""}
        for pair in parts.query.split("&"):
            name, _, value = pair.partition("=")
            if name in _SECRET_PARAMETERS:
                found.add(value)
        found |= {value for name, value in parse_qsl(parts.query) if name in _SECRET_PARAMETERS}
    except ValueError:
        return [url]
    found |= {unquote(secret) for secret in found}
    return sorted((secret for secret in found if secret), key=len, reverse=True)


class BrokerErrorCode(StrEnum):
    """What went wrong between us and the database."""

    SCHEMA_INIT_FAILED = "SCHEMA_INIT_FAILED"
    DB_OPERATION_FAILED = "DB_OPERATION_FAILED"
    ENQUEUE_FAILED = "ENQUEUE_FAILED"
    PAYLOAD_MISMATCH = "PAYLOAD_MISMATCH"
    INVALID_JSON_PAYLOAD = "INVALID_JSON_PAYLOAD"
    NO_TYPE_AVAILABLE = "NO_TYPE_AVAILABLE"
    LOOP_RUNNER_FAILED = "LOOP_RUNNER_FAILED"
    INTERNAL_FAILED = "INTERNAL_FAILED"


@dataclass(frozen=True, slots=True)
class BrokerOperationError:
    """An infrastructure failure; `retryable` if the same call may succeed later."""

    code: BrokerErrorCode
    message: str
    retryable: bool = False
    exception: BaseException | None = None


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
