"""The guide for Django: its files, put into a project as it says, run its own tests and a worker (X-20)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.django.conftest import PROJECT, environment, rows
from tests.e2e.page_support import ROOT, blocks

pytestmark = pytest.mark.e2e
PAGE = (ROOT / "docs/django.md").read_text()


def files() -> dict[str, str]:
    """The blocks by their titles; of one title, the last lines of the file come last."""
    found: dict[str, str] = {}
    for title, code in blocks("django"):
        found[title] = found.get(title, "") + code
    return found


def write_project(folder: Path) -> None:
    parts = files()
    for name in ("shop/__init__.py", "shop/migrations/__init__.py", "mysite/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    for name in ("shop/tasks.py", "shop/views.py"):
        (folder / name).write_text(parts[name])
    (folder / "test_shop.py").write_text(parts["shop/tests.py"])
    for name in ("models.py", "migrations/0001_initial.py"):
        (folder / "shop" / name).write_text((PROJECT / "bookshop" / name).read_text().replace("bookshop", "shop"))
    for name in ("asgi.py", "jobs.py"):
        (folder / "mysite" / name).write_text(parts[f"mysite/{name}"])
    settings = (
        (PROJECT / "site_of_shop/settings.py").read_text().replace("site_of_shop", "mysite").replace("bookshop", "shop")
    )
    shown = parts["settings.py"].replace("INSTALLED_APPS = [", "SHOWN = [")
    # The test of the page has its tasks in one queue, as `@app.task` without a name of a queue wants it.
    one_queue = re.sub(r' *"custom_queues": .*\n', "", shown)
    (folder / "mysite/settings.py").write_text(f"{settings}\n{one_queue}\nassert SHOWN[0] in INSTALLED_APPS\n")
    (folder / "mysite/urls.py").write_text(
        "from django.urls import path\nfrom shop import views\nurlpatterns = [path('order/', views.order)]\n"
    )
    (folder / "manage.py").write_text((PROJECT / "manage.py").read_text().replace("site_of_shop", "mysite"))


@pytest.mark.slow("runs the code of a documentation page")
def test_x20_the_project_of_the_guide_passes_its_tests_and_runs(
    empty_database_url: str, tmp_path: Path, started: Callable[..., Any]
) -> None:
    write_project(tmp_path)
    env = environment(empty_database_url, DJANGO_SETTINGS_MODULE="mysite.settings")
    env["PYTHONPATH"] = f"{tmp_path}:{ROOT}"

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "Ran 2 tests" in run("manage.py", "test", "--noinput")
    run("manage.py", "migrate", "-v0")
    requested = """
from mysite.asgi import application
from django.test import Client
from mysite.jobs import app
assert Client().get("/order/", {"name": "a"}).status_code == 200
assert app.list_tasks() == ["shop.tasks.ship"], app.list_tasks()
assert type(application).__name__ == "Starlette"
"""
    run("-c", requested)
    assert rows(empty_database_url, "SELECT task_name, status FROM horsies_tasks") == [("shop.tasks.ship", "PENDING")]


def test_x20_the_connection_of_the_page_is_used(shop: str, other: str) -> None:
    from tests.e2e.page_support import ours

    [code] = ours("django")
    exec(compile(code.replace("shop.", "bookshop."), "docs/django.md", "exec"), {})
    assert (rows(shop, "SELECT 1 FROM horsies_tasks"), len(rows(other, "SELECT 1 FROM horsies_tasks"))) == ([], 1)


def test_x20_the_page_names_all_settings_and_what_is_offered(_django: None) -> None:
    from horsies.contrib import django
    from horsies.contrib.django.any_backend import OPTIONS
    from horsies.contrib.django.conf import OURS

    assert [name for name in OURS if f"`{name}`" not in PAGE] == []
    assert [name for name in OPTIONS if f"`{name}`" not in PAGE] == []
    offered = {name: getattr(django, name) for name in ("app", *django._HOMES)}
    missing = [name for name in offered if name not in PAGE]
    assert missing == ["StaffOnly"]  # it is a default, and the page of the dashboard has policies


def test_x20_a_task_of_the_page_is_one_of_django(_django: None) -> None:
    from importlib.util import find_spec

    code = files()["mail/tasks.py"]
    if find_spec("django.tasks") is None:
        code = code.replace("from django.tasks", "from django_tasks")
    found: dict[str, Any] = {"__name__": "mail.tasks"}
    exec(compile(code, "docs/django.md", "exec"), found)
    assert found["welcome"].module_path == "mail.tasks.welcome"
    assert found["welcome"].call("ada") == "hello ada"
