"""What happens to an order."""

from celery import chain, shared_task

from shop.bank import BankAway, note, transfer
from shop.tasks.mail import send_mail


@shared_task(bind=True, autoretry_for=(BankAway,), max_retries=5, retry_backoff=1, retry_jitter=False, acks_late=True)
def charge(self, order_id: int, cents: int) -> str:
    receipt = transfer(order_id, cents)
    return f"{receipt} after {self.request.retries} retries"


@shared_task(bind=True, max_retries=3, default_retry_delay=1)
def reserve(self, order_id, items=("horse",)):
    try:
        return {"order": order_id, "reserved": [item.upper() for item in items], "by": transfer(1000 + order_id, 0)}
    except BankAway as exc:
        raise self.retry(exc=exc)  # noqa: B904


@shared_task(time_limit=30)
def ship(reservation, carrier):
    note("parcels", f"{carrier}: {reservation['reserved']}")
    return f"{len(reservation['reserved'])} by {carrier}"


@shared_task
def thank(shipped, to):
    send_mail.apply_async((to,), {"subject": f"shipped: {shipped}"}, countdown=1)
    return True


def place_order(order_id, to):
    """Reserve, then ship, then say thanks. The caller may wait for the end of it."""
    return chain(reserve.s(order_id, items=["horse", "cart"]), ship.s("post"), thank.s(to)).delay()
