from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, JsonResponse

from bookshop.models import Order
from bookshop.tasks import ship


def order(request: HttpRequest) -> JsonResponse:
    """The order and its task are committed together."""
    with transaction.atomic():
        made = Order.objects.create(name=request.GET["name"])
        handle = ship.send(made.pk).unwrap()
    return JsonResponse({"order": made.pk, "task": handle.task_id})


def failing_order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        made = Order.objects.create(name=request.GET["name"])
        ship.send(made.pk).unwrap()
        raise RuntimeError("the card was refused")


def order_on_commit(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        made = Order.objects.create(name=request.GET["name"])
        transaction.on_commit(lambda: ship.send_or_raise(made.pk))
    return JsonResponse({"order": made.pk})


async def async_order(request: HttpRequest) -> JsonResponse:
    """Outside of a transaction, and in one inside of sync code."""
    made = await Order.objects.acreate(name=request.GET["name"])
    alone = (await ship.send_async(made.pk)).unwrap()
    together = await sync_to_async(_in_transaction)(request.GET["name"])
    return JsonResponse({"alone": alone.task_id, "together": together})


def _in_transaction(name: str) -> str:
    with transaction.atomic():
        return ship.send(Order.objects.create(name=name).pk).unwrap().task_id
