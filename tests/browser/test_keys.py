"""Every key of M-92, and that none of them disturbs whoever types."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from horsies.web.pages.frame import NAVIGATION
from tests.browser.support import Shop, Visit, Visitors, Web


def current_line(page: Page) -> str | None:
    """Its id; its text has ages, which change when the page refreshes itself."""
    return page.locator("tr.is-current").get_attribute("id")


@pytest.mark.parametrize("entry", NAVIGATION, ids=lambda entry: entry.name)
def test_m92_g_and_a_letter_lead_to_a_screen(filled: Web, visitors: Visitors, entry: object) -> None:
    page = visitors.visit(filled.url).go("/audit" if entry.path != "/audit" else "/")
    page.keyboard.press("g")
    page.keyboard.press(entry.key)
    expect(page).to_have_url(f"{filled.url}{entry.path}")


def test_m92_slash_searches(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/queues")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    page.keyboard.type("gt/?jkrpn")
    expect(search).to_have_value("gt/?jkrpn")
    expect(page).to_have_url(f"{filled.url}/queues")
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_be_visible()


def test_m92_question_mark_tells_every_key(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/tasks")
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog")
    told = help_.locator("dt").evaluate_all("all => all.map(one => one.textContent.trim())")
    wanted = {"/", "j k", "Enter", "Esc", "r", "p", "n", *(f"g {entry.key}" for entry in NAVIGATION)}
    assert wanted <= set(told)
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page).to_have_url(f"{filled.url}/tasks")
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    page.keyboard.press("?")
    page.get_by_role("button", name="Close").click()
    expect(help_).to_have_count(0)


def test_m92_j_and_k_walk_through_the_lines_and_enter_opens_one(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url, viewport={"width": 1440, "height": 500}).go("/tasks?status=PENDING&sort=next")
    lines = page.locator("tr[data-row]")
    ids = lines.evaluate_all("all => all.map(one => one.id)")
    page.keyboard.press("k")
    assert current_line(page) == ids[0]
    for _ in range(3):
        page.keyboard.press("j")
    assert current_line(page) == ids[3]
    expect(page.locator("tr.is-current a[data-open]")).to_be_focused()
    page.keyboard.press("k")
    assert current_line(page) == ids[2]
    for _ in range(len(ids)):
        page.keyboard.press("j")
    assert current_line(page) == ids[-1]
    expect(lines.last).to_be_in_viewport()
    wanted = lines.last.locator("a[data-open]").get_attribute("href")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{filled.url}{wanted}")


def test_m92_a_refresh_keeps_the_current_line(shop: Shop, visit: Visit) -> None:
    for number in range(1, 5):
        shop.given_task(f"t-{number}")
    page = visit.go("/tasks")
    visit.is_live()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tr.is-current")).to_have_id("task-t-3")
    shop.given_task("t-5")
    page.locator("#task-t-5").wait_for()
    expect(page.locator("tr.is-current")).to_have_id("task-t-3")
    page.keyboard.press("j")
    expect(page.locator("tr.is-current")).to_have_id("task-t-2")
    expect(page.locator("#task-t-2 a[data-open]")).to_be_focused()


def test_m92_r_refreshes_even_while_live_updates_are_stopped(shop: Shop, visit: Visit) -> None:
    page = visit.go("/tasks")
    page.keyboard.press("p")
    expect(page.locator("#live")).to_contain_text("paused")
    shop.given_task("t-1")
    page.keyboard.press("r")
    expect(page.locator("#task-t-1")).to_be_visible()


def test_m92_keys_of_the_browser_are_left_alone(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/tasks")
    for key in ("Control+p", "Alt+r", "Meta+j"):
        page.keyboard.press(key)
    expect(page.locator("#live")).not_to_contain_text("paused")
    expect(page.locator("tr.is-current")).to_have_count(0)


def test_m92_the_whole_list_can_be_used_with_the_tab_key(filled: Web, visitors: Visitors) -> None:
    """The way to the content can be skipped, and everything that can be clicked is reached and seen."""
    page = visitors.visit(filled.url).go("/tasks?status=FAILED")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    reached: set[str] = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            "() => { const one = document.activeElement, box = one.getBoundingClientRect();"
            " return { what: one.outerHTML.slice(0, 200), is_seen: box.width > 0 && box.height > 0,"
            " outline: getComputedStyle(one).outlineStyle }; }"
        )
        assert seen["is_seen"] and seen["outline"] != "none", seen
        reached.add(seen["what"])
    assert not any("data-go" in one for one in reached), "the navigation was skipped"
    assert any("data-select" in one for one in reached) and any("data-open" in one for one in reached)
