"""What the command line does without a process: texts to values, choosing the database."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import typer

from horsies import ErrorCode, HorsiesError, PostgresConfig, WorkerRecoveryConfig
from horsies.cli import database
from horsies.cli.main import run
from horsies.cli.options import parse_duration, parse_names
from horsies.cli.worker import recovery_settings
from horsies.core.worker.config import WorkerConfig
from tests.each import each

OWN = PostgresConfig(database_url="postgresql://me:secret@db.example.com/own", pool_size=7)


@each(
    ("text", "seconds"), [("300", 300), ("30s", 30), ("5m", 300), ("2h", 7200), ("0", 0), ("1.5", 1.5), (" 10s ", 10)]
)
def test_m02_durations_are_seconds_or_have_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@each("text", ["", "5x", "-5", "m", "1h30m", "5 m", "1e3", "inf", "nan", "1d", "99999999h", "٣"])
def test_m02_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


def test_names_are_separated_by_commas_or_given_again() -> None:
    assert parse_names(["mail, reports", "billing"]) == ("mail", "reports", "billing")
    assert parse_names(None) is None
    assert parse_names([]) is None
    with pytest.raises(typer.BadParameter):
        parse_names([","])


def test_r06_recovery_that_is_turned_off_by_name_stays_off() -> None:
    of_app = WorkerRecoveryConfig(recovery_delay=timedelta(seconds=9))
    settings = recovery_settings(of_app, False, sweep_interval=timedelta(seconds=7))
    effective = WorkerConfig(**settings).recovery_for(of_app)
    assert not effective.enabled
    assert effective.recovery_delay == timedelta(seconds=9)


def test_r06_recovery_that_is_turned_on_by_name_keeps_the_settings_of_the_app() -> None:
    of_app = WorkerRecoveryConfig(enabled=False, recovery_delay=timedelta(seconds=9))
    effective = WorkerConfig(**recovery_settings(of_app, True)).recovery_for(of_app)
    assert effective.enabled
    assert effective.recovery_delay == timedelta(seconds=9)


def test_the_option_names_the_database_before_anything_else() -> None:
    chosen = database.choose("postgres://a:pw@h/x", OWN, {"DATABASE_URL": "postgresql://h/y"})
    assert chosen.url == "postgresql+psycopg://a:pw@h/x"
    assert chosen.config.pool_size == 7
    assert chosen.sentence() == "database: postgresql://a:***@h/x (--database-url)"


def test_an_app_keeps_its_own_database_whatever_the_environment_says() -> None:
    chosen = database.choose(None, OWN, {"DATABASE_URL": "postgresql://h/y"})
    assert chosen.config is OWN
    assert "secret" not in chosen.sentence()
    assert "DATABASE_URL names another" in chosen.sentence()


@each("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_same_database_is_not_another_one_with_or_without_the_name_of_the_driver(scheme: str) -> None:
    for own in ("postgresql://u:pw@h/y", "postgresql+psycopg://u:pw@h/y"):
        config = PostgresConfig(database_url=own)
        assert "another" not in database.choose(None, config, {"DATABASE_URL": f"{scheme}://u:pw@h/y"}).sentence()
        assert "another" in database.choose(None, config, {"DATABASE_URL": f"{scheme}://u:pw@h/z"}).sentence()
        assert "another" not in database.choose(None, config, {"DATABASE_URL": f"{scheme}://u:pw@/y?host=h"}).sentence()


def test_m13_without_an_app_the_environment_names_it() -> None:
    chosen = database.choose(None, None, {"DATABASE_URL": "postgresql://u:pw@h/y"})
    assert chosen.sentence() == "database: postgresql://u:***@h/y (DATABASE_URL)"


def test_the_embedded_server_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = database.choose(None, None, {"DATABASE_URL": " "})
    assert chosen.config.is_embedded
    assert chosen.sentence() == (
        f"database: embedded PostgreSQL in {tmp_path.resolve()}/.horsies/postgres (DATABASE_URL is not set)"
    )


def test_a_command_that_creates_the_embedded_database_says_that_this_takes_a_while(tmp_path: Path) -> None:
    chosen = database.choose(f"embedded:{tmp_path}/db", None, {})
    assert chosen.opening_sentence() == (
        f"{chosen.sentence()}; creating it there, which takes a few seconds the first time"
    )
    (tmp_path / "db" / "data").mkdir(parents=True)
    assert chosen.opening_sentence() == chosen.sentence()
    server = database.choose("postgresql://h/x", None, {})
    assert server.opening_sentence() == server.sentence()


def test_another_database_does_not_keep_the_pooler_of_the_first() -> None:
    own = PostgresConfig(
        database_url="postgresql://pooler/x",
        session_database_url="postgresql://direct/x",
        pgbouncer_transaction_mode=True,
    )
    config = database.choose("postgresql://other/x", own, {}).config
    assert config.session_database_url is None
    assert not config.pgbouncer_transaction_mode


def test_a_url_nobody_speaks_is_a_configuration_error_without_the_url() -> None:
    with pytest.raises(HorsiesError) as caught:
        database.choose("mysql://u:topsecret@h/x", None, {})
    assert caught.value.code is ErrorCode.BROKER_INVALID_URL
    assert "topsecret" not in str(caught.value)
    assert caught.value.location is None, "it was typed, and stands in no line of code"


def test_m11_a_command_that_is_interrupted_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted_app.py").write_text("raise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["check", "interrupted_app"]) == 1
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    "args",
    [
        ["walk"],
        ["worker"],
        ["worker", "shop", "--loglevel", "LOUD"],
        ["worker", "shop", "--log-format", "xml"],
        ["worker", "shop", "--sweep-interval", "5x"],
        ["worker", "shop", "--shutdown-grace", "-1s"],
        ["worker", "shop", "--no-such-option"],
        ["send", "shop"],
        ["send", "shop", "shop.price", "--kwargs", "{broken"],
        ["send", "shop", "shop.price", "--kwargs", "[1]"],
        ["send", "shop", "shop.price", "--args", "{}"],
    ],
)
def test_m11_usage_errors_end_with_1_and_name_the_option(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert run(args) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error[HRS-206]: ")
    assert all(option in said.err for option in args if option.startswith("--"))
