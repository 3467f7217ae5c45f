"""The screens on a real database (M-66, M-90, M-91): each shows what there is, keeps its state in the address, leads
nowhere that does not exist, and never makes HTML of what a row contains (M-93)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.web import ViewOnly
from horsies.web.pages import SCREENS
from horsies.web.pages.dialogs import DIALOGS
from tests.conftest import fresh_database
from tests.each import each
from tests.factories import given_task
from tests.services.web.conftest import FILLED
from tests.web_support import Board, Nobody, a_board, raw, scope_of

THERE = {
    "task_id": "t-failed",
    "workflow_id": "f-running",
    "index": "0",
    "worker_id": "w1",
    "name": "mail",
}
HTML = {"Accept": "text/html"}


def address_of(path: str) -> str:
    for name, value in THERE.items():
        path = path.replace(f"{{{name}}}", value)
    return path.replace("/dialogs/mail", "/dialogs/sweep")


ADDRESSES = [address_of(screen.path) for screen in SCREENS]


class Page(HTMLParser):
    """What a browser would find: elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def values(self, attribute: str) -> list[str]:
        return [value for _, attrs in self.elements if (value := attrs.get(attribute)) is not None]


async def page_of(board: Board, address: str, status: int = 200) -> Page:
    answer = await board.get(address, headers=HTML, follow_redirects=True)
    assert answer.status_code == status, (address, answer.text[:500])
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


@each("address", ADDRESSES)
async def test_m66_m91_every_screen_shows_something(board: Board, address: str) -> None:
    page = await page_of(board, address)
    assert len(page.text) > 50


async def test_m91_no_link_is_dead(board: Board) -> None:
    """Every address that a page names is there; those of actions belong to routes of the API."""
    named: dict[str, str] = {}
    posts: dict[str, str] = {}
    for address in ADDRESSES:
        page = await page_of(board, address)
        dialogs = {
            f"{attrs['hx-get']}?ids=t-pending" if "data-selection" in attrs else attrs["hx-get"] or ""
            for _, attrs in page.elements
            if "hx-get" in attrs
        }
        wanted = {*page.values("href"), *page.values("src"), *dialogs}
        named |= {one.partition("#")[0]: address for one in wanted if one.startswith("/")}
        posts |= dict.fromkeys(page.values("hx-post"), address)
    status = {href: (await board.get(href, headers=HTML)).status_code for href in sorted(named)}
    assert {href: named[href] for href in named if status[href] not in (200, 303)} == {}
    assert {path: on for path, on in posts.items() if (await board.get(path)).status_code != 405} == {}
    assert len(named) > 50


@each("address", ADDRESSES)
async def test_m90_m93_a_page_has_nothing_inline_and_nothing_from_elsewhere(board: Board, address: str) -> None:
    page = await page_of(board, address)
    for tag, attrs in page.elements:
        assert "style" not in attrs and not [name for name in attrs if name.startswith("on")], (tag, attrs)
        assert tag not in ("style", "iframe", "object", "embed", "base"), tag
        if tag == "script":
            assert (attrs.get("src") or "").startswith("/static/"), attrs
        for name in ("href", "src", "action", "hx-get", "hx-post"):
            assert re.match(r"/|\?|#|$", attrs.get(name) or ""), (tag, name, attrs[name])


@each("address", ADDRESSES)
async def test_m62_nobody_sees_a_screen_without_the_right_to_look(filled_url: str, address: str) -> None:
    async with a_board(filled_url, policy=Nobody()) as board:
        answer = await board.get(address, headers=HTML)
    assert answer.status_code == 403
    assert "mail.send" not in answer.text


@each("host", ["localhost/workers#", "localhost/workers?x#", "[", "a b", "@", "a:b", ""])
async def test_m95_a_host_name_changes_nothing_about_who_shares_an_answer(filled_url: str, host: str) -> None:
    """Where an outer application checks host names, they may be anything here."""
    async with a_board(filled_url, allowed_hosts=None) as board:
        odd = {"host": host, "x-horsies-refresh": "1"}
        status, _, tasks = await raw(board.app, scope_of("/tasks", odd))
        assert status == 200 and b"<h1>Tasks" in tasks
        status, _, workers = await raw(board.app, scope_of("/workers", {**odd, "host": "localhost"}))
        assert status == 200 and b"<h1>Workers" in workers
        action = scope_of("/api/tasks/nothing/rerun", {"host": host, "x-horsies-intent": "action"}, method="POST")
        assert (await raw(board.app, action))[0] == 404


async def test_m95_a_query_of_any_bytes_is_refreshed(board: Board) -> None:
    scope = scope_of("/tasks", {"x-horsies-refresh": "1"}, query_string=b"name=\xff")
    assert (await raw(board.app, scope))[0] == 200


