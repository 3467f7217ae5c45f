"""Tasks of every kind of type, for programs in other languages (X-40)."""

from __future__ import annotations

import dataclasses
import os
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NotRequired
from uuid import UUID

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from horsies import AppConfig, CustomQueueConfig, Horsies, PostgresConfig, QueueMode, RetryPolicy

app = Horsies(
    AppConfig(
        broker=PostgresConfig(database_url=os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[CustomQueueConfig(name="mail", priority=7), CustomQueueConfig(name="slow", priority=90)],
    )
)
AGAIN = RetryPolicy.fixed([1], auto_retry_for=["NOT_YET"], jitter=False)
HOSTILE = 'x" */ `${process.exit(3)}` </script> // \\'


class Color(Enum):
    RED = "red"
    TWO = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Line(BaseModel):
    first: Point = Field(alias="from")
    parent: Line | None = None


class Address(TypedDict):
    street: str
    number: NotRequired[int]


class Refused(Exception):
    """A known problem."""


@app.task("mail.send", queue_name="mail", exception_mapper={Refused: "REFUSED"}, retry_policy=AGAIN)
def send_mail(to: str, copies: int = 1) -> str:
    if to == "refused@b":
        raise Refused
    return f"{copies} to {to}"


@app.task("every/kind", queue_name="slow")
def every_kind(
    text: str,
    when: datetime,
    day: date,
    took: timedelta,
    price: Decimal,
    key: UUID,
    color: Color,
    raw: bytes,
    address: Address,
    pair: tuple[int, str],
    members: set[int],
    word: Literal["x", 1],
    line: Line | None = None,
    anything: Any = None,
    number: float = 1.5,
) -> dict[str, Decimal | bytes | Line | Any]:
    return {"price": price, "raw": raw, "line": line}


@app.task("by_position", queue_name="mail")
def by_position(first: int, /, second: int = 2) -> int:
    return first + second


@app.task("variadic", queue_name="mail")
def variadic(first: int, *rest: str, **more: int) -> list[str]:
    return [*rest, *more]


@app.task(HOSTILE, queue_name="mail")
def hostile(arg: Literal['*/ `"\\', "\u2028"]) -> str:
    return arg
