"""The pinned versions can be installed on every Python that we support, from the oldest on.

As far as what is installed here can tell, this is part of every run. `make test-slow` asks the package index about all
of them: pip resolves each extra for each Python, without installing anything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from benchmarks.peers import install
from tests.install.pins import (
    OURS,
    PYTHONS,
    ROOT,
    Package,
    constraints,
    problems,
    requirements_of,
)

INSTALLED = ("demo", "test")  # what `make demo` and `make test` install
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


def test_what_is_installed_here_is_pinned_for_every_python() -> None:
    found = {python: problems(INSTALLED, python, constraints(python), described_here_for(python)) for python in PYTHONS}
    assert {python: wrong for python, wrong in found.items() if wrong} == {}


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


@pytest.mark.slow("pip asks the package index about every package")
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


def test_our_own_name_is_never_looked_up_in_an_index() -> None:
    """Another package of this name would be installed, and run."""
    asked = [install.shared_requirements(tomllib.loads((ROOT / "pyproject.toml").read_text())), *install.PEERS.values()]
    for requirements in asked:
        assert not {OURS, "horsies"} & {install.name_of(one) for one in install.from_index("python", requirements)}
    for name in ("horsies", "Horsies[embedded]>=0.1", "horsies_pg[web]"):
        with pytest.raises(ValueError, match="this tree"):
            install.from_index("python", ["rich", name])
    command = install.from_tree("python")
    assert {"--no-index", "--no-deps", "--no-build-isolation"} < set(command) and command[-1] == str(ROOT)