@each("address", ADDRESSES)
async def test_m93_another_site_may_link_to_a_page_but_not_embed_it(board: Board, address: str) -> None:
    for site, mode, dest, status in [
        ("cross-site", "navigate", "document", {200, 303}),
        ("none", "navigate", "document", {200, 303}),
        ("same-origin", "cors", "empty", {200, 303}),
        ("cross-site", "no-cors", "image", {403}),
        ("cross-site", "navigate", "iframe", {403}),
        ("cross-site", "cors", "empty", {403}),
    ]:
        said = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        assert (await board.get(address, headers=said)).status_code in status, said


@each("index", ["9" * 5_000, "99999999999", "-1", "1.0", "٣", "²", "x"])
async def test_m64_a_node_that_cannot_exist_is_not_found(board: Board, index: str) -> None:
    await page_of(board, f"/workflows/f-running/nodes/{quote(index)}", 404)


async def test_m62_m64_an_index_without_end_tells_nobody_anything(filled_url: str) -> None:
    async with a_board(filled_url, policy=Nobody()) as board:
        assert (await board.get(f"/workflows/f-running/nodes/{'9' * 5_000}")).status_code == 403


@each("address", [one for one in ADDRESSES if "/dialogs/" not in one])
async def test_m62_who_may_only_look_is_offered_no_action(filled_url: str, address: str) -> None:
    async with a_board(filled_url, policy=ViewOnly()) as board:
        page = await page_of(board, address)
    assert not page.values("hx-get") and not page.values("hx-post")


@each("name", DIALOGS)
async def test_m62_a_dialog_is_for_those_who_may_act(filled_url: str, name: str) -> None:
    async with a_board(filled_url, policy=ViewOnly()) as board:
        assert (await board.get(f"/dialogs/{name}?id=t-pending", headers=HTML)).status_code == 403


@each(
    ("address", "status"),
    [
        ("/tasks/none", 404),
        ("/workflows/none", 404),
        ("/workflows/f-running/nodes/99", 404),
        ("/workflows/f-running/nodes/x", 404),
        ("/workers/none", 404),
        ("/queues/none", 404),
        ("/dialogs/none", 404),
        ("/nothing", 404),
        ("/tasks?after=nonsense", 422),
    ],
)
async def test_m64_what_is_not_there_is_said_as_a_page(board: Board, address: str, status: int) -> None:
    page = await page_of(board, address, status)
    assert "Overview" in page.text


@each(
    ("query", "names"),
    [
        ("", {"t-pending", "t-claimed", "t-running", "t-completed", "t-failed", "t-cancelled", "t-expired"}),
        ("?status=FAILED", {"t-failed"}),
        ("?status=CLAIMED&status=RUNNING", {"t-claimed", "t-running"}),
        ("?status=nonsense&status=PENDING", {"t-pending"}),
        ("?code=CARD_DECLINED", {"t-failed"}),
        ("?name=none", set()),
        ("?queue=mail&status=EXPIRED", {"t-expired"}),
        ("?worker=w1&status=RUNNING", {"t-running"}),
        ("?retried=1", {"t-failed"}),
        ("?sort=oldest&age=&status=PENDING", {"t-pending"}),
        ("?status=PENDING&sort=next", {"t-pending"}),
        ("?status=RUNNING&sort=started", {"t-running"}),
        ("?sort=next", {"t-pending", "t-claimed", "t-running", "t-completed", "t-failed", "t-cancelled", "t-expired"}),
    ],
)
async def test_m91_the_address_of_the_list_says_which_tasks(board: Board, query: str, names: set[str]) -> None:
    page = await page_of(board, f"/tasks{query}")
    shown = {attrs["value"] for tag, attrs in page.elements if tag == "input" and "data-select" in attrs}
    assert shown == names


async def test_m91_a_search_finds_tasks_and_workflows_by_id(board: Board) -> None:
    for wanted, place in (("t-failed", "/tasks/t-failed"), ("f-failed", "/workflows/f-failed"), ("", "/tasks")):
        answer = await board.get(f"/find?q={wanted}")
        assert (answer.status_code, answer.headers["location"]) == (303, place)
    assert (await board.get("/find?q=t-fa")).headers["location"] == "/tasks?id=t-fa"


async def test_m91_a_task_tells_its_story(board: Board) -> None:
    page = await page_of(board, "/tasks/t-failed")
    for said in (
        "Why it failed",
        "CARD_DECLINED",
        "Attempt 3",
        "it went wrong",
        "sent",
        "claimed",
        "started",
        "failed",
    ):
        assert said in page.text, said
    waiting = await page_of(board, "/tasks/t-pending")
    assert "Why it is not running" in waiting.text
    running = await page_of(board, "/tasks/t-running")
    assert "30 % (3 of 10)" in running.text and "three of ten" in running.text


