"""What `manage.py check` says about the settings of horsies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured

from horsies.contrib.django import conf
from horsies.core.models.app import AppConfig

BACKENDS = "horsies.contrib.django."


def check_setting(**_: Any) -> list[CheckMessage]:
    """All that is wrong, each with its id: E001 unknown names, E002 values, E003 queues of `TASKS`."""
    try:
        if found := list(conf.problems()):
            return [Error(text, id="horsies.E001") for text in found]
        config = conf.make_config()
    except ImproperlyConfigured as problem:
        return [Error(str(problem), id="horsies.E002")]
    return [Error(text, id="horsies.E003") for text in queue_problems(config)]


def queue_problems(config: AppConfig) -> Iterator[str]:
    """Queues of `TASKS` that the app does not have: nobody would serve them."""
    known = {queue.name for queue in config.queues()}
    for alias, backend in (getattr(settings, "TASKS", None) or {}).items():
        if not str(backend.get("BACKEND", "")).startswith(BACKENDS):
            continue
        for name in sorted(set(backend.get("QUEUES", ["default"])) - known):
            yield (
                f"TASKS[{alias!r}]['QUEUES'] names {name!r}, which is not a queue of horsies "
                f"({', '.join(sorted(known))}); {conf.NAME} = {{'custom_queues': [...]}} defines queues"
            )
