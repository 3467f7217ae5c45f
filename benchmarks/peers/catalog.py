"""Who is compared: the settings that are tried for each, where its tasks lie, and what it does and does not do.

The statements about the peers were read from the code of the pinned versions. A `Contender` is one way to run one of
them; its settings are options that it documents, and the drain is run with the best of `tries`.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Settings = Mapping[str, int | bool | str]
Answer = Literal["value", "polled value", "status", "none"]
OURS = "horsies"


@dataclass(frozen=True)
class Traits:
    """What a user gets with it, in the words of the table."""

    isolation: str
    results: str
    history: str
    fence: str
    rows: str


@dataclass(frozen=True)
class Contender:
    """One way to run one system. Without `calm` settings only its drain is measured; `imports` is what
    an app of it needs."""

    key: str
    system: str
    title: str
    distributions: tuple[str, ...]
    traits: Traits
    tries: tuple[Settings, ...]
    trial_tasks: int
    calm: Settings | None = None
    always: str = ""
    answer: Answer = "none"
    has_bulk: bool = True
    table: str = ""
    unfinished: str = ""
    imports: str = ""

    @property
    def needs_redis(self) -> bool:
        return self.system == "celery"


def described(settings: Settings) -> str:
    return ", ".join(f"{name} {_word(value)}" for name, value in settings.items())


def _word(value: int | bool | str) -> str:
    return str(value) if not isinstance(value, bool) else "on" if value else "off"


def worker_command(contender: Contender, settings: Settings) -> list[str]:
    """The program that is the worker, without what `program` fills in."""
    if contender.system == OURS:
        options = f"--processes {settings['processes']} --run-ahead-ms {settings['run_ahead_ms']}"
        return [sys.executable, *shlex.split(f"{_HORSIES} {options}")]
    if contender.system == "celery":
        return [sys.executable, *shlex.split(f"{_CELERY} --concurrency {settings['processes']}")]
    return [sys.executable, "-m", "benchmarks.peers.program", contender.system, "work"]


def processes(contender: Contender, settings: Settings) -> int:
    """How many of that program are one worker: ours and Celery's start their own children."""
    return 1 if contender.system in (OURS, "celery") else int(settings["processes"])


_HORSIES = "-m horsies worker benchmarks.peers.systems.horsies:app --loglevel WARNING"
_CELERY = (
    "-m celery --app benchmarks.peers.systems.celery:app worker --pool prefork --loglevel WARNING"
    " --without-gossip --without-mingle --without-heartbeat"
)


def each(names: Sequence[str], *rows: Sequence[int | bool | str]) -> tuple[Settings, ...]:
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


