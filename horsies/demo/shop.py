"""The app of `horsies demo`: a small shop whose tasks succeed, fail, are retried, report their progress and log, with
workflows and schedules. An ordinary app, as a user would write it, except for its names: queues and schedules begin
with `demo-`, so that it meets neither the tasks nor the schedules of others in the same database. Nothing is left to
chance but how long tasks take, and the `declines` of a payment. Environment variables name the database, its notify
mode and, for a demo that ends by itself, the run: it has its own queues, and no schedules of earlier days.
"""

import logging
import os
import random
import time
from datetime import time as time_of_day
from typing import Any

from horsies import (
    AppConfig,
    CronSchedule,
    CustomQueueConfig,
    DailySchedule,
    Horsies,
    IntervalSchedule,
    OnError,
    PostgresConfig,
    QueueMode,
    RecoveryConfig,
    RetryPolicy,
    ScheduleConfig,
    TaskContext,
    TaskError,
    TaskLogs,
    TaskResult,
    TaskSchedule,
    WorkflowSpec,
    from_node,
)

DATABASE_VARIABLE = "HORSIES_DEMO_DATABASE_URL"
NOTIFY_VARIABLE = "HORSIES_DEMO_NOTIFY"
RUN_VARIABLE = "HORSIES_DEMO_RUN"
RUN = os.environ.get(RUN_VARIABLE, "")
PREFIX = f"demo-{RUN}" if RUN else "demo"
QUEUES = ORDERS, MAIL, IMAGES, ARCHIVE = [f"{PREFIX}-{name}" for name in ("orders", "mail", "images", "archive")]
BUSY = "busy.example.com"  # its mail server refuses each mail at first
SOLD_OUT = 42  # the last two digits of items that cannot be packed
AFTER_CRASH = RetryPolicy.fixed([1], auto_retry_for=["WORKER_CRASHED"], jitter=False)
log = logging.getLogger("shop")

_broker: dict[str, Any] = {
    "database_url": os.environ.get(DATABASE_VARIABLE, "embedded:.horsies/postgres"),
    "notify": os.environ.get(NOTIFY_VARIABLE, "always"),
}

SCHEDULES = [
    TaskSchedule(name="demo-stock-check", task_name="shop.check_stock", pattern=IntervalSchedule(seconds=20)),
    TaskSchedule(
        name="demo-nightly-report",
        task_name="shop.report",
        pattern=DailySchedule(time=time_of_day(2, 30)),
        timezone="Europe/Berlin",
        kwargs={"pages": 40},
    ),
    TaskSchedule(
        name="demo-newsletter",
        task_name="shop.send_mail",
        pattern=CronSchedule.parse("0 9 * * mon"),
        timezone="America/New_York",
        kwargs={"to": "everybody@example.com", "subject": "News"},
    ),
]
# Added while the shop runs, so a dashboard can change it.
AT_RUN_TIME = TaskSchedule(
    name="demo-reminder",
    task_name="shop.send_mail",
    pattern=IntervalSchedule(minutes=1),
    kwargs={"to": "grace@example.com", "subject": "Your basket is waiting"},
)

app = Horsies(
    AppConfig(
        broker=PostgresConfig(**_broker),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name=ORDERS, priority=1),
            CustomQueueConfig(name=MAIL, priority=2, max_concurrency=2),
            CustomQueueConfig(name=IMAGES, priority=3),
            CustomQueueConfig(name=ARCHIVE, priority=9),  # no worker of the demo serves it
        ],
        recovery=RecoveryConfig(check_interval_ms=1_000),
        schedule=ScheduleConfig(schedules=[] if RUN else SCHEDULES),
        task_logs=TaskLogs(),
    )
)


@app.task("shop.set_price", queue_name=ORDERS)
def set_price(item: int, cents: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=cents)


