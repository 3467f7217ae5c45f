"""AppConfig, PostgresConfig, queues and payload policy (T-06 to T-18, W-60)."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest
from pydantic import SecretStr

from horsies import (
    AppConfig,
    CustomQueueConfig,
    ErrorCode,
    MultipleValidationErrors,
    PayloadPolicy,
    PostgresConfig,
    QueueMode,
    RecoveryConfig,
    WorkerResilienceConfig,
)
from horsies.core.errors import ConfigurationError
from tests.each import each

URL = "postgresql+psycopg://user:s3cr3t@db.example:5432/app"
BROKER = PostgresConfig(database_url=URL)


def config(**fields: Any) -> AppConfig:
    return AppConfig(broker=BROKER, **fields)


def codes_of(make) -> list[str]:
    """The HRS codes of the errors that making it raises, which is always a `ValueError` (T-07, T-73)."""
    with pytest.raises(ValueError) as raised:
        make()
    error = raised.value
    if isinstance(error, MultipleValidationErrors):
        return [str(one.code) for one in error.report.errors]
    assert isinstance(error, ConfigurationError)
    return [str(error.code)]


def test_t06_defaults() -> None:
    plain = config()
    assert plain.queue_mode is QueueMode.DEFAULT and plain.custom_queues is None and plain.cluster_wide_cap is None
    assert (plain.prefetch_buffer, plain.claim_lease_ms, plain.effective_lease_ms) == (0, None, 60_000)
    assert (plain.max_claim_renew_age_ms, plain.schedule, plain.exception_mapper) == (180_000, None, {})
    assert plain.default_unhandled_error_code == "UNHANDLED_EXCEPTION" and plain.resend_on_transient_err is False
    assert plain.recovery == RecoveryConfig() and plain.worker_recovery.enabled is False


def test_t06_immutable() -> None:
    with pytest.raises(ValueError):
        config().prefetch_buffer = 3  # type: ignore[misc]


def test_t06_unknown_fields_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="prefetch_bufer"):
        config(prefetch_bufer=3)


def test_t07_all_violations_at_once() -> None:
    found = codes_of(
        lambda: config(
            custom_queues=[CustomQueueConfig(name="a")],
            cluster_wide_cap=0,
            prefetch_buffer=-1,
            exception_mapper={int: "NOT_AN_EXCEPTION"},
        )
    )
    assert sorted(found) == ["HRS-200", "HRS-201", "HRS-202", "HRS-209"]


def test_t07_a_bad_field_does_not_hide_a_broken_rule_between_others() -> None:
    found = codes_of(lambda: config(cluster_wide_cap=2, prefetch_buffer=1, claim_lease_ms=60_000, resilience=5))
    assert sorted(found) == ["HRS-201", "HRS-208"]


def test_t07_errors_of_nested_settings_keep_their_code() -> None:
    assert codes_of(lambda: AppConfig(broker={"database_url": "mysql://h/d"}, recovery={"check_interval_ms": 1})) == [
        "HRS-203",
        "HRS-204",
    ]


def test_t08_the_dump_is_readable_and_masks_passwords(caplog) -> None:
    broker = PostgresConfig(database_url=URL, session_database_url="postgresql://other:hidden@h/d")
    settings = AppConfig(
        broker=broker, queue_mode=QueueMode.CUSTOM, custom_queues=[CustomQueueConfig(name="fast", priority=7)]
    )
    with caplog.at_level(logging.INFO, "t"):
        settings.log_config(logging.getLogger("t"))
    assert "postgresql+psycopg://user:***@db.example:5432/app" in caplog.text
    assert "postgresql://other:***@h/d" in caplog.text
    assert "s3cr3t" not in caplog.text and "hidden" not in caplog.text
    assert "name=fast, priority=7" in caplog.text and "check_interval_ms: 30000" in caplog.text


def test_t10_defaults() -> None:
    shown = BROKER.model_dump(exclude={"database_url"})
    assert shown == {
        "session_database_url": None,
        "pgbouncer_transaction_mode": False,
        "pool_size": 5,
        "max_overflow": 10,
        "worker_pool_size": 3,
        "worker_max_overflow": 2,
        "notify": "always",
        "pool_timeout": 30,
        "pool_recycle": 1800,
        "pool_pre_ping": True,
        "echo": False,
        "tcp_keepalives": True,
        "tcp_keepalives_idle": 30,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 3,
        "tcp_user_timeout_ms": 30_000,
    }


@each("scheme", ["postgresql+psycopg", "postgresql", "postgres"])
def test_t10_accepted_schemes(scheme: str) -> None:
    assert PostgresConfig(database_url=f"{scheme}://u:p@h/d").dsn().endswith("://u:p@h/d")


def test_t10_the_driver_name_is_not_passed_to_libpq() -> None:
    assert BROKER.dsn() == "postgresql://user:s3cr3t@db.example:5432/app"
    assert PostgresConfig(database_url=SecretStr(URL)).dsn() == BROKER.dsn()


@each(
    "url",
    [
        "postgresql+psycopg2://u:s3cr3t@h/d",
        "postgresql+asyncpg://u:s3cr3t@h/d",
        "mysql://u:s3cr3t@h/d",
        "s3cr3t",
        "",
        "postgresql://u:s3cr%3t@h/d",
        "postgresql://u:s3cr3t@s3cr3t@h/d",
        "postgresql://u:s3cr3t/s3cr3t@h/d",
        "postgresql://h:s3cr3t/d",
        "postgresql://u:s3cr3t@h/d?nonsense=1",
        "embedded:",
    ],
)
def test_t10_other_urls_are_hrs_203_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        PostgresConfig(database_url=url)
    assert raised.value.code is ErrorCode.BROKER_INVALID_URL
    assert "s3cr3t" not in str(raised.value) and "s3cr%3t" not in str(raised.value)


def test_t10_the_password_is_in_no_representation() -> None:
    settings = config()
    for text in (repr(BROKER), str(BROKER), repr(settings), BROKER.model_dump_json(), BROKER.display_url()):
        assert "s3cr3t" not in text


def test_t10_a_password_in_the_source_line_is_masked_too() -> None:
    with pytest.raises(ConfigurationError) as raised:
        PostgresConfig(database_url="mysql://user:s3cr3t@h/d")
    shown = str(raised.value)
    assert "mysql://user:***@h/d" in shown and "s3cr3t" not in shown


def test_t10_redact_removes_every_spelling_of_the_password() -> None:
    broker = PostgresConfig(database_url="postgresql://u:p%40ss%21@h/d?sslpassword=keypass")
    assert broker.redact("failed with p%40ss%21, p@ss! and keypass") == "failed with ***, *** and ***"
    assert broker.display_url() == "postgresql://u:***@h/d?sslpassword=***"


def test_t10_passwords_that_look_like_something_else() -> None:
    strange = PostgresConfig(database_url="postgresql://u:s3#cr3t@h1:1,h2:2/d")
    assert strange.display_url() == "postgresql://u:***@h1:1,h2:2/d"
    assert PostgresConfig(database_url="postgresql://u:s3?cr3t@h/d").display_url() == "postgresql://u:***@h/d"
    assert PostgresConfig(database_url="postgresql://u:p@h/p").display_url() == "postgresql://u:***@h/p"
    assert PostgresConfig(database_url="postgresql:///d?host=/tmp").display_url() == "postgresql:///d?host=/tmp"


def test_t10_o01_pgbouncer_with_and_without_a_session_url() -> None:
    alone = PostgresConfig(database_url=URL, pgbouncer_transaction_mode=True)
    assert (alone.session_dsn(), alone.has_sessions) == (alone.dsn(), False)
    direct = "postgresql+psycopg://direct/app"
    broker = PostgresConfig(database_url=URL, pgbouncer_transaction_mode=True, session_database_url=direct)
    assert (broker.session_dsn(), BROKER.session_dsn()) == ("postgresql://direct/app", BROKER.dsn())
    assert broker.has_sessions and BROKER.has_sessions
    embedded = lambda: PostgresConfig(database_url="embedded:x", pgbouncer_transaction_mode=True)  # noqa: E731
    assert codes_of(embedded) == ["HRS-203"]


def test_t10_connection_parameters() -> None:
    assert BROKER.connect_kwargs() == {
        "application_name": "horsies",
        "keepalives": 1,
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }
    quiet = PostgresConfig(database_url=f"{URL}?application_name=mine", tcp_keepalives=False, tcp_user_timeout_ms=0)
    assert quiet.connect_kwargs() == {"keepalives": 0}


def test_t10_embedded_urls(tmp_path) -> None:
    for broker in (PostgresConfig.embedded(tmp_path), PostgresConfig(database_url=f"embedded:{tmp_path}")):
        assert broker.is_embedded and broker.embedded_path == tmp_path
    assert not BROKER.is_embedded and BROKER.embedded_path is None


@each(("field", "value"), [("pool_size", 0), ("max_overflow", -1), ("notify", "sometimes")])
def test_t10_ranges(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=field):
        PostgresConfig(database_url=URL, **{field: value})


def custom(*queues: CustomQueueConfig) -> AppConfig:
    return config(queue_mode=QueueMode.CUSTOM, custom_queues=list(queues))


def test_t13_queue_rules_of_the_modes() -> None:
    one = CustomQueueConfig(name="a")
    assert codes_of(lambda: config(custom_queues=[one])) == ["HRS-200"]
    assert codes_of(lambda: config(custom_queues=[])) == ["HRS-200"]
    assert codes_of(lambda: config(queue_mode=QueueMode.CUSTOM)) == ["HRS-200"]
    assert codes_of(lambda: custom()) == ["HRS-200"]
    assert codes_of(lambda: custom(one, CustomQueueConfig(name="b"), one)) == ["HRS-200"]


def test_t13_custom_queue_config() -> None:
    queue = CustomQueueConfig(name="a")
    assert (queue.priority, queue.max_concurrency) == (1, None)
    assert CustomQueueConfig(name="a", max_concurrency=None).max_concurrency is None
    assert CustomQueueConfig(name="a", max_concurrency=0).max_concurrency == 0
    for wrong in ({"priority": 0}, {"priority": 101}, {"max_concurrency": -1}):
        assert codes_of(lambda wrong=wrong: CustomQueueConfig(name="a", **wrong)) == ["HRS-200"]


@each("name", ["", "a b", "a/b", "ä", "x" * 53, "a\n", 'a"b'])
def test_t13_bad_queue_names(name: str) -> None:
    assert codes_of(lambda: CustomQueueConfig(name=name)) == ["HRS-200"]


@each("name", ["a", "A-b_c.9", "x" * 52])
def test_t13_good_queue_names(name: str) -> None:
    assert CustomQueueConfig(name=name).name == name


def test_t13_claiming_order_and_priorities() -> None:
    settings = custom(CustomQueueConfig(name="slow", priority=9), CustomQueueConfig(name="fast"))
    assert [queue.name for queue in settings.queues()] == ["fast", "slow"]
    assert settings.priority_of("slow") == 9
    with pytest.raises(KeyError):
        settings.priority_of("default")
    [only] = config().queues()
    assert (only.name, only.priority, only.max_concurrency) == ("default", 100, None)


def test_t14_cluster_wide_cap() -> None:
    assert codes_of(lambda: config(cluster_wide_cap=0)) == ["HRS-201"]
    assert codes_of(lambda: config(cluster_wide_cap=1, prefetch_buffer=1, claim_lease_ms=60_000)) == ["HRS-201"]
    assert config(cluster_wide_cap=1).cluster_wide_cap == 1


@each(
    "fields",
    [
        {"prefetch_buffer": -1},
        {"prefetch_buffer": 1},
        {"prefetch_buffer": 1, "claim_lease_ms": 0},
        {"claim_lease_ms": -5},
        {"claim_lease_ms": 59_999},
        {"max_claim_renew_age_ms": 0},
        {"max_claim_renew_age_ms": 59_999},
        {"claim_lease_ms": 200_000},
        {"recovery": RecoveryConfig(claimer_heartbeat_interval_ms=30_001)},
    ],
)
def test_t15_prefetch_and_leases(fields: dict[str, Any]) -> None:
    assert set(codes_of(lambda: config(**fields))) == {"HRS-202"}


def test_t15_a_lease_may_be_set_without_prefetch() -> None:
    settings = config(claim_lease_ms=60_000, max_claim_renew_age_ms=60_000)
    assert settings.effective_lease_ms == 60_000


def test_t17_payload_policy() -> None:
    assert (PayloadPolicy().warn_bytes, PayloadPolicy().reject_bytes) == (1_048_576, None)
    assert PayloadPolicy(warn_bytes=None, reject_bytes=1).reject_bytes == 1
    for field in ("warn_bytes", "reject_bytes"):
        with pytest.raises(ConfigurationError, match=field):
            PayloadPolicy(**{field: 0})


@each("url", ["postgresql://u:p@h/d", "postgres://u:p@h/d", "postgresql+psycopg://u:p@h/d"])
def test_t18_for_database_url(url: str) -> None:
    settings = AppConfig.for_database_url(url, prefetch_buffer=2, claim_lease_ms=90_000)
    assert settings.broker.database_url.get_secret_value() == "postgresql+psycopg://u:p@h/d"
    assert settings.prefetch_buffer == 2
    assert AppConfig.for_database_url("embedded:./here").broker.is_embedded


def test_t85_the_app_mapper_is_checked() -> None:
    assert config(exception_mapper={KeyError: "NO_KEY"}).exception_mapper == {KeyError: "NO_KEY"}
    for mapper in ({KeyError: "lower"}, {"KeyError": "A"}, {KeyError("x"): "A"}, [1]):
        assert codes_of(lambda mapper=mapper: config(exception_mapper=mapper)) == ["HRS-209"]
    assert codes_of(lambda: config(exception_mapper={KeyError: "WORKER_CRASHED", OSError: "low"})) == [
        "HRS-212",
        "HRS-209",
    ]


def test_t71_the_default_code_is_checked() -> None:
    assert config(default_unhandled_error_code="MINE").default_unhandled_error_code == "MINE"
    assert config(default_unhandled_error_code="UNHANDLED_EXCEPTION")
    for code in ("mine", "ValueError", ""):
        assert codes_of(lambda code=code: config(default_unhandled_error_code=code)) == ["HRS-209"]
    assert codes_of(lambda: config(default_unhandled_error_code="TASK_EXCEPTION")) == ["HRS-212"]


def test_w60_resilience() -> None:
    plain = WorkerResilienceConfig()
    assert (plain.db_retry_initial_ms, plain.db_retry_max_ms) == (500, 30_000)
    assert (plain.db_retry_max_attempts, plain.notify_poll_interval_ms) == (0, 5_000)
    wrong: list[dict[str, int]] = [
        {"db_retry_initial_ms": 99},
        {"db_retry_initial_ms": 60_001, "db_retry_max_ms": 300_000},
        {"db_retry_max_ms": 300_001},
        {"db_retry_max_ms": 500, "db_retry_initial_ms": 501},
        {"db_retry_max_attempts": 10_001},
        {"notify_poll_interval_ms": 999},
    ]
    for fields in wrong:
        assert codes_of(lambda fields=fields: WorkerResilienceConfig(**fields)) == ["HRS-208"]


def test_no_setting_is_read_from_the_environment(monkeypatch) -> None:
    monkeypatch.setitem(os.environ, "DATABASE_URL", "postgresql://elsewhere/d")
    assert config().broker.dsn() == BROKER.dsn()