_HORSIES_USUAL = Contender(
    key="horsies",
    system=OURS,
    title="horsies",
    imports="from horsies import AppConfig, Horsies",
    distributions=("horsies-pg", "psycopg"),
    traits=Traits(
        isolation="child processes; a crash affects only the task that ran",
        results="typed values, errors as values",
        history="a row for each attempt",
        fence="the number of the claim",
        rows="kept, with result",
    ),
    tries=each(("processes", "run_ahead_ms"), (2, 20)),
    trial_tasks=5_000,
    calm={"processes": 2, "run_ahead_ms": 20},
    answer="value",
    table="horsies_tasks, horsies_task_attempts",
    unfinished="SELECT 1 FROM horsies_tasks WHERE status <> 'COMPLETED' LIMIT 1",
)
_CELERY_USUAL = Contender(
    key="celery",
    system="celery",
    title="Celery on Redis",
    imports="from celery import Celery",
    distributions=("celery", "redis", "hiredis"),
    traits=Traits(
        isolation="child processes",
        results="untyped values, errors as exceptions; kept for a day",
        history="none",
        fence="none by owner; a stored success is not overwritten",
        rows="a message is removed when its task starts, with acks_late when it ends",
    ),
    tries=each(
        ("processes", "prefetch", "results", "acks_late"),
        (2, 1, False, False),
        (2, 16, False, False),
        (2, 128, False, False),
        (2, 128, True, False),
    ),
    trial_tasks=1_500,
    calm={"processes": 2, "prefetch": 1, "results": True, "acks_late": False},
    always="prefork, no gossip, no mingle, no heartbeat, no events",
    answer="value",
    has_bulk=False,
)
CONTENDERS = (
    _HORSIES_USUAL,
    # Second ways to run a system: only the drain is measured.
    replace(
        _HORSIES_USUAL,
        key="horsies_strict",
        title="horsies, no run-ahead",
        tries=each(("processes", "run_ahead_ms"), (2, 0)),
        trial_tasks=2_000,
        calm=None,
    ),
    Contender(
        key="pgqueuer",
        system="pgqueuer",
        title="PgQueuer",
        imports="from pgqueuer import PgQueuer; from pgqueuer.db import AsyncpgDriver",
        distributions=("pgqueuer", "asyncpg", "uvloop"),
        traits=Traits(
            isolation="none: coroutines in the worker",
            results="none; the sender can wait for the status",
            history="a log row for each change of state",
            fence="none: finished by id alone",
            rows="deleted; the log row stays",
        ),
        tries=each(
            ("processes", "batch_size"), (1, 200), (1, 1_000), (1, 2_000), (2, 200), (2, 500), (2, 1_000), (2, 2_000)
        ),
        trial_tasks=10_000,
        calm={"processes": 1, "batch_size": 1},
        always="asyncpg, uvloop, autovacuum settings of `pgq autovac`, durability durable",
        answer="status",
        table="pgqueuer, pgqueuer_log",
        unfinished="SELECT 1 FROM pgqueuer LIMIT 1",
    ),
    Contender(
        key="procrastinate",
        system="procrastinate",
        title="Procrastinate",
        imports="from procrastinate import App, PsycopgConnector",
        distributions=("procrastinate", "psycopg", "uvloop"),
        traits=Traits(
            isolation="none: coroutines or threads in the worker",
            results="none",
            history="an event row for each change of state",
            fence="none: finished by id and state",
            rows="kept",
        ),
        tries=each(("processes", "concurrency"), (1, 2), (1, 10), (1, 50), (2, 1), (2, 10), (2, 30)),
        trial_tasks=1_500,
        calm={"processes": 1, "concurrency": 2},
        always="async tasks, listen_notify on, delete_jobs never, uvloop",
        answer="none",
        table="procrastinate_jobs, procrastinate_events",
        unfinished="SELECT 1 FROM procrastinate_jobs WHERE status <> 'succeeded' LIMIT 1",
    ),
    Contender(
        key="oban",
        system="oban",
        title="Oban for Python",
        imports="from oban import Oban, worker",
        distributions=("oban", "psycopg", "uvloop"),
        traits=Traits(
            isolation="none: coroutines in the worker (processes are in its paid edition)",
            results="untyped values in the row; no call waits for one",
            history="errors of failed attempts, in the row",
            fence="the time of the attempt",
            rows="kept for a day",
        ),
        tries=each(("processes", "limit"), (1, 10), (1, 50), (1, 200), (1, 1_000), (2, 10), (2, 50), (2, 200)),
        trial_tasks=5_000,
        calm={"processes": 1, "limit": 10},
        always="uvloop and orjson as its command line sets them",
        answer="polled value",
        table="oban_jobs",
        unfinished="SELECT 1 FROM oban_jobs WHERE state <> 'completed' LIMIT 1",
    ),
    _CELERY_USUAL,
    replace(
        _CELERY_USUAL,
        key="celery_late",
        title="Celery, acks_late and results",
        tries=each(("processes", "prefetch", "results", "acks_late"), (2, 16, True, True), (2, 128, True, True)),
        calm=None,
    ),
)
