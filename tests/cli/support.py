"""Commands typed into this very process, on a database of the test's own: what they print, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from horsies.cli import main
from horsies.core.types.status import TaskStatus
from tests.factories import given_task

T = TypeVar("T")


@dataclass(frozen=True)
class Typed:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """As a strict parser reads it: Python's own also takes NaN and Infinity."""
        return json.loads(self.out, parse_constant=_no_json)

    @property
    def rows(self) -> list[list[str]]:
        """The lines of the table below its titles, word by word."""
        lines = self.out.splitlines()
        begin = next(place for place, line in enumerate(lines) if line.strip().startswith("─")) + 1
        return [line.split() for line in lines[begin:] if line.strip()]


def _no_json(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


class Terminal:
    """Types commands that use one database."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def type(self, *words: str, code: int = 0) -> Typed:
        """With the database's URL added."""
        return self.type_plain(*words, "--database-url", self.url, code=code)

    def type_plain(self, *words: str, code: int = 0) -> Typed:
        self._capsys.readouterr()
        ended = main.run([*words])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        assert ended == code, f"{words}: {said.out}{said.err}"
        return Typed(ended, said.out, said.err)

    def given(self, status: TaskStatus = TaskStatus.PENDING, **columns: Any) -> str:
        """A task; returns its id."""
        return self.doing(lambda db: given_task(db, status=status, **columns))

    def doing(self, act: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        async def run() -> T:
            async with await AsyncConnection.connect(self.url, autocommit=True) as db:
                return await act(db)

        return asyncio.run(run())

    def execute(self, statement: str, params: Sequence[Any] | None = None) -> None:
        with psycopg.connect(self.url, autocommit=True) as conn:
            conn.execute(statement.encode(), params)

    def rows(self) -> dict[str, dict[str, Any]]:
        """Every task by its id."""
        with psycopg.connect(self.url, row_factory=dict_row) as conn:
            return {row["id"]: row for row in conn.execute("SELECT * FROM horsies_tasks")}

    def count(self) -> int:
        """How many tasks there are."""
        with psycopg.connect(self.url) as conn:
            [(count,)] = conn.execute("SELECT count(*) FROM horsies_tasks").fetchall()
            return int(count)
