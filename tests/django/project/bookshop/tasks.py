"""Tasks of both kinds: of horsies, and of Django's own framework where this Django has it."""

import os
import time
from importlib.util import find_spec
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection

from bookshop.models import Order
from horsies.contrib.django import app

if find_spec("django.tasks") is not None:
    from django.tasks import task
else:
    from django_tasks import task


@app.task
def ship(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.is_shipped = True
    order.save()
    return order.name


@app.task
async def ship_async(order_id: int) -> str:
    order = await Order.objects.aget(pk=order_id)
    return order.name


@app.task
def pay(card: str, amount: int) -> int:
    return amount


@app.task
def where(wait_s: float = 0.0) -> list[int]:
    """The process, and its session on the server before and after the ORM is used."""
    time.sleep(wait_s)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return [os.getpid(), cursor.fetchone()[0]]


@app.task
async def where_async() -> list[int]:
    """The same for an async task, whose session belongs to the thread of sensitive code."""
    return await sync_to_async(where.fn)()


@app.task
def mark(path: str, wait_s: float) -> int:
    """Leaves a line each time it begins, so that a test can count and kill."""
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if len(Path(path).read_text().splitlines()) == 1:
        time.sleep(wait_s)
    return os.getpid()


@app.task
def report(order_name: str) -> int:
    """Counts over the ORM, in the process that runs it."""
    return Order.objects.filter(name=order_name).count()


@task
def welcome(name: str, *, loud: bool = False) -> str:
    return name.upper() if loud else name


@task
def broken(name: str) -> None:
    raise Trouble(f"no {name}")


@task(takes_context=True)
def tell(context, word: str) -> list[object]:
    return [context.attempt, context.task_result.id, word]


@task(takes_context=True)
def tell_priority(context) -> int:
    return context.task_result.task.priority


@task
async def greet(name: str) -> str:
    return f"hello {name}"


@task
def unwritable() -> object:
    return object()


class Trouble(Exception):
    pass
