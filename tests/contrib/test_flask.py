"""Tasks in the app context of a Flask application (X-21)."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import psycopg
import pytest
from flask import Flask, current_app, g

from horsies import Horsies
from horsies.contrib.flask import bind
from horsies.core.errors import ConfigurationError
from horsies.core.locate import locator_of
from tests.app_support import an_app
from tests.contrib.flask_shop import app as shop
from tests.contrib.flask_shop import meet
from tests.e2e.cli_support import environment
from tests.worker_support import make_worker

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with an_app(database_url) as made:
        yield made


def a_flask_app(name: str, teardowns: list[Any] | None = None) -> Flask:
    made = Flask("a_site")
    made.config["NAME"] = name
    if teardowns is not None:
        made.teardown_appcontext(teardowns.append)
    return made


@pytest.mark.parametrize("way", ["application", "factory"])
def test_x21_a_task_runs_in_a_context_of_its_own(app: Horsies, way: str) -> None:
    teardowns: list[Any] = []
    made: list[Flask] = []

    def create_app() -> Flask:
        made.append(a_flask_app("shop", teardowns))
        return made[-1]

    bind(create_app() if way == "application" else create_app, app)

    @app.task("named")
    def named(number: int) -> str:
        assert not hasattr(g, "number"), "that of another task"
        g.number = number
        return str(current_app.config["NAME"])

    @app.task("failing")
    async def failing() -> str:
        raise KeyError(current_app.config["NAME"])

    for number in range(2):
        named.send(number)
    failing.send()
    ended = app.testing.drain()
    assert [done.result.ok_value for done in ended[:2]] == ["shop", "shop"]
    assert teardowns[:2] == [None, None] and isinstance(teardowns[2], KeyError), "teardown functions learn how it ended"
    assert len(made) == 1 and not flask.has_app_context()


@pytest.mark.parametrize("is_async", [False, True])
def test_x21_hooks_are_in_the_context_of_their_task(app: Horsies, is_async: bool) -> None:
    heard: list[Any] = []
    site = a_flask_app("shop")
    site.teardown_appcontext(lambda problem: heard.append(f"teardown {type(problem).__name__}"))

    @app.before_task
    def before(ctx: Any) -> None:
        g.heard = [current_app.config["NAME"], "before"]

    @app.after_task
    def after(ctx: Any, result: Any) -> None:
        g.heard.append("after")

    @app.on_failure
    def failed(ctx: Any, error: Any) -> None:
        heard.extend([*g.heard, current_app.config["NAME"]])

    bind(site, app)  # after the hooks: the order of the calls does not matter

    def fail() -> None:
        g.heard.append("task")
        raise KeyError

    @app.task("failing")
    def failing() -> None:
        fail()

    @app.task("failing_async")
    async def failing_async() -> None:
        fail()

    (failing_async if is_async else failing).send()
    app.testing.drain()
    assert heard == ["shop", "before", "task", "after", "shop", "teardown KeyError"]
    assert not flask.has_app_context()


def test_x21_inline_tasks_do_not_touch_the_context_of_the_request(app: Horsies) -> None:
    site = a_flask_app("shop")
    bind(site, app)

    @app.task("remember")
    def remember() -> bool:
        return hasattr(g, "user")

    @site.get("/")
    def view() -> list[Any]:
        g.user = "ada"
        return [remember.send_or_raise().result(), g.user]

    with app.testing.inline():
        assert site.test_client().get("/").json == [False, "ada"]


def test_x21_the_last_application_counts(app: Horsies) -> None:
    """A factory is called once for each test, with other settings."""

    @app.task("named")
    def named() -> str:
        return str(current_app.config["NAME"])

    for name in ("one", "two"):
        bind(a_flask_app(name), app)
        named.send()
        assert [done.result.ok_value for done in app.testing.drain()] == [name]
    assert len(app.task_hooks.outermost) == 1 and len(app.get_child_process_start_hooks()) == 1


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (7, "takes a Flask application, not int"),
        ("shop", "does not name a module and an application in it"),
        ("tests.contrib.flask_shop:nothing", "there is no 'nothing'"),
        ("tests.contrib.flask_shop:app", "is no Flask application"),
        (lambda: None, "does not make one"),
    ],
)
def test_x21_what_is_no_application_is_refused(app: Horsies, source: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        bind(source, app)
        for prepare in app.get_child_process_start_hooks():
            prepare()
    with pytest.raises(ConfigurationError, match="takes a Horsies app"):
        bind(Flask("x"), "app")  # type: ignore[arg-type]


async def test_x21_concurrent_async_tasks_never_share_a_context(database_url: str) -> None:
    """In a real worker with one child, where all of them wait for each other."""
    with shop.testing.on_database(database_url):
        handles = [(await meet.send_async(number, 8)).unwrap() for number in range(8)]
        worker = make_worker(shop, app_locator="tests.contrib.flask_shop:app", concurrency=None)
        await worker.run_once()
        found = [(await handle.get_async(timeout_ms=5_000)).unwrap() for handle in handles]
    assert sorted(number for number, _ in found) == list(range(8))
    assert len({context for _, context in found}) == 8


@pytest.fixture
def bookshop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flask]:
    """`examples/flask_app`, loaded anew for this test's database."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    module = importlib.import_module("flask_app")
    site = module.create_app()
    yield site
    module.horsies_app.get_broker().close()
    site.extensions["bookshop_engine"].dispose()
    for name in [name for name in sys.modules if name.partition(".")[0] == "flask_app"]:
        del sys.modules[name]


