"""The login of a person with a browser (M-93), and what happens to a page whose session has ended meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import act, button
from tests.browser.axe import violations
from tests.browser.layout import faults
from tests.browser.support import NARROW, Shop, Visit, Visitors, Web

TOKEN = "correct horse battery staple"


@pytest.fixture
def web(shop: Shop, tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with Web(shop.url, tmp_path, "--auth", "token", "--token-file", "token", "--enable-actions") as web:
        yield web


def log_in(page: Page, token: str = TOKEN) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def test_m93_the_token_leads_to_where_one_wanted_to_go(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-failed", "FAILED")
    page = visit.go("/tasks?status=FAILED&queue=demo-orders")
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.get_by_label("Token").get_attribute("type") == "password"
    log_in(page)
    expect(page).to_have_url(f"{visit.url}/tasks?status=FAILED&queue=demo-orders")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    [cookie] = visit.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""
    visit.is_live()


def test_m93_a_wrong_token_is_told_and_can_be_corrected(visit: Visit) -> None:
    page = visit.go("/")
    visit.expects("403")
    log_in(page, "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_label("Token")).to_have_value("")
    assert visit.context.cookies() == []
    log_in(page)
    expect(page.get_by_role("heading", name="What is wrong now")).to_be_visible()


def test_m93_whoever_guesses_must_wait(visit: Visit) -> None:
    page = visit.go("/")
    visit.expects("403|429")
    for number in range(6):
        log_in(page, f"guess {number}")
        expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("Try again in a minute")
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text("Try again in a minute")


def test_m93_actions_are_taken_with_the_session(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-0")
    page = visit.go("/tasks/t-0")
    log_in(page)
    act(page, button(page, "Cancel…"), "Cancel it", "The task is cancelled.")
    assert shop.status("t-0") == "CANCELLED"
    assert shop.rows("SELECT actor FROM horsies_audit") == [{"actor": "token"}]


def test_m93_after_the_logout_nothing_is_shown(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-0")
    page = visit.go("/tasks")
    log_in(page)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    visit.go("/tasks")
    expect(page.get_by_label("Token")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Token")).to_be_visible()
    assert "shop.check_stock" not in page.content()


def test_m93_a_page_whose_session_has_ended_leads_to_the_login(shop: Shop, visit: Visit) -> None:
    page = visit.go("/tasks?queue=demo-orders")
    log_in(page)
    visit.is_live()
    visit.context.clear_cookies()
    visit.expects("403")
    shop.given_task("t-0")
    expect(page.get_by_label("Token")).to_be_visible()
    log_in(page)
    expect(page).to_have_url(f"{visit.url}/tasks?queue=demo-orders")
    expect(page.locator("#task-t-0")).to_be_visible()


def test_m93_an_action_whose_session_has_ended_leads_to_the_login(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-0")
    page = visit.go("/tasks/t-0")
    log_in(page)
    page.locator("#live").click()
    visit.context.clear_cookies()
    visit.expects("403")
    button(page, "Cancel…").click()
    expect(page).to_have_url(f"{visit.url}/login?next=%2Ftasks%2Ft-0")
    assert shop.status("t-0") == "PENDING"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_m92_the_login_is_for_everybody(web: Web, visitors: Visitors, scheme: str) -> None:
    visit = visitors.visit(web.url, color_scheme=scheme, viewport=NARROW)
    page = visit.go("/")
    assert violations(page) == [] and faults(page) == []
    visit.expects("403")
    log_in(page, "wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    assert violations(page) == [] and faults(page) == []


def test_m93_the_login_needs_no_javascript(web: Web, visitors: Visitors) -> None:
    visit = visitors.visit(web.url, java_script_enabled=False)
    page = visit.go("/queues")
    log_in(page)
    expect(page).to_have_url(f"{web.url}/queues")
