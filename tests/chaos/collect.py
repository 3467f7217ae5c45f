"""Reads a history together from the database, the notes of user code and the logs, when everything has come to rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos import journal
from tests.chaos.history import Attempt, Beat, Move, Run, Task
from tests.chaos.server import Server

TASKS = """
SELECT id, kwargs::jsonb ->> 'key' AS key, task_name, status, claim_seq, claimed_by_worker_id, claimed, retry_count,
       max_retries, task_options, good_until IS NOT NULL AS has_deadline, error_code, result, workflow_id
FROM horsies_tasks
"""
ATTEMPTS = """
SELECT task_id, attempt, outcome, will_retry, extract(epoch FROM started_at)::float8 AS started_at,
       extract(epoch FROM finished_at)::float8 AS finished_at, worker_id, worker_pid, error_code,
       error_message, failed_reason
FROM horsies_task_attempts
"""
MOVES = """
SELECT number, task_id, extract(epoch FROM at)::float8 AS at, extract(epoch FROM stamp)::float8 AS stamp, was, status,
       claim_seq, owner, pid, retry_count, was_seq, was_owner, was_pid, was_retry_count, was_enrolled, session AS by
FROM chaos_moves
"""
BEATS = """
SELECT task_id, role, sender_id AS sender, extract(epoch FROM sent_at)::float8 AS at FROM horsies_heartbeats
"""
CLAIMS = "SELECT run, claim_seq, owner FROM chaos_journal WHERE claim_seq IS NOT NULL"
REGISTERED = "SELECT worker_id FROM horsies_workers ORDER BY worker_id"
TOKEN = re.compile(r"[0-9a-f]{12}")
NAMED = re.compile(r"run=([0-9a-f]{12})")
ENDED = ("returned", "raised")
TROUBLE = re.compile(r"^Traceback|never retrieved|was never awaited|Task was destroyed")


async def tasks(server: Server) -> list[Task]:
    return [
        Task(
            row["id"],
            row["key"],
            row["task_name"],
            row["status"],
            row["claim_seq"],
            row["claimed_by_worker_id"],
            row["claimed"],
            row["retry_count"],
            row["max_retries"],
            retried_codes(row["task_options"]),
            row["has_deadline"],
            row["error_code"],
            token_in(row["result"]),
            row["workflow_id"],
        )
        for row in await server.rows(TASKS)
    ]


def retried_codes(options: str | None) -> frozenset[str]:
    policy = (json.loads(options) if options else {}).get("retry_policy") or {}
    return frozenset(policy.get("auto_retry_for", ()))


def token_in(result: str | None) -> str | None:
    """The run that made an ok result."""
    value = json.loads(result).get("ok") if result else None
    if isinstance(value, list) and value and (named := NAMED.search(str(value[0]))):
        return named[1]
    return value if isinstance(value, str) and TOKEN.fullmatch(value) else None


async def attempts(server: Server, tokens: dict[str, str | None]) -> list[Attempt]:
    """The row of a success does not hold the result; the task does, whose `tokens` are given."""
    return [
        Attempt(
            row["task_id"],
            row["attempt"],
            row["outcome"],
            row["will_retry"],
            row["started_at"],
            row["finished_at"],
            row["worker_id"],
            row["worker_pid"],
            row["error_code"],
            tokens.get(row["task_id"]) if row["outcome"] == "COMPLETED" else token_of_error(row),
            row["failed_reason"],
        )
        for row in await server.rows(ATTEMPTS)
    ]


def token_of_error(row: dict[str, Any]) -> str | None:
    message = row["error_message"] or ""
    if TOKEN.fullmatch(message):
        return str(message)
    named = NAMED.search(message)
    return named[1] if named and row["outcome"] == "FAILED" else None


async def moves(server: Server) -> list[Move]:
    return [Move(**row) for row in await server.rows(MOVES)]


async def beats(server: Server) -> list[Beat]:
    return [Beat(**row) for row in await server.rows(BEATS)]


async def registered(server: Server) -> list[str]:
    return [row["worker_id"] for row in await server.rows(REGISTERED)]


async def runs(server: Server, file: Path) -> list[Run]:
    claims = {row["run"]: (row["claim_seq"], row["owner"]) for row in await server.rows(CLAIMS)}
    return runs_of(journal.read(file), claims)


def runs_of(notes: Iterator[dict[str, Any]], claims: dict[str, tuple[int, str]]) -> list[Run]:
    found: dict[str, Run] = {}
    for note in notes:
        token, what, at = note["run"], note["what"], note["at"]
        if what == "begin":
            found[token] = Run(token, note["key"], note["task"], note["pid"], at, at, "", claims.get(token))
        elif (run := found.get(token)) is not None:
            how = run.how if what == "tick" else what
            found[token] = Run(run.token, run.key, run.task_name, run.pid, run.begin, at, how, run.claim)
    return list(found.values())


def troubles(log: Path) -> Iterator[str]:
    """Lines of a worker's log that no worker should write."""
    for number, line in enumerate(log.read_text(errors="replace").splitlines(), start=1):
        if TROUBLE.search(line):
            yield f"{log.name}:{number}: {line}"
