"""`examples/fastapi_app`: an order and its task are one transaction, seen from the outside."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from httpx import ASGITransport, AsyncClient

from horsies import TaskHandle
from tests.worker_support import make_worker

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package, loaded anew for this test's database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("fastapi_app.main")
    for name in [name for name in sys.modules if name.partition(".")[0] == "fastapi_app"]:
        del sys.modules[name]


@pytest.fixture
async def client(shop: ModuleType) -> AsyncIterator[AsyncClient]:
    transport = ASGITransport(shop.api)
    async with (
        shop.api.router.lifespan_context(shop.api),
        AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def counts(database_url: str) -> tuple[int, int, int]:
    """Orders, tasks, books in stock."""
    with psycopg.connect(database_url) as conn:
        row = conn.execute(
            "SELECT (SELECT count(*) FROM shop_orders), (SELECT count(*) FROM horsies_tasks), quantity FROM shop_stock"
        ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


async def test_an_order_is_placed_with_its_task_and_shipped_by_a_worker(
    client: AsyncClient, shop: ModuleType, database_url: str
) -> None:
    answer = await client.post("/orders", json={"item": "book", "quantity": 2})
    assert answer.status_code == 201
    placed = answer.json()
    assert counts(database_url) == (1, 1, 1)
    assert (await client.get(f"/orders/{placed['order_id']}")).json() == {
        "item": "book",
        "quantity": 2,
        "shipped": False,
    }

    tasks = str(EXAMPLES / "fastapi_app" / "tasks.py")
    await make_worker(shop.horsies_app, app_locator=tasks).run_once()
    assert (await client.get(f"/orders/{placed['order_id']}")).json()["shipped"] is True
    handle: TaskHandle[str] = TaskHandle(placed["task_id"], shop.horsies_app.get_broker())
    assert (await handle.get_async(timeout_ms=5000)).unwrap() == f"order {placed['order_id']} is on its way"


async def test_an_order_that_cannot_be_met_leaves_no_task_behind(client: AsyncClient, database_url: str) -> None:
    refused = await client.post("/orders", json={"item": "book", "quantity": 4})
    assert (refused.status_code, counts(database_url)) == (409, (0, 0, 3))
    assert (await client.post("/orders", json={"item": "unicorn"})).status_code == 409
    assert (await client.post("/orders", json={"item": "book", "quantity": 0})).status_code == 422
    assert (await client.get("/orders/1")).status_code == 404
    assert counts(database_url) == (0, 0, 3)


async def test_a_queue_that_cannot_take_the_task_means_no_order(client: AsyncClient, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("ALTER TABLE horsies_tasks ADD CHECK (task_name <> 'shop.ship')")
    assert (await client.post("/orders", json={"item": "book"})).status_code == 503
    assert counts(database_url) == (0, 0, 3)


async def test_x21_what_becomes_of_an_order_is_watched_and_shown(client: AsyncClient, shop: ModuleType) -> None:
    placed = (await client.post("/orders", json={"item": "book"})).json()
    await shop.horsies_app.testing.drain_async(raise_on_failure=True)
    assert (await client.get(f"/tasks/{placed['task_id']}/events")).text == "data: COMPLETED\n\n"
    assert (await client.get(f"/jobs/api/tasks/{placed['task_id']}")).json()["status"] == "COMPLETED"
