"""What a row may contain although nobody should write it: values that are nested without end, and options that are not
what they are called. Every page and every answer shows such rows (M-64, M-93)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import fresh_database
from tests.services.web.conftest import FILLED
from tests.web_support import a_board

MASKS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "names": {"mask": ["password"]},
    "a function": {"mask": lambda _task, _field, value: value},
    "everything": {"hide_payloads": True},
}
PATHS = (
    "/", "/queues", "/schedules", "/tasks", "/tasks/t-failed", "/workflows/f-failed", "/workflows/f-failed/nodes/0",
    "/dialogs/rerun-task?id=t-failed", "/api/tasks/t-failed", "/api/workflows/f-failed",
    "/api/workflows/f-failed/nodes/0", "/api/schedules", "/api/snapshot", "/api/explain/t-failed",
)  # fmt: skip
DEEP = """
    UPDATE horsies_tasks SET result = '{"err": {"data": DEEP}}', task_options = '{"x": DEEP}', kwargs = '{"x": DEEP}',
        args = 'DEEP', flags = '{"x": DEEP}';
    UPDATE horsies_workflows SET result = '{"err": {"data": DEEP}}', error = '{"data": DEEP}';
    UPDATE horsies_workflow_tasks SET result = '{"err": {"data": DEEP}}', args_from = '{"x": DEEP}',
        task_kwargs = '{"x": DEEP}';
    UPDATE horsies_schedules SET definition = definition || '{"kwargs": {"x": DEEP}, "more": DEEP}'
"""


@pytest.fixture
def odd_url(server_url: str, template: str) -> Iterator[str]:
    with fresh_database(server_url, template) as url:
        write(url, FILLED)
        yield url


def write(url: str, statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(statements.encode())


@pytest.mark.parametrize("depth", [120, 500, 600, 970, 3_000])
async def test_m64_m93_rows_of_any_depth_are_shown(odd_url: str, depth: int) -> None:
    """Python gives up at about a thousand levels, and functions that call themselves long before."""
    write(odd_url, DEEP.replace("DEEP", "[" * depth + "]" * depth))
    for name, mask in MASKS.items():
        async with a_board(odd_url, **mask) as board:
            statuses = {path: (await board.get(path)).status_code for path in PATHS}
        assert set(statuses.values()) == {200}, (name, statuses)


@pytest.mark.parametrize("value", ["17", "true", "[]", '["x"]', '{"x": 1}', "null", '""', "1e400", '"t-pending"'])
async def test_m64_m91_options_of_the_wrong_kind_are_shown(odd_url: str, value: str) -> None:
    options = '{"rerun_of": VALUE, "trace": VALUE, "retry_policy": VALUE}'
    update = "UPDATE horsies_tasks SET task_options = 'OPTIONS'"
    write(odd_url, update.replace("OPTIONS", options).replace("VALUE", value))
    async with a_board(odd_url) as board:
        page = await board.get("/tasks/t-failed")
    assert page.status_code == 200
    assert ("<dt>Repeats</dt>" in page.text) == (value == '"t-pending"')
