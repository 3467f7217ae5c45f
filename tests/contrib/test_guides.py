"""The projects of docs/fastapi.md and docs/flask.md, whose own tests run as their readers would run them."""

from __future__ import annotations

import re

import pytest

from horsies.testing import databases
from tests.testing.plugin_support import ROOT, install

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.slow("runs the code of a documentation page")]

FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["fastapi", "flask"])
def test_x21_the_project_of_the_guide_passes_its_tests(
    page: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    install(pytester, monkeypatch)
    monkeypatch.setenv(databases.VARIABLE, server_url)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    files = dict(FILE.findall((ROOT / "docs" / f"{page}.md").read_text()))
    for name, text in files.items():
        file = pytester.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    count = sum(text.count("\ndef test_") for text in files.values())
    ran = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    ran.assert_outcomes(passed=count)
    assert count >= 3
