"""Celery with Redis as broker and result backend. The worker is its own command, which imports `app` from here."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from celery import Celery

from benchmarks.peers import marks
from benchmarks.peers.catalog import Settings

_socket = os.environ["PEERS_URL"]
_settings: Settings = json.loads(os.environ.get("PEERS_SETTINGS", "{}"))

app: Any = Celery(
    "peers", broker=f"redis+socket://{_socket}?virtual_host=0", backend=f"redis+socket://{_socket}?virtual_host=1"
)
app.conf.update(
    worker_prefetch_multiplier=_settings.get("prefetch", 4),
    task_acks_late=_settings.get("acks_late", False),
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


def _mark(number: int) -> int:
    marks.hit(number)
    return number


mark: Any = app.task(name="mark")(_mark)


async def install(url: str) -> None:
    """Redis needs no schema."""


class Sender:
    def __init__(self, with_results: bool) -> None:
        self._ignore = not with_results

    async def send(self, number: int) -> Any:
        return mark.apply_async((number,), ignore_result=self._ignore)

    async def send_many(self, count: int) -> None:
        """It has no call for many, but one producer may serve them all."""
        with app.producer_pool.acquire(block=True) as producer:
            for number in range(count):
                mark.apply_async((number,), ignore_result=self._ignore, producer=producer)

    async def result(self, handle: Any) -> None:
        handle.get(timeout=30)


@asynccontextmanager
async def sender(url: str, settings: Settings) -> AsyncIterator[Sender]:
    yield Sender(bool(settings["results"]))
    app.backend.result_consumer.stop()
