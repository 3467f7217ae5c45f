"""The setting `HORSIES`, and the database that it means (X-20)."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.django.conftest import PROJECT, environment, manage, on_database, rows

PARAMS = {"dbname": "a/b?c", "user": "ü@x", "password": "p@s:s/%w", "host": "db.example.com", "port": 5433}


@pytest.fixture
def conf(_django: None) -> Any:
    from horsies.contrib.django import conf

    return conf


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"host": "/var/run/postgresql", "port": ""},
        {"host": "::1"},
        {"host": "a,b", "port": "1,2"},
        {"host": "", "user": "", "password": "", "port": "", "dbname": "", "service": "shop"},
        {"sslmode": "verify-full", "sslrootcert": "/a b/c.pem", "options": "-c statement_timeout=1s"},
    ],
)
def test_x20_the_address_is_what_django_would_connect_with(conf: Any, more: dict[str, Any]) -> None:
    from horsies.core.models.broker import PostgresConfig

    given = {**PARAMS, **more}
    config = PostgresConfig(database_url=conf.url_of({**given, "pool": True, "cursor_factory": object}))
    wanted = {name: str(value) for name, value in given.items() if value != ""}
    assert conninfo_to_dict(config.dsn()) == wanted
    assert "p@s" not in repr(config) + config.display_url()
    assert "p%40s" not in repr(config) + config.display_url()


def test_x20_options_of_a_connection_are_kept(conf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import connections

    monkeypatch.setitem(
        connections["default"].settings_dict,
        "OPTIONS",
        {"sslmode": "prefer", "pool": True, "assume_role": "my role", "isolation_level": 3},
    )
    found = conninfo_to_dict(conf.url_of(conf.connection_params("default")).replace("+psycopg", ""))
    assert found["sslmode"] == "prefer"
    assert found["options"] == "-c role=my\\ role"
    assert not {"pool", "isolation_level", "assume_role"} & set(found)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"RECOVERI": {}}, "did you mean 'recovery'"),
        ({"BROKER": {"database_url": "x"}}, "comes from DATABASES"),
        ({"BROKER": {"pool_siz": 3}}, "did you mean 'pool_size'"),
        ({"TESTING": "yes"}, "must be 'inline'"),
        ({"DATABASE": "nowhere"}, "not in DATABASES"),
        ({"TASK_MODULES": "bookshop.tasks"}, "must be a list"),
        ({"cluster_wide_cap": -1}, "cluster_wide_cap"),
        ({"queue_mode": "custom"}, "at least one queue"),
        ([1], "must be a dict"),
    ],
)
def test_x20_mistakes_are_found_by_check_and_refused(
    conf: Any, setting: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured

    from horsies.contrib.django.checks import check_setting

    monkeypatch.setattr(settings, "HORSIES", setting)
    [message] = check_setting()
    assert says in message.msg
    with pytest.raises(ImproperlyConfigured, match=says):
        conf.make_config()


def test_x20_fields_of_the_config_are_settings(conf: Any) -> None:
    from django.test import override_settings

    from horsies.contrib.django.checks import check_setting

    setting = {
        "RECOVERY": {"unknown_task_grace_ms": 5000},
        "custom_queues": [{"name": "default", "priority": 3}, {"name": "mail"}],
        "payload": {"reject_bytes": 1000},
        "BROKER": {"pool_size": 2},
    }
    with override_settings(HORSIES=setting):
        config = conf.make_config()
        assert [queue.name for queue in config.queues()] == ["mail", "default"]
        assert config.recovery.unknown_task_grace_ms == 5000
        assert (config.payload.reject_bytes, config.broker.pool_size) == (1000, 2)
    tasks = {"default": {"BACKEND": "horsies.contrib.django.HorsiesBackend", "QUEUES": ["default", "mail"]}}
    with override_settings(TASKS=tasks):
        [message] = check_setting()
        assert (message.id, "'mail'" in message.msg) == ("horsies.E003", True)


def test_x20_another_engine_is_refused_in_words(tmp_path: Any) -> None:
    settings = tmp_path / "elsewhere.py"
    settings.write_text(
        "from site_of_shop.settings import *\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
    )
    ended = manage(
        "postgresql://localhost/x", "check", "--settings", "elsewhere", "--pythonpath", str(tmp_path), check=False
    )
    assert ended.returncode == 1
    assert "horsies needs PostgreSQL, and DATABASES['default'] has the engine" in ended.stderr


def test_x20_the_app_follows_the_connection_of_django(shop: str, other: str) -> None:
    from bookshop.tasks import ship

    from horsies.contrib.django import app

    ids = "SELECT id FROM horsies_tasks"
    here = app.config.broker
    first = ship.send(1).unwrap().task_id
    assert urlsplit(shop).path in here.display_url() and rows(shop, ids) == [(first,)]
    with on_database(urlsplit(other).path.lstrip("/"), "default"):
        assert urlsplit(other).path in app.config.broker.display_url()
        second = ship.send(2).unwrap().task_id
        assert rows(other, ids) == [(second,)]
        assert app.get_task_info(second).unwrap().task_name == "bookshop.tasks.ship"
        assert app.get_task_info(first).unwrap() is None
    assert app.config.broker.database_url == here.database_url and rows(shop, ids) == [(first,)]
    assert app.get_task_info(first).unwrap().task_name == "bookshop.tasks.ship"


def test_x20_modules_of_tasks_are_those_of_the_apps_and_of_the_setting(
    shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.test import override_settings

    from horsies.contrib.django import app

    assert app.get_discovered_task_modules() == ["bookshop.tasks"]
    monkeypatch.setattr(app, "_modules", list(app._modules))
    with override_settings(HORSIES={"TASK_MODULES": ["bookshop.models"]}):
        app.name_modules()
    assert set(app.get_discovered_task_modules()) == {"bookshop.tasks", "bookshop.models"}


IMPORTS = """
import sys
import horsies, horsies.cli.main, horsies.contrib
assert not [name for name in sys.modules if name.split(".")[0] in ("django", "asgiref", "django_tasks")]
import horsies.contrib.django
assert "django" not in sys.modules
try:
    horsies.contrib.django.nothing
except AttributeError:
    print("good")
"""


def test_x20_nobody_pays_for_django_who_does_not_use_it() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.stdout == "good\n", done.stderr


def test_x20_without_the_installed_app_it_says_what_to_add(tmp_path: Any) -> None:
    (tmp_path / "bare.py").write_text(
        "from site_of_shop.settings import *\nINSTALLED_APPS = ['django.contrib.contenttypes']\n"
    )
    code = "from horsies.contrib.django import get_horsies_app; get_horsies_app()"
    env = environment("postgresql://localhost/x", DJANGO_SETTINGS_MODULE="bare")
    env["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert "add 'horsies.contrib.django' to INSTALLED_APPS" in done.stderr
