"""Sends of a Django project are part of Django's own transaction, where there is one (X-20)."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from tests.django.conftest import rows

pytestmark = pytest.mark.usefixtures("shop")
NAMES = "SELECT task_name FROM horsies_tasks ORDER BY id"


def sent(url: str) -> list[str]:
    """What is committed."""
    return [name for (name,) in rows(url, NAMES)]


def test_x20_a_task_is_committed_with_the_rows_of_its_transaction(shop: str) -> None:
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import transaction

    with transaction.atomic():
        order = Order.objects.create(name="a")
        handle = ship.send(order.pk).unwrap()
        assert sent(shop) == []
        assert [task.task_name for task in tasks_seen()] == ["bookshop.tasks.ship"]  # this transaction sees it
    assert rows(shop, "SELECT id FROM horsies_tasks") == [(handle.task_id,)]


def tasks_seen() -> Any:
    from horsies.contrib.django.models import Task

    return list(Task.objects.all())


def test_x20_a_rolled_back_transaction_has_sent_nothing(shop: str) -> None:
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        ship.send(Order.objects.create(name="a").pk).unwrap()
        ship.send_many([(2,), (3,)]).unwrap()
        raise RuntimeError
    assert sent(shop) == []
    assert not Order.objects.exists()


def test_x20_a_savepoint_that_is_rolled_back_takes_its_tasks_with_it(shop: str) -> None:
    from bookshop.tasks import report, ship
    from django.db import transaction

    with transaction.atomic():
        ship.send(1).unwrap()
        with pytest.raises(RuntimeError), transaction.atomic():
            report.send("inner").unwrap()
            raise RuntimeError
        ship.send(2).unwrap()
    assert sent(shop) == ["bookshop.tasks.ship"] * 2


def test_x20_outside_of_a_transaction_a_task_is_committed_at_once(shop: str) -> None:
    from bookshop.tasks import report, ship
    from django.db import transaction

    ship.send(1).unwrap()
    assert sent(shop) == ["bookshop.tasks.ship"]
    with transaction.atomic():
        transaction.on_commit(lambda: report.send("later").unwrap())
        assert sent(shop) == ["bookshop.tasks.ship"]
    assert sent(shop) == ["bookshop.tasks.ship", "bookshop.tasks.report"]


def test_x20_a_failed_send_leaves_the_transaction_usable(shop: str) -> None:
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import transaction

    with transaction.atomic():
        first = ship.with_options(idempotency_key="k").send(1).unwrap()
        again = ship.with_options(idempotency_key="k").send(1).unwrap()
        refused = ship.with_options(idempotency_key="k").send(2)
        assert refused.err_value.code == "PAYLOAD_MISMATCH"
        Order.objects.create(name="a")
    assert again.task_id == first.task_id
    assert len(sent(shop)) == 1
    assert Order.objects.count() == 1


def test_x20_a_transaction_that_can_only_be_rolled_back_refuses_sends(shop: str) -> None:
    from bookshop.tasks import ship
    from django.db import transaction

    with transaction.atomic():
        transaction.set_rollback(True)
        refused = ship.send(1)
        assert "atomic" in refused.err_value.message
        assert not refused.err_value.retryable
    assert sent(shop) == []


def test_x20_thousands_of_tasks_belong_to_the_transaction_too(shop: str) -> None:
    from bookshop.tasks import ship
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        ship.send_many([(number,) for number in range(3000)]).unwrap()
        raise RuntimeError
    assert sent(shop) == []
    ship.send_many([(number,) for number in range(3000)]).unwrap()
    assert len(sent(shop)) == 3000
    async_to_sync(ship.send_many_async)([(number,) for number in range(1000)]).unwrap()
    assert len(sent(shop)) == 4000


@pytest.mark.parametrize("count", [2, 3000])
def test_x20_awaited_sends_of_many_belong_to_the_transaction_too(shop: str, count: int) -> None:
    from bookshop.tasks import ship
    from django.db import transaction

    calls = [(number,) for number in range(count)]
    with pytest.raises(RuntimeError), transaction.atomic():
        async_to_sync(ship.send_many_async)(calls).unwrap()
        raise RuntimeError
    assert sent(shop) == []
    with transaction.atomic():
        async_to_sync(ship.send_many_async)(calls).unwrap()
        assert sent(shop) == []
    assert len(sent(shop)) == count


def test_x20_without_autocommit_the_commit_of_the_project_decides(shop: str) -> None:
    from bookshop.tasks import ship
    from django.db import transaction

    transaction.set_autocommit(False)
    try:
        ship.send(1).unwrap()
        transaction.rollback()
        assert sent(shop) == []
        ship.send(2).unwrap()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert len(sent(shop)) == 1


def test_x20_a_database_without_autocommit_has_a_transaction_before_it_is_connected(shop: str) -> None:
    from bookshop.tasks import pay
    from django.db import connection

    connection.close()
    connection.settings_dict["AUTOCOMMIT"] = False
    try:
        pay.send("1", 2).unwrap()
        connection.rollback()
        assert sent(shop) == []
        pay.send("1", 2).unwrap()
        connection.commit()
    finally:
        connection.close()
        connection.settings_dict["AUTOCOMMIT"] = True
    assert sent(shop) == ["bookshop.tasks.pay"]


def test_x20_a_send_can_use_the_connection_of_another_database(shop: str, other: str) -> None:
    from bookshop.tasks import ship
    from django.db import connections, transaction

    with pytest.raises(RuntimeError), transaction.atomic(using="other"):
        ship.with_options(connection=connections["other"]).send(1).unwrap()
        ship.send(2).unwrap()  # no transaction is open on the app's own database
        raise RuntimeError
    assert (sent(shop), sent(other)) == (["bookshop.tasks.ship"], [])
    with transaction.atomic(using="other"):
        ship.with_options(connection=connections["other"].connection).send(3).unwrap()
        assert sent(other) == []
    assert (len(sent(shop)), len(sent(other))) == (1, 1)


def send_by_command(url: str) -> None:
    from django.core.management import call_command

    words = ["send", "bookshop.tasks.pay", "--", "--args", '["1", 2]', "--database-url", url]
    call_command("horsies", *words)


def test_x20_a_command_for_another_database_is_in_no_transaction_and_chooses_for_itself_only(
    shop: str, other: str
) -> None:
    from bookshop.tasks import ship
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        send_by_command(other)
        ship.send(1).unwrap()  # the app is on the project's database again, in the transaction
        raise RuntimeError
    assert (sent(shop), sent(other)) == ([], ["bookshop.tasks.pay"])
    ship.send(2).unwrap()
    assert (sent(shop), sent(other)) == (["bookshop.tasks.ship"], ["bookshop.tasks.pay"])


def test_x20_a_command_that_names_the_database_of_the_project_is_in_its_transaction(shop: str) -> None:
    from django.db import transaction

    from horsies.contrib.django import app

    url = app.config.broker.database_url.get_secret_value()
    with pytest.raises(RuntimeError), transaction.atomic():
        send_by_command(url)
        raise RuntimeError
    assert sent(shop) == []
    send_by_command(url)
    assert sent(shop) == ["bookshop.tasks.pay"]


def test_x20_an_awaited_send_is_where_the_awaited_orm_is(shop: str) -> None:
    """Without a transaction it is committed at once; called from inside of one, it belongs to it."""
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import transaction

    async def order() -> str:
        made = await Order.objects.acreate(name="a")
        return (await ship.send_async(made.pk)).unwrap().task_id

    async def order_in_a_request() -> str:
        async with ThreadSensitiveContext():
            return await order()

    async_to_sync(order)()
    assert len(sent(shop)) == 1
    with pytest.raises(RuntimeError), transaction.atomic():
        async_to_sync(order)()
        raise RuntimeError
    assert (len(sent(shop)), Order.objects.count()) == (1, 1)
    with transaction.atomic():
        async_to_sync(order)()
        assert len(sent(shop)) == 1
    assert len(sent(shop)) == 2
    async_to_sync(order_in_a_request)()  # this thread has its own connection, and no transaction
    assert len(sent(shop)) == 3


def test_x20_sync_code_that_async_code_calls_has_its_own_transaction(shop: str) -> None:
    from bookshop.models import Order
    from bookshop.tasks import ship
    from django.db import connections, transaction

    def order(*, fails: bool) -> None:
        try:
            with transaction.atomic():
                ship.send(Order.objects.create(name="a").pk).unwrap()
                if fails:
                    raise RuntimeError
        except RuntimeError:
            pass
        finally:
            connections.close_all()

    async def view() -> None:
        async with ThreadSensitiveContext():
            await sync_to_async(order)(fails=True)
            await sync_to_async(order)(fails=False)
        await sync_to_async(order, thread_sensitive=False)(fails=True)
        await sync_to_async(order, thread_sensitive=False)(fails=False)

    async_to_sync(view)()
    assert len(sent(shop)) == Order.objects.count() == 2


@pytest.mark.parametrize("commits", [True, False])
def test_x20_a_workflow_is_started_in_the_transaction(shop: str, commits: bool) -> None:
    from bookshop.models import Order
    from bookshop.tasks import report, ship
    from django.db import transaction

    from horsies.contrib.django import app

    def start() -> None:
        with transaction.atomic():
            order = Order.objects.create(name="a")
            first = ship.node()(order_id=order.pk)
            spec = app.workflow("orders", [first, report.node(waits_for=[first])(order_name="a")], definition_key="o")
            assert spec.start().unwrap().workflow_id
            async_to_sync(spec.start_async)().unwrap()
            assert rows(shop, "SELECT count(*) FROM horsies_workflows") == [(0,)]
            if not commits:
                raise RuntimeError

    if commits:
        start()
        app.testing.drain()
        found = rows(shop, "SELECT DISTINCT status FROM horsies_workflows")
        assert found == [("COMPLETED",)]
    else:
        with pytest.raises(RuntimeError):
            start()
        assert rows(shop, "SELECT count(*) FROM horsies_workflows") == [(0,)]
        assert sent(shop) == []


def test_x20_requests_of_the_test_client(shop: str) -> None:
    from bookshop.models import Order
    from django.test import Client

    client = Client(raise_request_exception=False)
    made = client.get("/order/", {"name": "a"}).json()
    assert rows(shop, "SELECT id FROM horsies_tasks") == [(made["task"],)]
    assert client.get("/order/fail/", {"name": "b"}).status_code == 500
    assert client.get("/order/later/", {"name": "c"}).status_code == 200
    assert sorted(Order.objects.values_list("name", flat=True)) == ["a", "c"]
    assert len(sent(shop)) == 2
    assert set(client.get("/order/async/", {"name": "d"}).json()) == {"alone", "together"}
    assert len(sent(shop)) == 4
