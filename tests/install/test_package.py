"""The page of the package: what an index shows is the README without the links that lead nowhere there, and the facts
beside it."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from tests.install.pins import ROOT, project

LINK = re.compile(r"\]\(([^)\s]*)")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*(\S+)|(?:href|src)=[\"']([^\"']+)", re.MULTILINE)


def targets(text: str) -> list[str]:
    """Where the links of a page lead, however they are written. Code is no link."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return [*LINK.findall(text), *(first or second for first, second in REFERENCE.findall(text))]


def check_links(description: str) -> None:
    """Relative links are replaced by their text, and images are left out."""
    readme = (ROOT / "README.md").read_text()
    work = [link for link in targets(readme) if link.startswith(("https://", "#"))]
    assert len(targets(readme)) > 20 + len(work)
    assert targets(description) == work
    words = " ".join(description.split())
    assert "Coming from Celery? Read the guide." in words and "Recovery has the details." in words


def test_the_page_of_the_installed_package_has_no_relative_link() -> None:
    """The metadata was built when this environment was made, by what builds the package."""
    described = metadata.metadata("horsies-pg")
    check_links(str(described.get_payload()) or described["Description"])


def test_the_package_names_no_address() -> None:
    """Until the project has an address of its own."""
    assert "urls" not in project()
    assert metadata.metadata("horsies-pg").get_all("Project-URL", []) == []


@pytest.mark.slow("pip builds the package in an environment of its own")
@pytest.mark.timeout(600)
def test_the_package_that_is_built_has_a_page_with_links_that_work_everywhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [name] = [name for name in names if name.endswith(".dist-info/METADATA")]
        built = email.message_from_bytes(archive.read(name))
    assert built["Description-Content-Type"] == "text/markdown"
    check_links(built.get_payload(decode=True).decode())  # type: ignore[union-attr]
    assert built["Name"] == "horsies-pg" and built.get_all("Project-URL", []) == []
    assert {name.partition("/")[0] for name in names} == {"horsies", "pytest_horsies.py", name.partition("/")[0]}
    assert "horsies/py.typed" in names and any(name.endswith(".sql") for name in names)
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "horsies/dev/templates").rglob("*.in")}
    assert len(templates) > 20 and templates <= set(names), "horsies new needs them"
