"""The browser of the run, the dashboards that it looks at, and those who look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.binary import is_required

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.support import Shop, Visit, Visitors, Web


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Where these tests are not wanted, Playwright is not installed; `test_binary.py` says so for all of them."""
    if is_required() or collection_path.suffix != ".py" or collection_path.name == "test_binary.py":
        return None
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for each process."""
    from tests.browser.support import a_browser

    with a_browser() as browser:
        yield browser


@pytest.fixture
def visitors(browser: Browser) -> Iterator[Visitors]:
    from tests.browser.support import Visitors

    visitors = Visitors(browser)
    yield visitors
    visitors.close()
    visitors.check()


@pytest.fixture
def shop(database_url: str, tmp_path: Path) -> Iterator[Shop]:
    """The database of the test."""
    from tests.browser.support import Shop

    with Shop(database_url, tmp_path) as shop:
        yield shop


@pytest.fixture
def web(shop: Shop) -> Iterator[Web]:
    """A dashboard of it where everybody may do everything."""
    from tests.browser.support import Web

    with Web(shop.url, shop.cwd, "--enable-actions") as web:
        yield web


@pytest.fixture
def visit(web: Web, visitors: Visitors) -> Visit:
    """Somebody at that dashboard."""
    return visitors.visit(web.url)


@pytest.fixture(scope="module")
def filled(module_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A dashboard of an ordinary day of the shop, which the tests of a module only look at."""
    from tests.browser import rows
    from tests.browser.support import Shop, Web

    cwd = tmp_path_factory.mktemp("filled")
    with Shop(module_url, cwd) as shop:
        rows.fill(shop)
        with Web(module_url, cwd, "--enable-actions") as web:
            yield web
