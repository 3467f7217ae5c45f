"""The tests would notice: a page that breaks a rule on purpose is found out (M-96)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.support import Visit


def test_m96_a_page_without_fault_has_no_problems(visit: Visit) -> None:
    page = visit.go("/")
    expect(page.get_by_role("heading", name="What is wrong now")).to_be_visible()
    visit.is_live()
    visit.check()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("console.error('broken')", "console: broken"),
        ("setTimeout(() => { throw new Error('thrown') })", "error: .*thrown"),
        ("setTimeout(() => alert('hello'))", "dialog: hello"),
        ("fetch('/nothing')", "refused: .*/nothing 404"),
        ("fetch('http://127.0.0.1:1/').catch(() => {})", "content security policy: connect-src"),
        ("document.body.setAttribute('style', 'color: red')", "content security policy: style-src"),
        ("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alert(1)>')", "content security policy"),
        ("window.open('/')", "a window was opened"),
    ],
)
def test_m96_a_fault_is_noticed(visit: Visit, does: str, said: str) -> None:
    page = visit.go("/")
    visit.expects(".*")
    page.evaluate(f"() => {{ {does} }}")
    visit.until(lambda: any(re.search(said, heard) for heard in visit.heard), said)
