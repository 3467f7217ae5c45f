"""The choice of the browser. This is also what `make test` says of the other tests here: one line (M-96)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.binary import BINARY, NAMES, WHY_NOT, find_browser, is_required


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory with programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(BINARY, raising=False)
    return tmp_path


def a_program(path: Path) -> str:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("name", NAMES)
def test_m96_the_browser_of_the_system_is_found(programs: Path, name: str) -> None:
    made = a_program(programs / name)
    assert find_browser() == made


def test_m96_another_browser_can_be_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_program(programs / "chromium")
    other = a_program(programs / "other")
    monkeypatch.setenv(BINARY, other)
    assert find_browser() == other


@pytest.mark.parametrize("named", [None, "no-such-browser"])
def test_m96_a_browser_that_is_missing_is_a_failure_that_says_what_to_install(
    programs: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    if named:
        a_program(programs / "chromium")
        monkeypatch.setenv(BINARY, named)
    with pytest.raises(pytest.fail.Exception, match=f"{named or 'chromium'}.*apt install chromium.*{BINARY}"):
        find_browser()


@pytest.mark.skipif(not is_required(), reason=WHY_NOT)
def test_m96_there_is_a_browser() -> None:
    assert Path(find_browser()).exists()
