"""For tests of a project on a real database. A `TestCase` of Django's rolls its transaction back, and nobody else sees
what was sent in it; a `TransactionTestCase` commits, and empties its tables afterwards, but only those that Django
manages. `HorsiesTransactionTestCase` empties ours too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.test import TransactionTestCase

from horsies.contrib.django.project import DjangoHorsies, project_app
from horsies.core.sql import load
from horsies.core.tasks.execute import Report
from horsies.testing import running

_CLOSES = "_closes_horsies_first"


class DjangoWays(running.Ways):
    """Code of the other kind is called through asgiref, so that it uses the connection, and with it the transaction, of
    whoever has called."""

    async def call(self, run: Callable[[], Report]) -> Report:
        report: Report = await sync_to_async(run)()
        return report

    def block_on(self, make: Callable[[], Coroutine[Any, Any, Report]]) -> Report:
        async def made() -> Report:
            return await make()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            report: Report = async_to_sync(made)()
            return report
        return super().block_on(make)


def close_before_databases_end(app: DjangoHorsies) -> None:
    """Django drops its test databases at the end of a run, which PostgreSQL refuses while the app has a connection."""
    creation: Any = type(connections[app.database].creation)
    if hasattr(creation, _CLOSES):
        return
    destroy = creation.destroy_test_db

    def close_and_destroy(self: Any, *args: Any, **kwargs: Any) -> None:
        app.get_broker().close()
        destroy(self, *args, **kwargs)

    creation.destroy_test_db = close_and_destroy
    setattr(creation, _CLOSES, True)


class HorsiesTransactionTestCase(TransactionTestCase):
    """A `TransactionTestCase` in which each test begins without tasks."""

    def _fixture_teardown(self) -> None:
        app = project_app()
        if not app.is_inline:
            app.get_broker().close()
            with connections[app.database].cursor() as cursor:
                cursor.execute(load("testing/clear"))
        super()._fixture_teardown()
