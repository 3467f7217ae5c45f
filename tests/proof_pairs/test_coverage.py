"""The property speaks of every function of the store: one that writes has a kind in `operations.py`, one that does not
is seen not to.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from horsies.core import store
from tests.architecture.source import statements
from tests.proof_pairs.arena import Arena
from tests.proof_pairs.choices import SIZE, Choices
from tests.proof_pairs.kinds import Operation
from tests.proof_pairs.operations import KINDS, THEMES
from tests.proof_pairs.plays import Example, Way
from tests.proof_pairs.rows import starts

WRITING = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE\s+\w+|DELETE\s+FROM|FOR\s+(?:NO\s+KEY\s+)?UPDATE|FOR\s+(?:KEY\s+)?SHARE|pg_notify|horsies_ring"
    r"|pg_(?:try_)?advisory\w*|COPY\s+\w+)\b"
)
# The first is loaded by no function of the store, and asks nothing of the tables; the second runs while nobody changes
# tasks. What tasks say while they run is written without locks, beside everything that this is about: no
# statement that moves a task reads it.
NOTES = {"tasks/write_progress", "tasks/write_logs", "tasks/trim_logs"}
# The same holds for statistics and for the record of what people did; `tests/store/test_rollup.py` has them at once.
STATISTICS = {"rollup/add", "rollup/gauges", "audit/begin", "audit/complete"}
# What is published moves no task; an early task is claimed by nobody, and who adopts it is met by others who do, and by
# a cancellation, in `tests/store/test_send_from_sql.py`.
EARLY = {"workers/publish", "tasks/adopt"}
APART = {"workers/ping", "caps/start", *NOTES, *STATISTICS, *EARLY}
FUNCTIONS_APART = {
    "notes.write",
    "rollup.add",
    "rollup.note_gauges",
    "rollup.count_cancelled",
    "audit.record_audit",
    "audit.complete",
    "defaults.publish",
    "defaults.adopt",
}


def writing(texts: Mapping[str, str]) -> set[str]:
    """The statements that write, lock or ring while the engine runs."""
    without_comments = {name: re.sub(r"--[^\n]*", "", text) for name, text in texts.items()}
    return {
        name
        for name, text in without_comments.items()
        if WRITING.search(text) and not name.startswith(("schema/", "demo/", "testing/")) and name not in APART
    }


def functions() -> dict[str, Callable[..., Any]]:
    """Every public function of the store that runs a statement, or returns one."""
    found = {}
    for info in pkgutil.iter_modules(store.__path__):
        if info.name == "testing":  # for tests of users, which run nothing else at that time
            continue
        module = importlib.import_module(f"{store.__name__}.{info.name}")
        for name, value in vars(module).items():
            is_ours = inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
            if is_ours and (inspect.iscoroutinefunction(value) or re.search(r"\bload\(", inspect.getsource(value))):
                found[f"{info.name}.{name}"] = value
    return found


def test_every_function_of_the_store_that_writes_takes_part() -> None:
    takes_part = {function for kind in KINDS.values() for function in kind.functions}
    missing = [
        name
        for name, function in functions().items()
        if function not in takes_part and not is_reading(function) and name not in FUNCTIONS_APART
    ]
    assert missing == [], "give them a kind in tests/proof_pairs/task_kinds.py or other_kinds.py"


def test_a_function_that_writes_is_recognised() -> None:
    reading = {name for name, function in functions().items() if is_reading(function)}
    assert {"sends.ended", "recovery.find_stale", "sends.find", "sends.due_at", "holds.unknown_claims"} <= reading
    assert not reading & {"tasks.claim", "tasks.apply", "holds.heartbeat", "workers.pong", "sends.insert", "sends.copy"}


def files_of(function: Callable[..., Any]) -> set[str]:
    """The statements that its source names."""
    return set(re.findall(r'"(\w+/\w+)"', inspect.getsource(function))) & set(statements())


def is_reading(function: Callable[..., Any]) -> bool:
    """Whether all it loads only reads; one that names no file is not known to."""
    loaded = files_of(function)
    return bool(loaded) and not loaded & writing(statements())


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_kind_that_skips_or_may_not_wait_says_so_as_its_statement_does(name: str) -> None:
    """The allowance for skipped rows is given to statements with SKIP LOCKED only."""
    kind = KINDS[name]
    loaded = {file for function in kind.functions for file in files_of(function)}
    skips = any("SKIP LOCKED" in statements()[file] for file in loaded)
    assert skips == kind.skips


def test_every_statement_that_writes_is_run(database_url: str) -> None:
    """By one kind or another; also those of modules beside the store."""

    async def files_run() -> set[str]:
        async with Arena(database_url) as arena:
            for number, kind in enumerate(list(KINDS.values()) * 20):
                pick = Choices(random.Random(number).randbytes(SIZE))
                start = starts(pick, pick.of([statuses for statuses, _ in THEMES.values()]))
                await arena.one_by_one(Example(start, (Operation(kind, kind.draws(pick, start)),), (0,), ()), Way((0,)))
            return arena.files

    assert writing(statements()) - asyncio.run(files_run()) == set(), "statements of no kind in tests/proof_pairs"
