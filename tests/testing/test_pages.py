"""The project of docs/testing.md and the tests of the crash example, run as their readers would run them."""

from __future__ import annotations

import re

import pytest

from horsies.testing import databases
from tests.testing.plugin_support import ROOT, install

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.slow("runs the code of a documentation page")]

FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server_url: str) -> None:
    install(pytester, monkeypatch)
    monkeypatch.setenv(databases.VARIABLE, server_url)


def test_x10_x11_x12_x13_x14_the_project_of_the_page_passes_its_tests(pytester: pytest.Pytester) -> None:
    files = dict(FILE.findall((ROOT / "docs" / "testing.md").read_text()))
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    count = sum(text.count("\ndef test_") for text in files.values())
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=count)
    assert count >= 10 and len([name for name in files if name.startswith("test_")]) >= 6


def test_x14_the_example_finds_the_planted_mistake_and_passes_without_it(pytester: pytest.Pytester) -> None:
    example = str(ROOT / "examples" / "crash_tests")
    ran = pytester.runpytest_subprocess("-q", "-s", "-p", "no:cacheprovider", "-o", "timeout=400", example)
    ran.assert_outcomes(passed=2)
    ran.stdout.fnmatch_lines(["*did not hold after a crash at: child killed, returned, finalizing"])