@app.task(
    "shop.send_mail",
    queue_name=MAIL,
    retry_policy=RetryPolicy.fixed([2, 5], auto_retry_for=["SMTP_BUSY"], jitter=True),
)
def send_mail(ctx: TaskContext, to: str, subject: str) -> TaskResult[str, TaskError]:
    time.sleep(random.uniform(0.02, 0.1))
    if to.endswith(f"@{BUSY}") and ctx.attempt == 1:
        return TaskResult(err=TaskError(error_code="SMTP_BUSY", message=f"the mail server refused {to}: try later"))
    return TaskResult(ok=f"{subject!r} was sent to {to}")


@app.task("shop.resize_image", queue_name=IMAGES, retry_policy=AFTER_CRASH)
def resize_image(path: str, width: int) -> dict[str, Any]:
    time.sleep(random.uniform(0.05, 0.2))
    if not path.endswith(".jpg"):
        raise ValueError(f"{path} is not an image: unexpected end of file")
    return {"path": path.replace(".jpg", f"-{width}.jpg"), "width": width, "bytes": random.randint(10_000, 90_000)}


@app.task("shop.report", queue_name=IMAGES, retry_policy=AFTER_CRASH)
def report(ctx: TaskContext, pages: int) -> TaskResult[int, TaskError]:
    """Report the progress, and log."""
    for page in range(pages):
        log.info("page %d of %d", page + 1, pages)
        ctx.progress(page + 1, pages, f"page {page + 1}")
        time.sleep(0.25)
    return TaskResult(ok=pages)


@app.task("shop.archive", queue_name=ARCHIVE)
def archive(order: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=order)


@app.task("shop.check_stock", queue_name=ORDERS)
def check_stock() -> TaskResult[int, TaskError]:
    return TaskResult(ok=random.randint(0, 500))


@app.task("shop.reserve", queue_name=ORDERS)
def reserve(order: int) -> TaskResult[int, TaskError]:
    time.sleep(random.uniform(0.02, 0.1))
    return TaskResult(ok=order)


@app.task("shop.charge", queue_name=ORDERS)
def charge(order: TaskResult[int, TaskError], declines: float) -> TaskResult[int, TaskError]:
    time.sleep(random.uniform(0.05, 0.3))
    if random.random() < declines:
        error = TaskError(error_code="CARD_DECLINED", message="the bank refused the payment", data={"reason": "limit"})
        return TaskResult(err=error)
    return TaskResult(ok=order.unwrap())


@app.task("shop.list_items", queue_name=ORDERS)
def list_items(order: TaskResult[int, TaskError]) -> TaskResult[list[int], TaskError]:
    first = order.unwrap() * 10
    return TaskResult(ok=list(range(first, first + order.unwrap() % 7 + 3)))


@app.task("shop.pack", queue_name=IMAGES, retry_policy=AFTER_CRASH)
def pack(item: int) -> TaskResult[int, TaskError]:
    time.sleep(random.uniform(0.02, 0.15))
    if item % 100 == SOLD_OUT:
        return TaskResult(err=TaskError(error_code="OUT_OF_STOCK", message=f"item {item} is sold out"))
    return TaskResult(ok=item)


@app.task("shop.ship", queue_name=ORDERS)
def ship(
    payment: TaskResult[int, TaskError], items: TaskResult[list[TaskResult[int, TaskError]], TaskError]
) -> TaskResult[str, TaskError]:
    time.sleep(random.uniform(0.05, 0.2))
    return TaskResult(ok=f"order {payment.unwrap()}: {len(items.unwrap())} items")


def order_workflow(order: int, *, declines: float = 0.1, pauses: bool = False) -> WorkflowSpec[str]:
    """An order: reserve, charge and pack each item, ship. `pauses`: an error pauses it instead of failing it."""
    reserved = reserve.node(node_id="reserve")(order=order)
    charged = charge.node(node_id="charge")(order=from_node(reserved), declines=declines)
    items = list_items.node(node_id="items")(order=from_node(reserved))
    packed = pack.map_node(node_id="pack", over=from_node(items))()
    shipped = ship.node(node_id="ship")(payment=from_node(charged), items=from_node(packed))
    return app.workflow(
        "order",
        [reserved, charged, items, packed, shipped],
        output=shipped,
        on_error=OnError.PAUSE if pauses else OnError.FAIL,
        definition_key="shop.order",
    )
