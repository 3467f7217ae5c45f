"""The pinned versions, what our extras and dependency groups require, and a walk from the one to the other: on a given
Python, is each package that would be installed pinned, and does its pin allow that Python?

The walk evaluates the markers for the given Python. pip does not do that: with `--python-version` it chooses the wheels
of another Python, and still reads markers such as `python_version < "3.12"` for the Python that runs it.
"""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# The oldest that we accept, that of Debian 12, and the first of each later series.
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0", "3.14.0")
OURS = "horsies-pg"


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
    found: dict[str, Any] = _pyproject()["project"]
    return found


def requirements_of(*names: str) -> list[str]:
    """What pip is asked to install for our package with these extras or dependency groups. Our own name, by which they
    name extras, is replaced by what it stands for and never looked up in an index."""
    choices = {**_pyproject()["dependency-groups"], **project()["optional-dependencies"]}
    found = list(project()["dependencies"])
    for name in names:
        for wanted in choices[name]:
            if isinstance(wanted, dict):
                found += requirements_of(wanted["include-group"])
            else:
                requirement = Requirement(wanted)
                found += requirements_of(*requirement.extras) if requirement.name == OURS else [wanted]
    return list(dict.fromkeys(found))


def _pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


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
