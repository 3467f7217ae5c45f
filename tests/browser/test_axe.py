"""Everybody can use it: axe finds no violation of level A or AA, on any screen, in light and dark, wide and narrow, and
in dialogs (M-92, M-96)."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from horsies.web.pages.frame import NAVIGATION
from tests.browser.axe import violations
from tests.browser.layout import faults
from tests.browser.rows import FAILED_TASK, ORDER_FAILED, SCREENS
from tests.browser.support import NARROW, WIDE, Visit, Visitors, Web

SCHEMES = ("light", "dark")


def opened(page: Page) -> Page:
    """With everything that is folded laid open."""
    page.locator("main details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    return page


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", SCREENS)
def test_m92_m96_axe_finds_no_violation(filled: Web, visitors: Visitors, name: str, scheme: str) -> None:
    page = visitors.visit(filled.url, color_scheme=scheme).go(SCREENS[name])
    assert violations(opened(page)) == []


@pytest.mark.parametrize("name", SCREENS)
def test_m92_m96_axe_finds_no_violation_on_a_telephone(filled: Web, visitors: Visitors, name: str) -> None:
    page = visitors.visit(filled.url, viewport=NARROW, has_touch=True).go(SCREENS[name])
    assert violations(opened(page)) == []


# A button of each kind of dialog: a question, a list of tasks, fields, a text, and nothing to do.
DIALOGS = {
    f"/tasks/{FAILED_TASK}": "Run again…",
    "/tasks?status=PENDING": "Cancel…",
    "/tasks?status=PENDING&sort=next": "Move…",
    "/schedules": "Edit… sale-mail",
    f"/workflows/{ORDER_FAILED}": "Retry failed nodes…",
    "/workers": "Sweep dead workers…",
}


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("scheme", SCHEMES)
def test_m92_m96_axe_finds_no_violation_in_a_dialog(
    filled: Web, visitors: Visitors, scheme: str, size: dict[str, int]
) -> None:
    visit = visitors.visit(filled.url, color_scheme=scheme, viewport=size)
    for path, name in DIALOGS.items():
        page = visit.go(path)
        for box in page.locator("input[data-select]").all():
            box.check()
        page.locator("main").get_by_role("button", name=name).click()
        page.locator("dialog[open]").wait_for()
        assert (violations(page), faults(page)) == ([], []), path
        page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    assert (violations(page), faults(page)) == ([], [])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_m92_m96_axe_finds_no_violation_where_there_is_nothing(
    visit: Visit, web: Web, visitors: Visitors, scheme: str
) -> None:
    """Screens of an empty database, and what is not there."""
    visit = visitors.visit(web.url, color_scheme=scheme)
    visit.expects("404")
    for path in (*(entry.path for entry in NAVIGATION), "/tasks/none", "/nothing"):
        page = visit.go(path)
        assert (violations(page), faults(page)) == ([], []), path


def test_m92_m96_a_violation_would_be_found(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/")
    page.evaluate("document.querySelector('h1').insertAdjacentHTML('afterend', '<img src=\"/static/icon.svg\">')")
    assert [one for one in violations(page) if one.startswith("image-alt")]
