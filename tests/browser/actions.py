"""An action as a person takes it: a button, a dialog that says what would happen, and another button."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, expect


@contextmanager
def asked(page: Page, opener: Locator) -> Iterator[Locator]:
    """The dialog that a button opens. Whatever the test does in it, the dialog is closed afterwards."""
    opener.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    yield dialog
    expect(dialog).to_have_count(0)


def act(page: Page, opener: Locator, confirm: str, said: str, *shown: str) -> None:
    """Open the dialog, see that it tells these things, confirm, and be told that it was done."""
    with asked(page, opener) as dialog:
        for text in shown:
            expect(dialog).to_contain_text(text)
        dialog.get_by_role("button", name=confirm, exact=True).click()
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


def button(page: Page, name: str) -> Locator:
    return page.locator("main").get_by_role("button", name=name)
