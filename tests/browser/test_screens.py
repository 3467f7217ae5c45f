"""Every screen in a real browser: reached by clicking, laid out well at every width, in light and in dark, and readable
without JavaScript (M-66, M-90, M-91, M-92, M-96)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from horsies.web.pages.frame import NAVIGATION
from tests.browser.layout import faults
from tests.browser.rows import ORDER_FAILED, SCREENS, STRANDED_TASK
from tests.browser.support import NARROW, WIDE, Visitors, Web

TABLET = {"width": 800, "height": 1000}


def test_m96_m66_every_screen_is_reached_by_clicking(filled: Web, visitors: Visitors) -> None:
    visit = visitors.visit(filled.url)
    page = visit.go("/")
    for entry in NAVIGATION:
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=entry.name, exact=True).click()
        expect(page).to_have_url(f"{filled.url}{entry.path}")
        current = page.get_by_role("navigation", name="Screens").locator("[aria-current=page]")
        expect(current).to_have_text(entry.name)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        visit.check()


@pytest.mark.parametrize(
    ("path", "link", "heading"),
    [
        ("/tasks", "shop.report", "shop.report RUNNING"),
        ("/queues", "demo-mail", "Queue demo-mail"),
        ("/workflows", "order", "order RUNNING"),
        ("/workers", "shop-1:4211:9c0d25de", "shop-1:4211:9c0d25de"),
        (f"/workflows/{ORDER_FAILED}", "charge", "charge FAILED"),
        ("/workers", "Ping all", "Which workers answer"),
    ],
)
def test_m96_m91_a_line_of_a_list_leads_to_its_screen(
    filled: Web, visitors: Visitors, path: str, link: str, heading: str
) -> None:
    page = visitors.visit(filled.url).go(path)
    page.locator("main").get_by_role("link", name=link, exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(heading)


def test_m91_the_state_of_the_list_is_in_its_address(filled: Web, visitors: Visitors) -> None:
    """It can be sent to a colleague, who sees the same."""
    visit = visitors.visit(filled.url)
    page = visit.go("/tasks")
    page.get_by_role("link", name="Failed", exact=True).click()
    page.get_by_label("Error code").fill("SMTP_BUSY")
    page.get_by_role("button", name="Filter").click()
    expect(page).to_have_url(f"{filled.url}/tasks?status=FAILED&code=SMTP_BUSY")
    expect(page.locator("tr[data-row]")).to_have_count(5)
    other = visitors.visit(filled.url)
    other.page.goto(page.url)
    expect(other.page.locator("tr[data-row]")).to_have_count(5)
    expect(other.page.get_by_label("Error code")).to_have_value("SMTP_BUSY")
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tr[data-row]")).to_have_count(50)


def test_m91_pages_of_the_list_follow_each_other(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/tasks?status=COMPLETED")
    seen: set[str] = set()
    pages = 0
    while True:
        ids = page.locator("tr[data-row] input[data-select]").evaluate_all("all => all.map(one => one.value)")
        assert not seen & set(ids), "a task is on two pages"
        seen |= set(ids)
        pages += 1
        following = page.get_by_role("link", name="Next page")
        if not following.count():
            break
        following.click()
        page.wait_for_load_state()
    assert (len(seen), pages) == (285, 6)
    page.get_by_role("link", name="First page").click()
    expect(page).to_have_url(f"{filled.url}/tasks?status=COMPLETED")


def test_m91_a_task_says_why_it_does_not_run(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go(f"/tasks/{STRANDED_TASK}")
    why = page.get_by_role("region", name="Why it is not running")
    expect(why).to_contain_text("no live worker serves")
    expect(why).to_contain_text("What you can do")
    expect(why).to_contain_text("horsies worker MODULE --queues demo-archive")
    plain = page.get_by_role("region", name="Path").evaluate("one => getComputedStyle(one).backgroundColor")
    assert why.evaluate("one => getComputedStyle(one).backgroundColor") != plain, "it stands out"


def test_m91_the_search_finds_what_has_an_id(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/")
    search = page.get_by_role("searchbox", name="Find a task or workflow by its id")
    search.fill(ORDER_FAILED)
    search.press("Enter")
    expect(page).to_have_url(f"{filled.url}/workflows/{ORDER_FAILED}")
    search.fill(STRANDED_TASK)
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(f"{filled.url}/tasks/{STRANDED_TASK}")


@pytest.mark.parametrize("size", [WIDE, TABLET, NARROW], ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("name", SCREENS)
def test_m92_nothing_overlaps_or_overflows(filled: Web, visitors: Visitors, name: str, size: dict[str, int]) -> None:
    page = visitors.visit(filled.url, viewport=size).go(SCREENS[name])
    assert faults(page) == []
    page.locator("main details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert faults(page) == []


def test_m92_a_narrow_screen_begins_with_what_it_is_about(filled: Web, visitors: Visitors) -> None:
    visit = visitors.visit(filled.url, viewport=NARROW)
    page = visit.go("/tasks")
    assert page.locator("header.top").evaluate("one => one.offsetHeight") < 100
    first = page.locator("tr[data-row]").first
    assert first.evaluate("one => one.getBoundingClientRect().top") < NARROW["height"] * 0.6
    page = visit.go("/schedules")
    line = page.get_by_role("navigation", name="Screens").bounding_box()
    current = page.get_by_role("link", name="Schedules").bounding_box()
    assert line and current and line["x"] <= current["x"] < line["x"] + line["width"], (
        "the current screen is in the line"
    )
    page = visit.go("/queues")
    rows = page.locator("tr[data-row]").evaluate_all("all => all.map(one => one.offsetHeight)")
    assert rows and max(rows) < 140


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_m92_filters_are_folded_on_a_narrow_screen_only(filled: Web, visitors: Visitors, scripts: bool) -> None:
    wide = visitors.visit(filled.url, viewport=WIDE, java_script_enabled=scripts).go("/tasks")
    expect(wide.get_by_label("Task name")).to_be_visible()
    page = visitors.visit(filled.url, viewport=NARROW, java_script_enabled=scripts).go("/tasks")
    expect(page.get_by_label("Task name")).to_be_hidden()
    page.get_by_text("Filter and order").click()
    page.get_by_label("Task name").fill("shop.charge")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_label("Task name")).to_be_visible()
    expect(page.get_by_label("Task name")).to_have_value("shop.charge")


@pytest.mark.parametrize("selector", ["figure.timeline", ".top nav"])
def test_m92_what_scrolls_has_a_shade_at_its_edges(filled: Web, visitors: Visitors, selector: str) -> None:
    """The shade lies still, and what covers it at the ends moves with the content."""
    page = visitors.visit(filled.url, viewport=NARROW).go(f"/tasks/{STRANDED_TASK}")
    box = page.locator(selector)
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")
    kept = box.evaluate("one => getComputedStyle(one).backgroundAttachment")
    assert kept == "local, local, scroll, scroll"


def test_m92_the_theme_is_what_the_reader_prefers(filled: Web, visitors: Visitors) -> None:
    def brightness(scheme: str) -> float:
        page = visitors.visit(filled.url, color_scheme=scheme).go("/")
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3])) / 765

    assert brightness("light") > 0.8 and brightness("dark") < 0.2


@pytest.mark.parametrize("name", SCREENS)
def test_m90_every_screen_can_be_read_without_javascript(filled: Web, visitors: Visitors, name: str) -> None:
    """The same texts; and no button that would do nothing."""
    with_it = visitors.visit(filled.url).go(SCREENS[name])
    without = visitors.visit(filled.url, java_script_enabled=False).go(SCREENS[name])
    heading = "main h1"
    assert without.locator(heading).text_content() == with_it.locator(heading).text_content()
    assert shape_of(without) == shape_of(with_it)
    offered = [button.inner_text() for button in without.locator("button:visible").all()]
    assert set(offered) <= {"Find", "Filter"}, "only what a form does by itself"


def shape_of(page: Page) -> dict[str, int]:
    """How much of everything a page has, without actions."""
    parts = ("main table", "main tbody tr", "main svg", "main dl.facts dt", "main pre", "main details")
    return {part: page.locator(part).count() for part in parts}


def test_m90_filters_pages_and_searches_work_without_javascript(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url, java_script_enabled=False).go("/tasks?status=FAILED")
    page.get_by_label("Task name").fill("shop.charge")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tr[data-row]")).to_have_count(5)
    page.get_by_role("searchbox").fill(STRANDED_TASK)
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(f"{filled.url}/tasks/{STRANDED_TASK}")
    page.goto(f"{filled.url}/tasks")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()


def test_m91_an_id_is_copied(filled: Web, visitors: Visitors) -> None:
    visit = visitors.visit(filled.url, permissions=["clipboard-read", "clipboard-write"])
    page = visit.go(f"/tasks/{STRANDED_TASK}")
    page.get_by_role("button", name="Copy id").click()
    expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == STRANDED_TASK
