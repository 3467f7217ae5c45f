"""The Celery app of the shop."""

import os
from datetime import timedelta

from celery import Celery
from celery.schedules import crontab

app = Celery(
    "shop",
    broker=os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0"),
    backend=os.environ.get("CELERY_RESULT_BACKEND", "redis://localhost:6379/1"),
    include=["shop.tasks.mail", "shop.tasks.orders", "shop.tasks.reports"],
)

app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    timezone="Europe/Berlin",
    enable_utc=True,
    task_routes={"shop.tasks.mail.*": {"queue": "mail"}},
    worker_prefetch_multiplier=1,
)

app.conf.beat_schedule = {
    # every two seconds, so that one sees it
    "heartbeat": {"task": "shop.tasks.reports.heartbeat", "schedule": timedelta(seconds=2)},
    "nightly-report": {
        "task": "reports.daily",
        "schedule": crontab(minute=30, hour=6, day_of_week="mon-fri"),
        "args": ("yesterday",),
        "options": {"queue": "reports"},
    },
}