async def test_m91_a_workflow_shows_graph_timeline_and_nodes(board: Board) -> None:
    page = await page_of(board, "/workflows/f-failed")
    assert [tag for tag, _ in page.elements].count("svg") >= 2
    assert "Retry failed nodes" in page.text and "refund" in page.text
    assert "#node-0" in page.values("href")


async def test_m91_every_schedule_tells_how_its_last_run_ended(database_url: str, db: AsyncConnection[Any]) -> None:
    for number in range(120):
        task = await given_task(db, status=TaskStatus.EXPIRED if number % 2 else TaskStatus.FAILED)
        await db.execute(
            "INSERT INTO horsies_schedule_state (schedule_name, last_run_at, last_task_id, run_count)"
            " VALUES (%s, now(), %s, 1)",
            [f"s-{number:03}", task],
        )
    gone = (
        "INSERT INTO horsies_schedule_state (schedule_name, last_run_at, last_task_id) VALUES ('gone', now(), 'gone')"
    )
    await db.execute(gone)
    async with a_board(database_url) as board:
        page = await page_of(board, "/schedules")
    said = [attrs.get("class") for tag, attrs in page.elements if tag == "span"]
    assert (said.count("state state-expired"), said.count("state state-failed")) == (60, 60)


async def test_m93_hidden_payloads_are_on_no_page(filled_url: str) -> None:
    async with a_board(filled_url, hide_payloads=True) as board:
        for address in ("/tasks/t-failed", "/tasks/t-completed", "/workflows/f-failed", "/workflows/f-running/nodes/0"):
            answer = await board.get(address, headers=HTML)
            assert answer.status_code == 200
            assert "it went wrong" not in answer.text and "&#34;to&#34;" not in answer.text, address


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}",
    "</title></textarea></svg><svg onload=alert(1)>",
    "\x1b[31mred\x1b[0m",
    "left\u202etfel",
    "&lt;b&gt;",
]


@pytest.fixture(scope="module")
def hostile_url(server_url: str, template: str) -> Iterator[str]:
    """Every text of every row is hostile."""
    with fresh_database(server_url, template) as url:
        with psycopg.connect(url, autocommit=True) as conn:
            conn.execute(FILLED.encode())
            text = " ".join(HOSTILE)
            conn.execute(
                "UPDATE horsies_tasks SET task_name = %(t)s::text, queue_name = left(%(t)s::text, 100),"
                " args = %(j)s::text, kwargs = %(j)s::text, task_options = %(j)s::text, worker_hostname = %(t)s::text,"
                " result = CASE WHEN result IS NOT NULL THEN %(j)s::text END,"
                " error_code = CASE WHEN error_code IS NOT NULL THEN %(t)s::text END,"
                " failed_reason = CASE WHEN failed_reason IS NOT NULL THEN %(t)s::text END,"
                " claimed_by_worker_id = CASE WHEN claimed_by_worker_id IS NOT NULL THEN %(t)s::text END",
                {"t": text[:255], "j": f'["{text[:5]}", {{"k": "<script>alert(2)</script>"}}]'},
            )
            conn.execute("UPDATE horsies_task_attempts SET error_message = %s, failed_reason = %s", [text, text])
            conn.execute("UPDATE horsies_task_progress SET message = %s", [text[:400]])
            conn.execute("UPDATE horsies_workers SET hostname = %s", [text[:255]])
            conn.execute(
                "UPDATE horsies_workflow_tasks SET node_id = left(%s::text, 100) || task_index, task_name = %s",
                [text, text[:255]],
            )
            conn.execute("UPDATE horsies_workflows SET name = %s", [text[:255]])
            conn.execute("UPDATE horsies_schedules SET name = %s", [text[:200]])
        yield url


@pytest.fixture
async def hostile(hostile_url: str) -> AsyncIterator[Board]:
    async with a_board(hostile_url) as board:
        yield board


@each("address", [one for one in ADDRESSES if one != "/queues/mail"])
async def test_m93_nothing_from_a_row_becomes_html(hostile: Board, address: str) -> None:
    page = await page_of(hostile, address)
    for tag, attrs in page.elements:
        assert tag not in ("img", "iframe", "style"), (tag, attrs)
        assert tag != "script" or (attrs.get("src") or "").startswith("/static/")
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        assert not (attrs.get("href") or "").lower().startswith("javascript"), attrs
    offered = [attrs.get("value") or "" for tag, attrs in page.elements if tag == "option"]
    for text in (page.text, *offered, *page.values("title"), *page.values("aria-label")):
        assert "\x1b" not in text and "\u202e" not in text


async def test_m91_names_of_workflows_are_offered(board: Board) -> None:
    page = await page_of(board, "/workflows")
    assert {attrs.get("value") for tag, attrs in page.elements if tag == "option"} == {"checkout", "refund"}
