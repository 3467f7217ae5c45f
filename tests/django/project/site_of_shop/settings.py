"""A Django project as users have it. What differs between tests comes from the environment."""

import json
import os
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit


def _database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or "") if parts.hostname else _socket(parts.query),
        "PORT": str(parts.port or ""),
    }


def _socket(query: str) -> str:
    pairs = dict(pair.split("=", 1) for pair in query.split("&") if "=" in pair)
    return unquote(pairs.get("host", ""))


DATABASES = {"default": _database(os.environ["SHOP_DATABASE"])}
if "SHOP_OTHER" in os.environ:
    DATABASES["other"] = _database(os.environ["SHOP_OTHER"])
SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
USE_TZ = True
ROOT_URLCONF = "site_of_shop.urls"
LOGIN_URL = "/admin/login/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "horsies.contrib.django",
    "bookshop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
HORSIES: dict[str, object] = {"MASK": ["card"], **json.loads(os.environ.get("SHOP_HORSIES", "{}"))}
TASKS = {"default": {"BACKEND": "horsies.contrib.django.HorsiesBackend"}}
if find_spec("django.tasks") is None and find_spec("django_tasks") is not None:
    INSTALLED_APPS.append("django_tasks")
