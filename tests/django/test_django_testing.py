"""The test setting `HORSIES = {"TESTING": "inline"}`, and tests on the database (X-20)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.django.conftest import manage, rows

TESTS = """
from django.db import connection
from django.test import TestCase, TransactionTestCase, override_settings
from bookshop.models import Order
from bookshop.tasks import broken, greet, ship, ship_async, welcome

from horsies.contrib.django import app
from horsies.contrib.django.test import HorsiesTransactionTestCase


class Inline(TestCase):
    def test_a_send_runs_at_once(self):
        assert connection.settings_dict["NAME"].startswith("test_")
        order = Order.objects.create(name="a")
        assert ship.send(order.pk).unwrap().get().unwrap() == "a"
        order.refresh_from_db()
        assert order.is_shipped
        assert app.testing.sent.one(ship)

    def test_async_tasks_see_the_transaction_of_the_test(self):
        order = Order.objects.create(name="b")
        assert ship_async.send(order.pk).unwrap().get().unwrap() == "b"

    async def test_awaited_sends(self):
        order = await Order.objects.acreate(name="c")
        assert (await (await ship_async.send_async(order.pk)).unwrap().get_async()).unwrap() == "c"
        assert (await (await ship.send_async(order.pk)).unwrap().get_async()).unwrap() == "c"

    def test_tasks_of_django(self):
        assert welcome.enqueue("ada").return_value == "ada"
        assert greet.enqueue("bob").return_value == "hello bob"
        assert broken.enqueue("luck").status == "FAILED"


class Database(TransactionTestCase):
    def test_the_requests_of_a_client(self):
        assert "test_" in app.config.broker.display_url()
        self.client.get("/order/", {"name": "d"})
        assert Order.objects.get(name="d").is_shipped


@override_settings(HORSIES={})
class Drained(HorsiesTransactionTestCase):
    def test_the_rows_are_real(self):
        self.client.get("/order/", {"name": "d"})
        assert not Order.objects.get(name="d").is_shipped
        [done] = app.testing.drain()
        assert done.result.unwrap() == "d"

    def test_each_test_begins_without_tasks(self):
        assert app.testing.sent.tasks == []
        ship.send(1).unwrap()

    def test_this_one_too(self):
        assert app.testing.sent.tasks == []
        ship.send(1).unwrap()
"""


def test_x20_tests_of_a_project_run_tasks_inline_or_drain_the_database(empty_database_url: str, tmp_path: Any) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    said = manage(empty_database_url, "test", "--noinput", str(tmp_path), SHOP_HORSIES='{"TESTING": "inline"}').stderr
    assert "Ran 8 tests" in said
    assert rows(empty_database_url, "SELECT count(*) FROM pg_class WHERE relname = 'horsies_tasks'") == [(0,)]


def test_x20_the_setting_can_change_inside_of_a_test(shop: str) -> None:
    from bookshop.tasks import pay, welcome
    from django.test import override_settings

    from horsies.contrib.django import app

    with override_settings(HORSIES={"TESTING": "inline"}):
        assert pay.send("1234", 5).unwrap().get().unwrap() == 5
        assert welcome.enqueue("ada").return_value == "ada"
        assert app.is_inline
    assert not app.is_inline
    pay.send("1234", 5).unwrap()
    assert rows(shop, "SELECT count(*) FROM horsies_tasks") == [(1,)]
    with pytest.raises(RuntimeError, match="needs a database"), override_settings(HORSIES={"TESTING": "inline"}):
        app.testing.drain()
