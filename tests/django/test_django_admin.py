"""Tasks and workflows in Django's admin, to read (X-20)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def client(shop: str) -> Any:
    """Logged in as a superuser."""
    from django.contrib.auth.models import User
    from django.test import Client

    made = Client()
    made.force_login(User.objects.create_superuser("root"))
    return made


@pytest.fixture
def task_id(shop: str) -> str:
    from bookshop.tasks import pay

    return pay.send("4111-1111", 5).unwrap().task_id


def test_x20_the_admin_lists_and_shows_tasks(client: Any, task_id: str) -> None:
    page = client.get("/admin/horsies/task/").content.decode()
    assert task_id in page and "bookshop.tasks.pay" in page
    page = client.get(f"/admin/horsies/task/{task_id}/change/").content.decode()
    assert "***" in page and "4111-1111" not in page  # HORSIES["MASK"]
    assert client.get("/admin/horsies/workflow/").status_code == 200


def test_x20_the_admin_changes_nothing(client: Any, task_id: str) -> None:
    for path in ("task/add/", f"task/{task_id}/delete/", "workflow/add/"):
        assert client.get(f"/admin/horsies/{path}").status_code == 403
    assert client.post(f"/admin/horsies/task/{task_id}/change/", {"task_name": "x"}).status_code == 403
    answer = client.post("/admin/horsies/task/", {"action": "delete_selected", "_selected_action": [task_id]})
    assert answer.status_code == 200  # the list again: there is no such action
    from horsies.contrib.django.models import Task

    assert Task.objects.get().task_name == "bookshop.tasks.pay"


def test_x20_who_may_look_is_a_matter_of_permissions(shop: str, task_id: str) -> None:
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    staff = User.objects.create_user("ann", is_staff=True)
    client = Client()
    assert client.get("/admin/horsies/task/").status_code == 302  # to the login
    client.force_login(staff)
    assert client.get("/admin/horsies/task/").status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_task", content_type__app_label="horsies"))
    assert task_id in client.get("/admin/horsies/task/").content.decode()
    client.force_login(User.objects.create_user("bob"))
    assert client.get("/admin/horsies/task/").status_code == 302


def test_x20_filters_and_search_find_tasks(client: Any, task_id: str) -> None:
    from bookshop.tasks import ship

    other = ship.send(1).unwrap().task_id
    for query, found in (
        ({"status": "PENDING"}, [task_id, other]),
        ({"status": "FAILED"}, []),
        ({"name": "bookshop.tasks.ship"}, [other]),
        ({"queue": "default"}, [task_id, other]),
        ({"q": task_id.upper()}, [task_id]),
        ({"q": "bookshop.tasks.ship"}, [other]),
        ({"q": "nothing"}, []),
    ):
        page = client.get("/admin/horsies/task/", query).content.decode()
        assert [one for one in (task_id, other) if f"/admin/horsies/task/{one}/" in page] == found, query


def test_x20_a_page_that_imports_modules_suppresses_no_sends(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads of the server send while it is imported."""
    from horsies.contrib.django import app

    (tmp_path / "late_tasks.py").write_text(
        "from horsies.contrib.django import app\nwas_suppressed = app.sends_suppressed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app.discover_tasks(["late_tasks"])
    try:
        assert client.get("/admin/horsies/task/").status_code == 200
        assert sys.modules["late_tasks"].was_suppressed is False
    finally:
        app._modules.remove("late_tasks")
        sys.modules.pop("late_tasks", None)


def test_x20_lists_count_only_so_far(client: Any, shop: str) -> None:
    from bookshop.tasks import ship
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from horsies.contrib.django import admin

    ship.send_many([(number,) for number in range(120)]).unwrap()
    before, admin.MOST_COUNTED = admin.MOST_COUNTED, 100
    try:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            page = client.get("/admin/horsies/task/").content.decode()
    finally:
        admin.MOST_COUNTED = before
    counts = [query["sql"] for query in asked if "COUNT" in query["sql"] and "horsies_tasks" in query["sql"]]
    assert counts and all("LIMIT 101" in statement for statement in counts)
    assert "101 tasks" in page
    assert not [query for query in asked if "DISTINCT" in query["sql"] and "horsies_tasks" in query["sql"]]


def test_x20_no_address_tells_what_is_masked(client: Any, task_id: str) -> None:
    for query in ("args__contains=4111", "kwargs__contains=zzz", "result__isnull=1", "failed_reason__gt=a"):
        answer = client.get(f"/admin/horsies/task/?{query}")
        assert (answer.status_code, task_id in answer.content.decode()) == (400, False), query
    answer = client.get("/admin/horsies/workflow/?error__contains=a")
    assert answer.status_code == 400


def test_x20_lists_are_read_along_an_index(client: Any, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No column sorts, and a filter looks at so many of the newest tasks."""
    from bookshop.tasks import pay, ship
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from horsies.contrib.django import admin

    old = pay.send("1", 5).unwrap().task_id
    ship.send_many([(number,) for number in range(20)]).unwrap()
    monkeypatch.setattr(admin, "MOST_LOOKED_AT", 20)
    assert f"/task/{old}/" in client.get("/admin/horsies/task/").content.decode()
    for query in ("name=bookshop.tasks.pay", "q=bookshop.tasks.pay", "status=PENDING", "queue=default"):
        assert f"/task/{old}/" not in client.get(f"/admin/horsies/task/?{query}").content.decode(), query
    assert f"/task/{old}/" in client.get(f"/admin/horsies/task/?q={old}").content.decode()
    for path, order in (("task", '"horsies_tasks"."id" DESC'), ("workflow", '"horsies_workflows"."completed_at" DESC')):
        with CaptureQueriesContext(connection) as asked:
            assert "sortable" not in client.get(f"/admin/horsies/{path}/?o=2.3").content.decode()
        orders = [
            query["sql"].split("ORDER BY ")[-1] for query in asked if f'"horsies_{path}s"."id" DESC' in query["sql"]
        ]
        assert orders and all(found.startswith(order) for found in orders), orders


def test_x20_rows_lead_to_the_dashboard(client: Any, task_id: str) -> None:
    from django.test import override_settings

    assert "dashboard" not in client.get("/admin/horsies/task/").content.decode()
    with override_settings(HORSIES={"DASHBOARD_URL": "https://example.com/"}):
        for path in ("task/", f"task/{task_id}/change/"):
            page = client.get(f"/admin/horsies/{path}").content.decode()
            assert f'href="https://example.com/tasks/{task_id}"' in page


@pytest.fixture
def workflow_id(shop: str) -> str:
    """Of a workflow that has failed."""
    from bookshop.tasks import pay, ship

    from horsies.contrib.django import app

    paid = pay.node(node_id="pay")(card="4111-1111", amount=5)
    nodes = [paid, ship.node(node_id="ship", waits_for=[paid])(order_id=0)]
    started = app.workflow("checkout", nodes, definition_key="shop.checkout").start().unwrap()
    app.testing.drain()
    return started.workflow_id


def test_x20_the_admin_shows_workflows_and_changes_none(client: Any, workflow_id: str) -> None:
    from django.test import override_settings

    with override_settings(HORSIES={"DASHBOARD_URL": "https://example.com/"}):
        for path in ("", f"{workflow_id}/change/", "?status=FAILED", "?q=checkout", f"?q={workflow_id}"):
            page = client.get(f"/admin/horsies/workflow/{path}").content.decode()
            assert f'href="https://example.com/workflows/{workflow_id}"' in page, path
    for query in ("?q=other", "?status=COMPLETED"):
        assert workflow_id not in client.get(f"/admin/horsies/workflow/{query}").content.decode(), query
    assert client.post(f"/admin/horsies/workflow/{workflow_id}/change/", {"name": "x"}).status_code == 403
    assert client.get(f"/admin/horsies/workflow/{workflow_id}/delete/").status_code == 403


def test_x20_the_admin_hides_what_the_dashboard_hides(client: Any, workflow_id: str) -> None:
    from django.test import override_settings

    from horsies.contrib.django.models import Task, Workflow

    Task.objects.update(failed_reason="reason-of-somebody")
    Workflow.objects.update(error='{"message": "error-of-somebody"}', result='{"ok": "result-of-somebody"}')
    task_id = Task.objects.get(task_name="bookshop.tasks.pay").pk
    with override_settings(HORSIES={"HIDE_PAYLOADS": True}):
        for path in (f"task/{task_id}", f"workflow/{workflow_id}"):
            answer = client.get(f"/admin/horsies/{path}/change/")
            page = answer.content.decode()
            assert answer.status_code == 200
            assert "-of-somebody" not in page and "4111-1111" not in page and "DoesNotExist" not in page, path


def test_x20_a_failed_task_shows_its_attempts(client: Any, shop: str) -> None:
    from bookshop.tasks import ship

    from horsies.contrib.django import app

    task_id = ship.send(1).unwrap().task_id
    app.testing.drain()
    page = client.get(f"/admin/horsies/task/{task_id}/change/").content.decode()
    assert "DoesNotExist" in page and "UNHANDLED_EXCEPTION" in page
