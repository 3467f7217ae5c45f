"""A bank that is not always there: the first two calls for an order fail."""

import os
from pathlib import Path


class BankAway(Exception):
    pass


def transfer(order_id: int, cents: int) -> str:
    calls = Path(os.environ["SHOP_DIRECTORY"]) / f"bank-{order_id}"
    with calls.open("a") as file:
        file.write("x")
    if len(calls.read_text()) < 3:
        raise BankAway(f"no answer for order {order_id}")
    return f"transfer-{order_id}-{cents}"


def note(name: str, text: str) -> None:
    """Something that the outside world sees of a task."""
    with (Path(os.environ["SHOP_DIRECTORY"]) / name).open("a") as file:
        file.write(text + "\n")
