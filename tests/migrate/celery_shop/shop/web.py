"""What a view of the shop does."""

from celery.result import AsyncResult

from shop.tasks import orders, reports
from shop.tasks.mail import newsletter


def buy(order_id, cents):
    result = orders.charge.delay(order_id, cents)
    return result.id


def receipt(task_id):
    return AsyncResult(task_id).get(timeout=60)


def announce(addresses):
    return newsletter.delay(addresses).get(timeout=60)


def turnover_now():
    return reports.turnover("italy", 2)