def counts(url: str) -> tuple[Any, ...] | None:
    with psycopg.connect(url) as conn:
        return conn.execute(
            "SELECT (SELECT count(*) FROM bookshop_orders), (SELECT count(*) FROM horsies_tasks)"
        ).fetchone()


def test_x21_x22_a_view_sends_in_the_transaction_of_its_session(bookshop: Flask, database_url: str) -> None:
    client = bookshop.test_client()
    assert client.post("/orders", json={"item": "unicorn"}).status_code == 409
    assert counts(database_url) == (0, 0)
    placed = client.post("/orders", json={"item": "a book"}).json
    assert placed is not None and counts(database_url) == (1, 1)
    assert client.get(f"/confirmations/{placed['task_id']}").status_code == 202
    assert client.get("/confirmations/nobody-sent-this").status_code == 404, "there is nothing to ask for again"

    app = bookshop.extensions["horsies"]
    app.testing.drain(raise_on_failure=True)
    answer = client.get(f"/confirmations/{placed['task_id']}")
    assert answer.json == {"confirmation": "The Book Shop thanks you for ordering a book."}


def test_x21_flask_has_the_commands_of_horsies(bookshop: Flask, database_url: str) -> None:
    """A real worker, started by Flask: it finds the app, makes the Flask application in its child, and stops."""
    placed = bookshop.test_client().post("/orders", json={"item": "a book"}).json
    assert placed is not None
    command = [sys.executable, "-m", "flask", "--app", "flask_app", "horsies", "worker", "--processes", "1"]
    with subprocess.Popen(command, cwd=EXAMPLES, env=environment(DATABASE_URL=database_url)) as worker:
        try:
            handle = bookshop.extensions["horsies"].get_broker().get_result(placed["task_id"], timeout_ms=60_000)
            assert handle.unwrap() == "The Book Shop thanks you for ordering a book."
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0


def test_x21_the_app_is_found_where_it_was_made() -> None:
    assert locator_of(shop) == f"{Path(__file__).with_name('flask_shop.py').resolve()}:app", (
        "and not where it was imported"
    )
    assert locator_of(Horsies(shop.config)) is None


def test_x21_every_command_of_flask_has_the_app(
    bookshop: Flask, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    called = bookshop.test_cli_runner()

    def said(*words: str) -> str:
        done = called.invoke(args=["horsies", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    order = bookshop.test_client().post("/orders", json={"item": "a book"}).json
    assert order is not None
    [task] = json.loads(said("tasks", "--json"))["items"]
    assert task["task_id"] == order["task_id"] and task["status"] == "PENDING"
    assert json.loads(said("task", order["task_id"], "--json"))["task_name"] == task["task_name"]
    assert "no worker is running" in said("explain", order["task_id"])
    assert json.loads(said("queues", "--json"))["queues"]
    said("check")
    said("send", task["task_name"], "--args", "[1]")
    assert len(json.loads(said("tasks", "--json"))["items"]) == 2
    said("cancel", order["task_id"])
    assert json.loads(said("task", order["task_id"], "--json"))["status"] == "CANCELLED"
    assert "Run a worker." in said("--help")
    assert "flask horsies worker [OPTIONS] [MODULE]" in said("worker", "--help")
    wrong = called.invoke(args=["horsies", "tasks", "--statuss", "x"])
    assert wrong.exit_code == 1


FORKING = """
import os
from wsgiref.simple_server import make_server
from flask_app import create_app, horsies_app
from flask_app.tasks import confirm

site = create_app()
with site.app_context():
    confirm.send(0).unwrap().get(timeout_ms=1)       # everything is open, a listener too, as nobody should have it
server = make_server("127.0.0.1", 0, site)
children = []
for _ in range(2):
    if (child := os.fork()) == 0:
        site.extensions["bookshop_engine"].dispose(close=False)  # SQLAlchemy wants this
        server.handle_request()
        server.handle_request()
        os._exit(0)
    children.append(child)
print(server.server_port, flush=True)
sent = confirm.send(1).unwrap()                       # and the parent goes on
for child in children:
    assert os.waitpid(child, 0)[1] == 0
assert confirm.send(2).is_ok() and sent.info().is_ok()
horsies_app.get_broker().close()
"""


def test_x21_an_application_that_was_loaded_before_the_fork_works_in_each_process(
    bookshop: Flask, database_url: str
) -> None:
    """As with `gunicorn --preload`, with connections that are open at the fork already (T-67)."""
    import urllib.request

    env = environment(DATABASE_URL=database_url)
    with subprocess.Popen([sys.executable, "-c", FORKING], cwd=EXAMPLES, env=env, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        url = f"http://127.0.0.1:{int(parent.stdout.readline())}"
        for number in range(4):
            body = f'{{"item": "book {number}"}}'.encode()
            request = urllib.request.Request(f"{url}/orders", body, {"Content-Type": "application/json"})
            assert urllib.request.urlopen(request, timeout=60).status == 201
        assert parent.wait(60) == 0
    assert counts(database_url) == (4, 4 + 3)


def test_x21_nothing_else_imports_flask() -> None:
    program = "import sys, horsies, horsies.cli.main, horsies.contrib.asgi; print('flask' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
