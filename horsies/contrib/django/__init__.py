"""Django (X-20): one Horsies app for a Django project, on its database.

`INSTALLED_APPS += ["horsies.contrib.django"]`, `HORSIES = {...}` in the settings, and `from horsies.contrib.django
import app` in the `tasks.py` of any installed app. Everything here is found when it is first asked for, because
Django imports this package before its settings and its models are there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horsies.contrib.django.backend import HorsiesBackend as HorsiesBackend
    from horsies.contrib.django.dashboard import StaffOnly as StaffOnly
    from horsies.contrib.django.dashboard import with_dashboard as with_dashboard
    from horsies.contrib.django.project import DjangoHorsies
    from horsies.contrib.django.project import get_horsies_app as get_horsies_app

    app: DjangoHorsies

_HOMES = {
    "HorsiesBackend": "backend",
    "StaffOnly": "dashboard",
    "get_horsies_app": "project",
    "with_dashboard": "dashboard",
}


def __getattr__(name: str) -> Any:
    if name == "app":
        return import_module(f"{__name__}.project").project_app()
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
