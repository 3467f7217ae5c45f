"""The pinned versions can be installed on every Python that we support, from the oldest on.

As far as what is installed here can tell, this is part of every run. `make test-install` asks the package index about
all of them: pip resolves each extra for each Python, without installing anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.install.pins import (
    PYTHONS,
    ROOT,
    Package,
    asks_the_index,
    constraints,
    problems,
    project,
    requirements_of,
)

INSTALLED = ("embedded", "test")  # what `make demo` and `make test` install
ALL = ("develop",)
RESOLVE_S = 900.0


def described_here(name: str) -> Package | None:
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return Package(found.version, found.metadata.get("Requires-Python", ""), tuple(found.requires or ()))


def described_here_for(python: str) -> Callable[[str], Package | None]:
    """Like `described_here`, without what has another pin on that Python: its metadata says nothing about it."""
    here, there = constraints(), constraints(python)

    def describe(name: str) -> Package | None:
        return described_here(name) if here.get(name) == there.get(name) else None

    return describe


def test_the_pythons_are_those_that_the_package_names() -> None:
    series = [text.rpartition(" ")[2] for text in project()["classifiers"] if "Python :: 3." in text]
    assert sorted({python.rpartition(".")[0] for python in PYTHONS}) == sorted(series)
    assert all(SpecifierSet(project()["requires-python"]).contains(python) for python in PYTHONS)


@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_installed_here_is_pinned_and_allows(python: str) -> None:
    assert problems(INSTALLED, python, constraints(python), described_here_for(python)) == []


def test_everything_that_make_demo_and_make_test_install_is_what_the_pins_say() -> None:
    pins = constraints()
    here = {name: found.version for name in pins if (found := described_here(name)) is not None}
    assert len(here) >= 40
    assert {name: version for name, version in here.items() if version != pins[name]} == {}


def test_a_pin_that_needs_a_later_patch_release_is_found() -> None:
    """What has happened: a tool of the documentation needed 3.11.5, and Debian 12 has 3.11.2."""
    pins = {**constraints(), "uvloop": "9.0"}

    def describe(name: str) -> Package | None:
        return Package("9.0", ">=3.11.5", ()) if name == "uvloop" else None

    assert problems(("uvloop",), "3.11.2", pins, describe) == ["uvloop==9.0 needs Python >=3.11.5"]
    assert problems(("uvloop",), "3.12.0", pins, describe) == []


def test_a_package_that_only_some_pythons_need_must_be_pinned_for_them() -> None:
    def describe(name: str) -> Package | None:
        if name == "rich":
            return Package("1", "", ("backport-of-it>=2; python_version < '3.12'", "fast; extra == 'speed'"))
        return None

    found = "backport-of-it, which rich needs, is not pinned"
    assert problems((), "3.11.0", constraints(), describe) == [found]
    assert problems((), "3.12.0", constraints(), describe) == []
    old = problems((), "3.11.0", {**constraints(), "backport-of-it": "1.9"}, describe)
    assert old == ["backport-of-it==1.9 is pinned, and rich needs >=2"]


def test_the_demo_and_the_tests_need_no_tool_of_the_documentation() -> None:
    names = {text.partition(">")[0] for extra in INSTALLED for text in requirements_of(extra)}
    assert "pytest" in names and not [name for name in names if "mkdocs" in name or name == "ruff"]


@asks_the_index
@pytest.mark.timeout(RESOLVE_S)
@pytest.mark.parametrize("python", PYTHONS)
def test_pip_resolves_every_extra_for(python: str, tmp_path: Path) -> None:
    packages = resolved(python, tmp_path)
    assert {name: each.version for name, each in packages.items()}.items() <= constraints(python).items()
    assert problems(ALL, python, constraints(python), packages.get) == []


def resolved(python: str, directory: Path) -> dict[str, Package]:
    """What pip would install for this Python on this system, by name. It gets the pins of that Python without their
    markers, which it would read for the Python that runs it."""
    report, pins = directory / "report.json", directory / "pins.txt"
    pins.write_text("".join(f"{name}=={version}\n" for name, version in constraints(python).items()))
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--dry-run", "--ignore-installed", "--only-binary=:all:", "--python-version", python]
    command += ["--target", str(directory / "nothing"), "--report", str(report), "--constraint", str(pins)]
    done = subprocess.run([*command, *requirements_of(*ALL)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr  # what conflicts stands at the end of the first
    assert not (directory / "nothing").exists(), "nothing is installed"
    found: list[dict[str, Any]] = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return {
        canonicalize_name(each["name"]): Package(
            each["version"], each.get("requires_python", ""), tuple(each.get("requires_dist", ()))
        )
        for each in found
    }
