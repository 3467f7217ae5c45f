"""The token and its cookie (M-93): who has neither sees nothing, and nothing that was made up, has ended or belongs to
another token is accepted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from horsies.web import Token, app
from horsies.web.login import COOKIE, PER_MINUTE, PER_MINUTE_IN_ALL, VALID_S
from horsies.web.screens import Screen
from horsies.web.security import HEADERS
from tests.web_support import ANSWERING, HOST, Board, Nobody, Watcher, a_board, name_of, raw, refusal, scope_of

TOKEN = "correct horse battery staple"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def board(module_url: str, clock: Clock) -> AsyncIterator[Board]:
    async with a_board(module_url, Token(TOKEN, clock=clock)) as board:
        yield board


async def log_in(board: Board, token: str = TOKEN, **more: Any) -> httpx.Response:
    data = {"token": token, **more.pop("data", {})}
    return await board.client.post("/login", data=data, headers={"Origin": HOST, **more.pop("headers", {})}, **more)


def cookie_of(answer: httpx.Response) -> SimpleCookie:
    return SimpleCookie(answer.headers["set-cookie"])


def sent(cookie: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={cookie}"}


async def test_m93_without_the_token_there_is_nothing(board: Board) -> None:
    assert refusal(await board.get("/api/meta")) == (403, "FORBIDDEN")
    async with Watcher(board.app) as watcher:
        assert watcher.status == 403
    page = await board.get("/login")
    assert page.status_code == 200 and 'type="password"' in page.text
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    assert not re.search(r"<script|<style|style=|\son\w+=", page.text), "the policy of the page would refuse it"


async def test_m93_the_token_is_given_once_and_then_a_cookie_stands_for_it(board: Board) -> None:
    answer = await log_in(board)
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    [morsel] = cookie_of(answer).values()
    assert morsel["httponly"] and morsel["samesite"] == "strict" and morsel["path"] == "/" and not morsel["secure"]
    assert int(morsel["max-age"]) == VALID_S
    assert TOKEN not in answer.headers["set-cookie"]
    meta = await board.get("/api/meta")
    assert meta.status_code == 200 and meta.json()["can_act"]


@pytest.mark.parametrize(
    "token", ["", "correct horse battery stapl", f"{TOKEN}x", "CORRECT HORSE BATTERY STAPLE", "\0"]
)
async def test_m93_another_token_is_refused(board: Board, token: str) -> None:
    answer = await log_in(board, token)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert (await board.get("/api/meta")).status_code == 403


async def test_m93_a_cookie_that_was_made_up_or_changed_is_refused(board: Board, clock: Clock) -> None:
    good = next(iter(cookie_of(await log_in(board)).values())).value
    board.client.cookies.clear()
    until, nonce, mac = good.split(".")
    assert (await board.get("/api/meta", headers=sent(good))).status_code == 200
    for bad in [
        "",
        "x",
        f"{int(until) + 1}.{nonce}.{mac}",
        f"{until}.{'0' * 32}.{mac}",
        f"{until}.{nonce}.{'0' * 64}",
        f"{until}.{nonce}.{mac[:-1]}",
        f"{until}.{nonce}.",
        f"{until}.{nonce}",
        f"0{until}.{nonce}.{mac}",
        f"{good} ",
        f"{good}.x",
        f"٣{until}.{nonce}.{mac}",
        Token("another token, long enough", clock=clock).new_cookie(),
    ]:
        if bad.strip() == good:
            continue  # a blank around it is no part of it
        headers = {"Cookie": f"{COOKIE}={bad}".encode()} if not bad.isascii() else sent(bad)
        answer = await board.get("/api/meta", headers=headers)
        assert refusal(answer) == (403, "FORBIDDEN"), bad


async def test_m93_a_cookie_ends_after_twelve_hours(board: Board, clock: Clock) -> None:
    good = next(iter(cookie_of(await log_in(board)).values())).value
    board.client.cookies.clear()
    clock.now += VALID_S - 1
    assert (await board.get("/api/meta", headers=sent(good))).status_code == 200
    clock.now += 2
    assert refusal(await board.get("/api/meta", headers=sent(good))) == (403, "FORBIDDEN")


async def test_m93_a_cookie_is_not_accepted_after_the_logout(board: Board) -> None:
    good = next(iter(cookie_of(await log_in(board)).values())).value
    other = next(iter(cookie_of(await log_in(board)).values())).value
    board.client.cookies.clear()
    answer = await board.client.post("/logout", headers={**sent(good), "Origin": HOST})
    assert answer.status_code == 303 and answer.headers["location"] == "/login"
    assert cookie_of(answer)[COOKIE].value == ""
    assert (await board.get("/api/meta", headers=sent(good))).status_code == 403
    assert (await board.get("/api/meta", headers=sent(other))).status_code == 200, "that of another browser"


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    "headers", [{"Origin": "http://example.org"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_m93_nobody_else_logs_a_browser_in_or_out(board: Board, path: str, headers: dict[str, str]) -> None:
    answer = await board.client.post(path, data={"token": TOKEN}, headers=headers)
    assert refusal(answer) == (403, "WRONG_ORIGIN") and "set-cookie" not in answer.headers


async def test_m93_looking_at_the_logout_ends_nothing(board: Board) -> None:
    await log_in(board)
    assert refusal(await board.get("/logout")) == (405, "METHOD_NOT_ALLOWED")
    assert (await board.get("/api/meta")).status_code == 200


async def test_m93_the_cookie_is_secure_where_the_browser_sees_https(module_url: str) -> None:
    async with a_board(module_url, Token(TOKEN)) as board:
        answer = await log_in(board, headers={"Origin": "https://localhost:8600"})
        assert cookie_of(answer)[COOKIE]["secure"]


async def test_m93_attempts_of_one_address_are_limited(board: Board, clock: Clock) -> None:
    for _ in range(PER_MINUTE):
        assert (await log_in(board, "wrong")).status_code == 403
    answer = await log_in(board)
    assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0 and "set-cookie" not in answer.headers
    other = httpx.ASGITransport(board.app, client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=other, base_url=HOST) as client:
        answer = await client.post("/login", data={"token": TOKEN})
        assert answer.status_code == 303, "another address is not concerned"


async def test_m93_who_has_logged_in_is_not_concerned_by_the_attempts_of_others(board: Board) -> None:
    await log_in(board)
    for _ in range(PER_MINUTE):
        await log_in(board, "wrong")
    assert (await log_in(board)).status_code == 429
    assert (await board.get("/api/meta")).status_code == 200


async def test_m93_attempts_of_all_addresses_are_limited(board: Board) -> None:
    for number in range(PER_MINUTE_IN_ALL):
        transport = httpx.ASGITransport(board.app, client=(f"192.0.2.{number}", 1))
        async with httpx.AsyncClient(transport=transport, base_url=HOST) as client:
            assert (await client.post("/login", data={"token": "wrong"})).status_code == 403
    assert (await log_in(board)).status_code == 429


async def test_m93_who_has_a_cookie_is_not_concerned_by_the_attempts_of_others(board: Board) -> None:
    await log_in(board)
    for _ in range(PER_MINUTE + 1):
        await log_in(board, "wrong")
    assert (await board.get("/api/meta")).status_code == 200


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/tasks?status=FAILED", "/tasks?status=FAILED"),
        ("//example.org", "/"),
        ("/\\example.org", "/"),
        ("http://example.org", "/"),
        ("javascript:alert(1)", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("", "/"),
        ("/\t/example.org", "/"),
        ("/\u202etxt", "/"),
    ],
)
async def test_m93_after_the_login_one_stays_here(board: Board, wanted: str, place: str) -> None:
    answer = await log_in(board, data={"next": wanted})
    assert answer.status_code == 303 and answer.headers["location"] == place
    page = await board.get("/login", params={"next": wanted})
    assert f'name="next" value="{place}"' in page.text


async def test_m93_what_is_typed_is_never_html(board: Board) -> None:
    page = await board.get("/login", params={"next": '/"><script>alert(1)</script>'})
    assert "<script>" not in page.text and "&lt;script&gt;" in page.text


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"token=x", "text/plain", 415),
        (b'{"token": "x"}', "application/json", 415),
        (b"token=x", "multipart/form-data; boundary=x", 415),
        (b"\xff\xfe=1", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a=1" for _ in range(20)), "application/x-www-form-urlencoded", 400),
        (b"token=" + b"x" * 70_000, "application/x-www-form-urlencoded", 413),
    ],
)
async def test_m93_only_a_small_form_is_read(board: Board, content: bytes, kind: str, status: int) -> None:
    answer = await board.client.post("/login", content=content, headers={"Content-Type": kind})
    assert refusal(answer)[0] == status


async def test_m93_every_read_needs_the_cookie(board: Board) -> None:
    for endpoint in ANSWERING:
        assert (await board.ask(endpoint)).status_code == 403, name_of(endpoint)
    assert (await board.get("/static/horsies.css")).status_code == 200, "the login page needs it"


async def test_m93_a_token_that_may_only_look_does_not_act(module_url: str) -> None:
    async with a_board(module_url, Token(TOKEN, allow_actions=False)) as board:
        await log_in(board)
        assert not (await board.get("/api/meta")).json()["can_act"]
        assert refusal(await board.act("/api/tasks/x/cancel")) == (403, "FORBIDDEN")


async def test_m93_a_person_is_led_to_the_login_and_back(module_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def show(request: Request) -> Response:
        return PlainTextResponse("a screen")

    monkeypatch.setattr(app, "SCREENS", (Screen("/some/screen", show),))
    async with a_board(module_url, Token(TOKEN)) as board:
        sent_away = await board.get("/some/screen?a=1&b=%2F")
        assert sent_away.status_code == 303
        assert sent_away.headers["location"] == "/login?next=%2Fsome%2Fscreen%3Fa%3D1%26b%3D%252F"
        page = await board.get(sent_away.headers["location"])
        assert 'value="/some/screen?a=1&amp;b=%2F"' in page.text
        back = await log_in(board, data={"next": "/some/screen?a=1&b=%2F"})
        assert back.headers["location"] == "/some/screen?a=1&b=%2F"
        assert (await board.get("/some/screen")).text == "a screen"


async def test_m62_screens_are_for_those_who_may_look(module_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def show(request: Request) -> Response:
        return PlainTextResponse("a screen")

    monkeypatch.setattr(app, "SCREENS", (Screen("/some/screen", show),))
    async with a_board(module_url, Nobody()) as board:
        answer = await board.get("/some/screen", headers={"Accept": "text/html"})
        assert answer.status_code == 403 and answer.headers["content-type"].startswith("text/html")
        assert "you may not look" in answer.text


async def test_m93_the_cookie_belongs_to_the_place_where_the_dashboard_is_mounted(module_url: str) -> None:
    async with a_board(module_url, Token(TOKEN)) as board:
        scope = scope_of("/ops/jobs/login", FORM, method="POST", root_path="/ops/jobs")
        body = f"token={TOKEN.replace(' ', '+')}".encode()
        status, headers, _ = await raw(board.app, scope, body, is_whole=True)
        assert status == 303 and headers["location"] == "/ops/jobs/"
        assert "Path=/ops/jobs;" in headers["set-cookie"]
