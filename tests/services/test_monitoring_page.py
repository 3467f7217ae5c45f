"""The code in docs/monitoring.md runs, and prints what the page says beside it."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from horsies import monitoring
from horsies.core.models.monitoring.cluster import Why
from horsies.core.models.monitoring.tasks import ErrorCategory
from horsies.core.types.status import TaskStatus
from tests.factories import given_task

PAGE = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


async def test_m45_m48_m49_the_page_runs_and_prints_what_it_says(
    database_url: str, db: AsyncConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [await given_task(db) for _ in range(3)]
    failed = await given_task(db, status=TaskStatus.FAILED, queue_name="mail", error_code="NO", failed_at="now")
    names: dict[str, Any] = {"database_url": database_url, "waiting_id": ids[0], "failed_id": failed}
    for number, block in enumerate(BLOCKS):
        code = compile(block, f"<block {number} of monitoring.md>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        outcome = eval(code, names)
        if inspect.isawaitable(outcome):
            await outcome
    printed = capsys.readouterr().out.splitlines()
    said = re.findall(r"^\s*print\(.*\)  # (.*)$", "".join(BLOCKS), re.MULTILINE)
    assert len(said) >= 6 and [line for line in said if line not in printed] == []
    assert f"{failed} a_task NO" in printed and "1 of 1" in printed
    assert "default: 3 due, 0 scheduled, 0 running" in printed


def test_m45_the_page_names_every_function_reason_and_category() -> None:
    functions = [name for name, function in vars(monitoring).items() if inspect.iscoroutinefunction(function)]
    words = [*functions, *Why, *ErrorCategory, *monitoring.MonitoringErrorCode]
    assert [word for word in words if f"`{word}" not in PAGE] == []
