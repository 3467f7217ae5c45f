"""The views. An order and the task that confirms it are one transaction."""

from flask import Blueprint, abort, request
from flask.typing import ResponseReturnValue

from horsies import RetrievalCode, TaskHandle

from .database import Order, session
from .tasks import app as horsies_app
from .tasks import confirm

orders = Blueprint("orders", __name__)


@orders.post("/orders")
def place_order() -> ResponseReturnValue:
    order = Order(item=request.get_json()["item"])
    session.add(order)
    session.flush()  # now it has an id
    handle = confirm.with_options(connection=session).send_or_raise(order.id)
    if order.item == "unicorn":
        abort(409, "not in stock")  # nothing was committed: neither the order nor its task exists
    session.commit()
    return {"order_id": order.id, "task_id": handle.task_id}, 201


@orders.get("/confirmations/<task_id>")
def show_confirmation(task_id: str) -> ResponseReturnValue:
    """Wait a little; 202 means: ask again."""
    handle = TaskHandle[str](task_id, horsies_app.get_broker())
    result = handle.get(timeout_ms=2_000)
    if result.err is None:
        return {"confirmation": result.ok_value}
    if result.err.error_code is RetrievalCode.TASK_NOT_FOUND:
        abort(404, "no such task")
    if isinstance(result.err.error_code, RetrievalCode):
        return {"state": str(result.err.error_code)}, 202
    return {"failed": result.err.message}, 502
