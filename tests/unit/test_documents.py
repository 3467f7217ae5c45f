"""The written word keeps step: the generated reference is current, links lead somewhere, the options are all there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_the_configuration_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    broken = [target for target in LINK.findall(page.read_text()) if not _exists(page, target)]
    assert broken == []


def _exists(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_files_that_the_architecture_page_names_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:core|sql|producer)/[\w/]+\.(?:py|sql))`", text))
    assert len(named) >= 7
    places = [ROOT / "horsies", ROOT / "horsies/core"]
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []
