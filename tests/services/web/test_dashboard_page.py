"""docs/dashboard.md: its code runs, and it names every screen, key, policy and refusal that there is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
from psycopg import AsyncConnection
from starlette.responses import PlainTextResponse

from horsies import web
from horsies.web.login import COOKIE
from horsies.web.pages.frame import NAVIGATION
from tests.app_support import an_app
from tests.e2e.page_support import ours, run
from tests.factories import given_task
from tests.web_support import HOST, INTENT, a_board

PAGE = (Path(__file__).parents[3] / "docs/dashboard.md").read_text()
TOKEN = "correct horse battery staple"


async def get(outer: Any, path: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url=HOST, cookies=more) as client:
        return await client.get(path)


async def test_m60_m93_the_page_does_what_it_says(database_url: str, db: AsyncConnection[Any]) -> None:
    with an_app(database_url) as app:
        names: dict[str, Any] = {"app": app, "token": TOKEN, "other_application": PlainTextResponse("another one")}
        mounting, alone, staff, _masks = ours("dashboard")
        await run("dashboard", names, [mounting, alone, staff])
        for outer in (names["api"], names["site"], names["application"]):
            assert (await get(outer, "/jobs/api/meta")).status_code == 403
            cookie = {COOKIE: web.Token(TOKEN).new_cookie()}
            assert (await get(outer, "/jobs/api/meta", **cookie)).json()["can_act"]
            page = await get(outer, "/jobs/", **cookie)
            assert page.status_code == 200 and 'href="/jobs/tasks"' in page.text
        assert (await get(names["application"], "/polls/")).text == "another one"
        assert await seen_by(names["for_staff"], "ada") == (200, True)
        assert await seen_by(names["for_staff"], "eve") == (200, False)
        assert await seen_by(names["for_staff"], None) == (403, False)
        for name in ("dashboard", "for_staff"):
            await names[name].state.dashboard.close()
        for outer in (names["api"], names["site"]):
            async with outer.router.lifespan_context(outer):
                pass  # its end closes what is mounted


async def seen_by(inner: Any, user: str | None) -> tuple[int, bool]:
    """The answer to somebody whom the outer application knows, and whether he may act."""

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "session": {"user": user} if user else {}}, receive, send)

    answer = await get(outer, "/api/meta")
    return answer.status_code, answer.json().get("can_act", False)


async def test_m93_the_masks_of_the_page_hide_what_it_says(database_url: str, db: AsyncConnection[Any]) -> None:
    names: dict[str, Any] = {"WebConfig": web.WebConfig}
    await run("dashboard", names, [ours("dashboard")[-1]])
    order = await given_task(db, kwargs='{"order": {"card_number": "4711-4711"}}')
    letter = await given_task(db, task_name="mail.send", kwargs='{"to": "ada"}')
    async with a_board(database_url, mask=["password", "card_number"]) as board:
        shown = (await board.get(f"/api/tasks/{order}")).json()
        assert json.loads(shown["kwargs"]) == {"order": {"card_number": "***"}}
    async with a_board(database_url, mask=names["shown"]) as board:
        assert json.loads((await board.get(f"/api/tasks/{letter}")).json()["kwargs"]) == "(a letter)"
        assert "4711" in (await board.get(f"/api/tasks/{order}")).json()["kwargs"]


def test_m91_m92_the_page_has_every_screen_and_key() -> None:
    for screen in NAVIGATION:
        assert f"\n| {screen.name} | " in PAGE
    keys = re.search(r"^\| `g` and then ([`a-z ]+) \| ([\w, ]+) \|$", PAGE, re.MULTILINE)
    assert keys is not None
    assert [*zip(re.findall(r"`(\w)`", keys[1]), keys[2].split(", "), strict=True)] == [
        (screen.key, screen.name) for screen in NAVIGATION
    ]


def test_m62_m64_the_page_names_every_policy_and_the_refusals_of_every_request() -> None:
    for policy in ("AllowAll", "ViewOnly", "Token", "TrustedHeader"):
        assert f"`{policy}(" in PAGE and policy in web.__all__
    for code in ("UNKNOWN_HOST", "ACTIONS_DISABLED", "WRONG_ORIGIN", "SCHEMA_ABSENT", "APP_NEEDED"):
        assert f"`{code}`" in PAGE
    assert f"{next(iter(INTENT))}: {INTENT[next(iter(INTENT))]}" in PAGE
