"""Which browser the tests use, and whether they are to be run at all (M-96).

The browser is the system's: Playwright drives it and brings none along. `HORSIES_TEST_CHROMIUM` names another one.
`make test-browser` sets `HORSIES_TEST_BROWSER`: then a browser that is missing is a failure. `make test` does not, and
skips these tests.
"""

from __future__ import annotations

import os
import shutil

import pytest

REQUIRED = "HORSIES_TEST_BROWSER"
BINARY = "HORSIES_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")
WHY_NOT = "drives a real browser: make test-browser"


def is_required() -> bool:
    return bool(os.environ.get(REQUIRED))


def find_browser() -> str:
    """The browser; the test fails if there is none, and says what to install."""
    wanted = os.environ.get(BINARY)
    found = next(filter(None, map(shutil.which, [wanted] if wanted else NAMES)), None)
    if found is None:
        pytest.fail(
            f"there is no browser here ({wanted or ', '.join(NAMES)}): install Chromium (apt install chromium) or"
            f" Chrome, or name one in {BINARY}",
            pytrace=False,
        )
    return found
