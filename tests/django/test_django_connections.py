"""Django's connections in the children of a worker are tidied around each task and its hooks (X-20)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def app(shop: str) -> Iterator[Any]:
    """The app as in a child of a worker that has started."""
    from bookshop.models import Order
    from django.db import connection

    from horsies.contrib.django import app
    from horsies.contrib.django.stale_connections import begin

    Order.objects.count()
    before = {name: list(value) if isinstance(value, list) else value for name, value in vars(app.task_hooks).items()}
    begin(app)()
    assert connection.connection is None  # what imports have opened
    yield app
    vars(app.task_hooks).update(before)


def test_x20_a_connection_is_kept_until_it_is_old(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bookshop.tasks import where
    from django.db import connection

    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 60)

    def session_of_a_task() -> int:
        where.send().unwrap()
        [done] = app.testing.drain()
        return int(done.result.ok_value[1])

    first = session_of_a_task()
    assert session_of_a_task() == first
    connection.close_at = time.monotonic() - 1  # while nothing ran
    assert session_of_a_task() != first


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_x20_hooks_have_the_connection_of_their_task(app: Any, ends: str) -> None:
    """A hook before the task has none that is old, and what a hook after it has opened is closed."""
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import connection

    seen: list[object] = []

    def use(ctx: Any, *_: Any) -> None:
        Order.objects.count()
        seen.append(connection.connection)

    app.before_task(use)
    app.after_task(use) if ends == "well" else app.on_failure(use)
    order = Order.objects.create(name="a")
    ship.send(order.pk if ends == "well" else 0).unwrap()
    connection.ensure_connection()
    old = connection.connection
    connection.close_at = time.monotonic() - 1
    app.testing.drain()
    assert len(seen) == 2 and seen[0] is seen[1] is not old
    assert connection.connection is None  # CONN_MAX_AGE is 0


def test_x20_hooks_of_async_tasks_have_it_too(app: Any) -> None:
    from bookshop.models import Order
    from bookshop.tasks import ship_async
    from django.db import connection

    seen: list[object] = []

    async def use(ctx: Any, *_: Any) -> None:
        await Order.objects.acount()
        seen.append(await sync_to_async(lambda: connection.connection)())

    app.before_task(use)
    app.after_task(use)
    app.on_failure(use)
    ship_async.send(0).unwrap()
    connection.ensure_connection()
    old = connection.connection
    connection.close_at = time.monotonic() - 1
    app.testing.drain()
    assert len(seen) == 3 and len(set(seen)) == 1 and seen[0] is not old
    assert connection.connection is None


async def test_x20_an_async_task_that_ends_leaves_the_connection_to_the_others(shop: str) -> None:
    """All async tasks of a child share one: another one may be in the middle of its rows."""
    from bookshop.models import Order
    from django.db import connection

    from horsies.contrib.django.stale_connections import _around_async

    async with ThreadSensitiveContext():
        await Order.objects.abulk_create([Order(name=str(number)) for number in range(5)])
        async with _around_async():
            found = Order.objects.aiterator(chunk_size=1)
            await anext(found)
            async with _around_async():
                assert await Order.objects.acount() == 5
            assert len([order async for order in found]) == 4
            # What is broken is closed all the same.
            await sync_to_async(lambda: connection.connection.close())()
            with pytest.raises(Exception, match="closed"):
                await Order.objects.acount()
            async with _around_async():
                assert await Order.objects.acount() == 5
        assert await sync_to_async(lambda: connection.connection)() is None  # CONN_MAX_AGE is 0
