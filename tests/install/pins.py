"""The pinned versions, what our extras require, and a walk from the one to the other: on a given Python, is each
package that would be installed pinned, and does its pin allow that Python?

The walk evaluates the markers for the given Python. pip does not do that: with `--python-version` it chooses the wheels
of another Python, and still reads markers such as `python_version < "3.12"` for the Python that runs it.
"""

from __future__ import annotations

import os
import platform
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# The oldest that we accept, that of Debian 12, and the first of each later series.
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
OURS = "horsies-pg"
VARIABLE = "HORSIES_TEST_INSTALL"

asks_the_index = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"asks the package index: {VARIABLE}=1, or make test-install"
)


@dataclass(frozen=True, slots=True)
class Package:
    """One version of a distribution, as its metadata describes it."""

    version: str
    requires_python: str
    requires: tuple[str, ...]


def constraints(python: str = platform.python_version()) -> dict[str, str]:
    """The pins that hold on this Python, by name. A package that has dropped a Python has a second pin for it."""
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(environment(python, ""))
    }


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements_of(*extras: str) -> list[str]:
    """What pip is asked to install for our package with these extras. Our own name, by which extras name each other,
    is replaced by what it stands for and never looked up in an index."""
    found = list(project()["dependencies"])
    for extra in extras:
        for text in project()["optional-dependencies"][extra]:
            requirement = Requirement(text)
            found += requirements_of(*requirement.extras) if requirement.name == OURS else [text]
    return list(dict.fromkeys(found))


def problems(
    extras: Iterable[str], python: str, pins: dict[str, str], describe: Callable[[str], Package | None]
) -> list[str]:
    """What keeps these extras from being installed on this Python with these pins. A package that `describe` does not
    know is only looked up among the pins."""
    found: dict[str, None] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [("our package", text, "") for text in requirements_of(*extras)]
    while waiting:
        wanted_by, text, extra = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate(environment(python, extra)):
            continue
        name = canonicalize_name(requirement.name)
        package = describe(name)
        found |= dict.fromkeys(_problems_of(name, requirement, wanted_by, python, pins, package))
        for wanted in ("", *sorted(requirement.extras)):
            if package is not None and (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting += [(name, text, wanted) for text in package.requires]
    return list(found)


def environment(python: str, extra: str) -> dict[str, str]:
    return {"python_version": python.rpartition(".")[0], "python_full_version": python, "extra": extra}


def _problems_of(
    name: str, requirement: Requirement, wanted_by: str, python: str, pins: dict[str, str], package: Package | None
) -> Iterator[str]:
    if (pin := pins.get(name)) is None:
        yield f"{name}, which {wanted_by} needs, is not pinned"
    elif not requirement.specifier.contains(pin, prereleases=True):
        yield f"{name}=={pin} is pinned, and {wanted_by} needs {requirement.specifier}"
    if package is not None and not SpecifierSet(package.requires_python).contains(python):
        yield f"{name}=={package.version} needs Python {package.requires_python}"
