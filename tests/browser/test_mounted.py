"""The dashboard below a path of somebody else's application (M-60): everything that a browser asks for is there."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.browser.actions import act, button
from tests.browser.support import Shop, Visitors
from tests.e2e.cli_support import environment
from tests.support import eventually_sync

MOUNT = "/ops/jobs"
PROGRAM = f"""
import socket, uvicorn
from fastapi import FastAPI
from horsies.demo.shop import app as shop
from horsies.web import AllowAll, Token, WebConfig, create_monitoring_app

outer = FastAPI()
config = WebConfig(enable_actions=True)
outer.mount({MOUNT!r}, create_monitoring_app(shop, auth_policy=AllowAll(), config=config))
outer.mount("/closed", create_monitoring_app(shop, auth_policy=Token("correct horse battery staple"), config=config))
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(outer, log_level="warning")).run([listening])
"""


@pytest.fixture
def mounted(shop: Shop) -> Iterator[str]:
    """The address of an application that has more than the dashboard."""
    env = environment(HORSIES_DEMO_DATABASE_URL=shop.url)
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=shop.cwd, env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        eventually_sync(lambda: _answers(url), 30, what="the application answers")
        yield url
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}{MOUNT}/api/meta").status_code == 200
    except httpx.TransportError:
        return False


def test_m60_everything_works_below_a_path(shop: Shop, mounted: str, visitors: Visitors) -> None:
    visit = visitors.visit(mounted)
    page = visit.go(f"{MOUNT}/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(f"{mounted}{MOUNT}/tasks")
    visit.is_live()
    shop.given_task("t-0")
    expect(page.locator("#task-t-0")).to_be_visible()
    page.locator("#task-t-0 a[data-open]").click()
    act(page, button(page, "Cancel…"), "Cancel it", "The task is cancelled.")
    assert shop.status("t-0") == "CANCELLED"
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")
    page.get_by_role("link", name="horsies", exact=True).click()
    expect(page).to_have_url(f"{mounted}{MOUNT}/")


def test_m93_a_session_belongs_to_its_path(mounted: str, visitors: Visitors) -> None:
    visit = visitors.visit(mounted)
    page = visit.go("/closed/queues")
    page.get_by_label("Token").fill("correct horse battery staple")
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{mounted}/closed/queues")
    assert [cookie["path"] for cookie in visit.context.cookies()] == ["/closed"]
    visit.is_live()
    visit.context.clear_cookies()
    visit.expects("403")
    page.keyboard.press("r")
    expect(page).to_have_url(f"{mounted}/closed/login?next=%2Fqueues")
    page.get_by_label("Token").fill("correct horse battery staple")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{mounted}/closed/login")
