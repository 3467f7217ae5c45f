"""A real browser for tests of the dashboard, a real `horsies web` for it to look at, and somebody who looks and
notices everything that goes wrong (M-96)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any

import psutil
import psycopg
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from psycopg import sql
from psycopg.rows import dict_row

from tests import leaks
from tests.browser.binary import find_browser
from tests.e2e.cli_support import Started, environment, run
from tests.support import eventually_sync

SHOP = "horsies.demo.shop:app"
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 360, "height": 740}
ARGUMENTS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_MS = 30_000.0
expect.set_options(timeout=PATIENCE_MS)
# A page that is left takes its open requests with it.
LEFT = "net::ERR_ABORTED"
# What a content security policy has kept from happening is an error like any other.
TELL_VIOLATIONS = """
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`content security policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
    });
"""


@contextmanager
def a_browser() -> Iterator[Browser]:
    """A browser without a window. Neither it nor what drives it is left behind by a test: they outlive the tests."""
    before = {child.pid for child in psutil.Process().children()}
    with sync_playwright() as playwright:
        ours = {child.pid for child in psutil.Process().children()} - before
        leaks.LASTING.update(ours)
        try:
            browser = playwright.chromium.launch(
                executable_path=find_browser(),
                args=[*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
                env={name: value for name, value in os.environ.items() if name != leaks.VARIABLE},
            )
            yield browser
            browser.close()
        finally:
            leaks.LASTING.difference_update(ours)


class Web:
    """`horsies web` of the demo's shop as a process, on a free port; `url` is where it is."""

    def __init__(self, database_url: str, cwd: Path, *options: str, **env: str) -> None:
        self._database_url, self._cwd, self._options, self._env = database_url, cwd, options, env
        self._port = 0
        self._started: Started | None = None

    def __enter__(self) -> Web:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started is not None:
            self._started.__exit__(kind, error, trace)
            assert "Traceback" not in self._started.said, self._started.said

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Also after a stop; then it is where it was."""
        options = ("--port", str(self._port), *self._options)
        self._started = Started(
            "web", SHOP, *options, cwd=self._cwd, HORSIES_DEMO_DATABASE_URL=self._database_url, **self._env
        )
        said = self._started.until_it_says(r"dashboard: http://\S+")
        self._port = int(said.rpartition(":")[2].strip("/"))

    def stop(self) -> None:
        assert self._started is not None
        assert self._started.stop() == 0, self._started.said


@contextmanager
def a_worker(database_url: str, cwd: Path, *options: str, stops: bool = True) -> Iterator[Started]:
    """`horsies worker` of the demo's shop, which is stopped in the end unless it stops by itself."""
    options = ("--processes", "2", "--concurrency", "1", *options)
    with Started("worker", SHOP, *options, cwd=cwd, HORSIES_DEMO_DATABASE_URL=database_url) as started:
        with psycopg.connect(database_url, autocommit=True) as conn:
            counted = "SELECT count(*) > 0 FROM horsies_workers WHERE last_heartbeat_at > now() - interval '1 min'"
            eventually_sync(lambda: conn.execute(counted).fetchone() == (True,), 30, what="a worker")
        yield started
        if stops:
            assert started.stop() == 0, started.said


class Shop:
    """The database of a test: rows are put there and looked at, and tasks are sent as a user would."""

    def __init__(self, database_url: str, cwd: Path) -> None:
        self.url, self.cwd = database_url, cwd
        self._conn = self._connect()

    def _connect(self) -> psycopg.Connection[dict[str, Any]]:
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row)

    def __enter__(self) -> Shop:
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    @contextmanager
    def out_of_reach(self, server_url: str) -> Iterator[None]:
        """Meanwhile nobody has a connection to the database, and nobody gets one."""
        name = self._conn.info.dbname
        allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        with psycopg.connect(server_url, autocommit=True) as server:
            self._conn.close()
            server.execute(allow.format(sql.Identifier(name), False))
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
            yield
            server.execute(allow.format(sql.Identifier(name), True))
        self._conn = self._connect()

    def rows(self, statement: str, *params: Any) -> list[dict[str, Any]]:
        return self._conn.execute(statement.encode(), params).fetchall()

    def do(self, script: str, *params: Any) -> None:
        self._conn.execute(script.encode(), params or None)

    def script(self, statements: str, values: Mapping[str, Any]) -> None:
        """Several statements with named parameters."""
        with psycopg.ClientCursor(self._conn) as cursor:
            cursor.execute(statements.encode(), values)

    def given(self, table: str, **columns: Any) -> None:
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(map(sql.Placeholder, columns)),
        )
        self._conn.execute(statement, columns)

    def given_task(self, task_id: str, status: str = "PENDING", **columns: Any) -> str:
        """A task of the shop; a running one is held by worker `w1`."""
        values: dict[str, Any] = {"id": task_id, "task_name": "shop.check_stock", "queue_name": "demo-orders"}
        if status in ("CLAIMED", "RUNNING"):
            values |= {"claimed": True, "claimed_by_worker_id": "w1", "claim_seq": 1, "claimed_at": "now"}
        if status == "RUNNING":
            values |= {"started_at": "now"}
        if status == "FAILED":
            values |= {"failed_at": "now", "error_code": "CARD_DECLINED"}
        self.given("horsies_tasks", **{**values, "status": status, **columns})
        return task_id

    def task(self, task_id: str) -> dict[str, Any]:
        [row] = self.rows("SELECT * FROM horsies_tasks WHERE id = %s", task_id)
        return row

    def status(self, task_id: str) -> str:
        return str(self.task(task_id)["status"])

    def until(self, task_id: str, *statuses: str) -> None:
        eventually_sync(lambda: self.status(task_id) in statuses, 30, what=f"{task_id} is {' or '.join(statuses)}")

    @contextmanager
    def kept_as_it_is(self, task_id: str) -> Iterator[None]:
        """Meanwhile nobody can change the row of this task: another session has it locked."""
        with self._connect() as conn, conn.transaction():
            conn.execute("SELECT FROM horsies_tasks WHERE id = %s FOR UPDATE", [task_id])
            yield

    def audit(self) -> list[tuple[str, list[str], str]]:
        """What was done, on what, and how it ended; the first first."""
        rows = self.rows("SELECT action, target_ids, outcome FROM horsies_audit ORDER BY at, id")
        return [(row["action"], list(row["target_ids"]), row["outcome"]) for row in rows]

    def send(self, task: str, kwargs: str = "{}") -> str:
        """The id of a new task, sent by the command."""
        done = run("send", SHOP, task, "--kwargs", kwargs, cwd=self.cwd, HORSIES_DEMO_DATABASE_URL=self.url)
        assert done.returncode == 0, done.stderr
        found = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", done.stdout)
        assert found is not None, done.stdout
        return found[0]

    def start_order(self, order: int = 7, **settings: Any) -> str:
        """The id of a new workflow of the shop."""
        program = (
            "from horsies.demo.shop import order_workflow;"
            f"print(order_workflow({order}, **{settings!r}).start().unwrap().workflow_id)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.cwd,
            env=environment(HORSIES_DEMO_DATABASE_URL=self.url),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


class Visit:
    """Somebody at a dashboard with a browser of his own: a page, and everything that went wrong on it."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.heard: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(TELL_VIOLATIONS)
        context.on("page", self._watch)
        self.page: Page = context.new_page()

    @property
    def problems(self) -> list[str]:
        return [one for one in self.heard if not any(pattern.search(one) for pattern in self._expected)]

    def expects(self, pattern: str) -> None:
        """A problem that is part of the test."""
        self._expected.append(re.compile(pattern))

    def go(self, path: str = "/") -> Page:
        self.page.goto(self.url + path)
        return self.page

    def is_live(self) -> None:
        """Wait until the page is told of what changes."""
        self.page.locator("#live[data-state=live]").wait_for()

    def until(self, probe: Callable[[], object], what: str) -> None:
        """Wait for something that no locator can see. The browser is listened to meanwhile."""
        deadline = monotonic() + PATIENCE_MS / 1000
        while not probe():
            assert monotonic() < deadline, f"{what} did not come true; heard: {self.heard}"
            self.page.wait_for_timeout(20)

    def check(self) -> None:
        assert not self.problems, "on the page: " + "; ".join(self.problems)

    def _watch(self, page: Page) -> None:
        page.on("console", lambda said: self._note(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("dialog", lambda dialog: (self._note(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._is_ours(request.url))
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        page.on("response", lambda answer: self._answered(answer.url, answer.status))
        page.on("crash", lambda _: self._note("the page crashed"))
        page.on("popup", lambda _: self._note("a window was opened"))
        page.on("download", lambda download: self._note(f"download: {download.url}"))

    def _note(self, problem: str) -> None:
        self.heard.append(problem)

    def _is_ours(self, url: str) -> None:
        if not url.startswith((f"{self.url}/", "data:")):
            self._note(f"asked elsewhere: {url}")

    def _failed(self, url: str, reason: str | None) -> None:
        if reason != LEFT:
            self._note(f"failed: {url} {reason}")

    def _answered(self, url: str, status: int) -> None:
        if status >= 400:
            self._note(f"refused: {url} {status}")


class Visitors:
    """Visits of one test; they end with it, and each is checked."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._visits: list[Visit] = []

    def visit(self, url: str, **options: Any) -> Visit:
        """Options are those of a browser's context: `viewport`, `color_scheme`, `java_script_enabled`…"""
        context = self._browser.new_context(**{"viewport": WIDE, "reduced_motion": "reduce", **options})
        made = Visit(context, url)
        self._visits.append(made)
        return made

    def close(self) -> None:
        for visit in self._visits:
            visit.context.close()

    def check(self) -> None:
        for visit in self._visits:
            visit.check()
