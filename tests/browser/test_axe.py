"""Everybody can use it: axe finds no violation of level A or AA, on any screen, in light and dark, wide and narrow, and
in dialogs (M-92, M-96)."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.axe import violations
from tests.browser.rows import FAILED_TASK, SCREENS
from tests.browser.support import NARROW, Visitors, Web

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


@pytest.mark.parametrize("scheme", SCHEMES)
def test_m92_m96_axe_finds_no_violation_in_a_dialog(filled: Web, visitors: Visitors, scheme: str) -> None:
    page = visitors.visit(filled.url, color_scheme=scheme).go(f"/tasks/{FAILED_TASK}")
    page.get_by_role("button", name="Run again").click()
    page.locator("dialog[open]").wait_for()
    assert violations(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    assert violations(page) == []


def test_m92_m96_a_violation_would_be_found(filled: Web, visitors: Visitors) -> None:
    page = visitors.visit(filled.url).go("/")
    page.evaluate("document.querySelector('h1').insertAdjacentHTML('afterend', '<img src=\"/static/icon.svg\">')")
    assert [one for one in violations(page) if one.startswith("image-alt")]
