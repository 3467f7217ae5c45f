"""Tasks of Django's own framework on our backend (X-20): `django.tasks`, or `django_tasks` on an older Django."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from asgiref.sync import async_to_sync

from horsies import current_task
from tests.django.conftest import rows

pytestmark = pytest.mark.usefixtures("shop")


@pytest.fixture
def framework(_django: None) -> Any:
    from horsies.contrib.django import HorsiesBackend

    return HorsiesBackend.framework


@pytest.fixture
def tasks(_django: None) -> Any:
    from bookshop import tasks

    return tasks


def drain() -> None:
    from horsies.contrib.django import app

    app.testing.drain()


def test_x20_the_backend_says_what_it_can(tasks: Any) -> None:
    backend = tasks.welcome.get_backend()
    assert backend.supports_defer and backend.supports_async_task
    assert backend.supports_get_result and backend.supports_priority
    assert list(backend.check()) == []


def test_x20_a_task_of_django_is_enqueued_run_and_read(shop: str, tasks: Any, framework: Any) -> None:
    result = tasks.welcome.enqueue("ada", loud=True)
    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 0)
    assert rows(shop, "SELECT task_name FROM horsies_tasks WHERE id = %s", result.id) == [("bookshop.tasks.welcome",)]
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", "ADA", 1)
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert (result.args, result.kwargs, result.backend) == (["ada"], {"loud": True}, "default")
    again = tasks.welcome.get_result(result.id)
    assert (again.return_value, again.task.func) == ("ADA", tasks.welcome.func)


def test_x20_a_failure_has_its_exception_and_traceback(tasks: Any) -> None:
    result = tasks.broken.enqueue("luck")
    drain()
    result.refresh()
    assert result.status == "FAILED"
    [error] = result.errors
    assert error.exception_class is tasks.Trouble
    assert "no luck" in error.traceback and "tasks.py" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    unwritable = tasks.unwritable.enqueue()
    drain()
    unwritable.refresh()
    assert (unwritable.status, unwritable.errors[0].exception_class) == ("FAILED", TypeError)


def test_x20_a_result_tells_all_of_its_attempts(shop: str, tasks: Any, framework: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    from horsies import RetryPolicy

    policy = RetryPolicy.fixed([60], auto_retry_for=["UNHANDLED_EXCEPTION"])
    retried = {**settings.TASKS["default"], "OPTIONS": {"retry_policy": policy}}
    told: list[int] = []

    def hear(sender: Any, task_result: Any, **_: Any) -> None:
        told.append(len(task_result.worker_ids))
        raise RuntimeError("a receiver that fails changes nothing")

    framework.signals.task_started.connect(hear)
    try:
        with override_settings(TASKS={**settings.TASKS, "retried": retried}):
            result = tasks.broken.using(backend="retried").enqueue("luck")
            drain()
            waiting = tasks.broken.get_result(result.id)
            assert (waiting.status, waiting.attempts, len(waiting.errors)) == ("READY", 1, 1)
            assert waiting.last_attempted_at is not None
            rows(shop, "UPDATE horsies_tasks SET next_retry_at = now(), enqueued_at = now() RETURNING id")
            drain()
            ended = tasks.broken.get_result(result.id)
    finally:
        framework.signals.task_started.disconnect(hear)
    assert (ended.status, ended.attempts, len(ended.errors)) == ("FAILED", 2, 2)
    assert ended.started_at == waiting.last_attempted_at < ended.last_attempted_at
    assert ended.errors[1].exception_class_path == "bookshop.tasks.Trouble"
    assert told == [1, 2]  # the context counts attempts


def test_x20_a_running_task_has_its_worker(shop: str, tasks: Any) -> None:
    sent = tasks.welcome.enqueue("ada")
    started = "UPDATE horsies_tasks SET status = 'RUNNING', started_at = now(), claimed_by_worker_id = 'w' RETURNING id"
    rows(shop, started)
    found = tasks.welcome.get_result(sent.id)
    assert (found.status, found.attempts, found.worker_ids) == ("RUNNING", 1, ["w"])


def test_x20_context_async_tasks_and_awaited_calls(tasks: Any) -> None:
    told, greeted = tasks.tell.enqueue("word"), async_to_sync(tasks.greet.aenqueue)("bob")
    hurried = tasks.tell_priority.using(priority=50).enqueue()
    drain()
    assert current_task() is None, "asgiref carries what a coroutine sets to its caller"
    hurried.refresh()
    assert hurried.return_value == 50  # the copy that was sent
    told.refresh()
    async_to_sync(greeted.arefresh)()
    assert told.return_value == [1, told.id, "word"]
    assert greeted.return_value == "hello bob"
    assert async_to_sync(tasks.greet.aget_result)(greeted.id).status == "SUCCESSFUL"


def test_x20_an_enqueue_belongs_to_the_transaction(shop: str, tasks: Any) -> None:
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        result = tasks.welcome.enqueue("ada")
        assert tasks.welcome.get_result(result.id).status == "READY"  # this transaction sees it
        raise RuntimeError
    assert rows(shop, "SELECT count(*) FROM horsies_tasks") == [(0,)]


def test_x20_results_that_do_not_exist_or_belong_to_another_task(tasks: Any, framework: Any) -> None:
    result = tasks.welcome.enqueue("ada")
    with pytest.raises(framework.no_such_result):
        tasks.welcome.get_result("nothing")
    with pytest.raises(framework.no_such_result):
        tasks.welcome.get_result("out\0of\0a\0url")
    with pytest.raises(Exception, match="does not match"):
        tasks.greet.get_result(result.id)
    ours = tasks.ship.send(1).unwrap()
    with pytest.raises(framework.no_such_result):
        tasks.welcome.get_result(ours.task_id)


def test_x20_a_result_is_read_after_its_queue_is_gone(shop: str, tasks: Any) -> None:
    from django.db import connection

    result = tasks.welcome.enqueue("ada")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE horsies_tasks SET queue_name = 'of_before' WHERE id = %s", [result.id])
    assert tasks.welcome.get_result(result.id).task.queue_name == "of_before"


def test_x20_priority_and_time_are_ours(shop: str, tasks: Any) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    ids = [tasks.welcome.using(priority=level).enqueue("x").id for level in (-100, -1, 0, 1, 100)]
    found = dict(rows(shop, "SELECT id, priority FROM horsies_tasks"))
    assert [found[one] for one in ids] == [100, 50, 50, 49, 1]
    began = monotonic()
    deferred = tasks.welcome.using(run_after=later).enqueue("x")
    took = monotonic() - began
    drain()
    deferred.refresh()
    assert deferred.status == "READY"
    assert abs((tasks.welcome.get_result(deferred.id).task.run_after - later).total_seconds()) < 1 + took


def test_x20_a_copy_for_another_backend_has_its_options(shop: str, tasks: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    other = {**settings.TASKS["default"], "OPTIONS": {"timeout_ms": 1234}}
    with override_settings(TASKS={**settings.TASKS, "other": other}):
        sent = tasks.welcome.using(backend="other").enqueue("x")
        plain = tasks.welcome.enqueue("x")
        assert tasks.welcome.get_result(sent.id).backend == "other"
    found = dict(rows(shop, "SELECT id, task_options FROM horsies_tasks"))
    assert "1234" in str(found[sent.id]) and "1234" not in str(found[plain.id])


def test_x20_a_time_without_a_zone_is_in_that_of_the_project(shop: str, tasks: Any) -> None:
    from django.test import override_settings

    due = datetime.now(UTC) + timedelta(hours=1)
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        began = monotonic()
        tasks.welcome.using(run_after=due.astimezone(ZoneInfo("Asia/Tokyo")).replace(tzinfo=None)).enqueue("x")
        took = monotonic() - began
    [(found,)] = rows(shop, "SELECT enqueued_at FROM horsies_tasks")
    assert abs((found - due).total_seconds()) < 1 + took


def test_x20_unknown_options_of_the_backend_are_errors_of_check(tasks: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    wrong = {**settings.TASKS["default"], "OPTIONS": {"timeout": 1}}
    with override_settings(TASKS={**settings.TASKS, "wrong": wrong}):
        [problem] = tasks.welcome.using(backend="wrong").get_backend().check()
    assert problem.id == "horsies.E004" and "'timeout'" in problem.msg


def test_x20_what_is_no_task_is_refused_when_it_is_defined(tasks: Any, framework: Any) -> None:
    for options in ({"queue_name": "nowhere"}, {"priority": 101}, {"run_after": datetime(2030, 1, 1)}):
        with pytest.raises(framework.invalid_task):
            tasks.welcome.using(**options)
    with pytest.raises(TypeError):
        tasks.welcome.enqueue(object())


def test_x20_signals_are_sent_where_things_happen(tasks: Any, framework: Any) -> None:
    heard: list[tuple[str, str]] = []

    def hear(sender: Any, task_result: Any, signal: Any, **_: Any) -> None:
        heard.append((names[signal], str(task_result.status)))

    names = {getattr(framework.signals, name): name for name in ("task_enqueued", "task_started", "task_finished")}
    for signal in names:
        signal.connect(hear)
    try:
        tasks.welcome.enqueue("ada")
        assert heard == [("task_enqueued", "READY")]
        tasks.greet.enqueue("bob")
        tasks.broken.enqueue("luck")
        drain()
    finally:
        for signal in names:
            signal.disconnect(hear)
    assert heard[3:] == [
        ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL"),
        ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL"),
        ("task_started", "RUNNING"), ("task_finished", "FAILED"),
    ]  # fmt: skip


def test_x20_nothing_is_imported_because_a_row_says_so(shop: str, tasks: Any) -> None:
    import sys

    from horsies.contrib.django import app

    tasks.welcome.enqueue("ada")
    rows_changed = "UPDATE horsies_tasks SET task_name = 'wsgiref.simple_server.demo_app' RETURNING id"
    [(task_id,)] = rows(shop, rows_changed)
    sys.modules.pop("wsgiref.simple_server", None)
    app.testing.drain()
    with pytest.raises(Exception, match=task_id):
        tasks.welcome.get_result(task_id)
    assert "wsgiref.simple_server" not in sys.modules
    assert rows(shop, "SELECT status FROM horsies_tasks") == [("PENDING",)]  # left to whoever knows it
