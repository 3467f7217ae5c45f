"""What the shell offers when a person presses TAB, beside the names of commands and options. Nothing of the user's is
imported and no database is asked: only the names of files are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path


def modules(incomplete: str) -> list[str]:
    """Modules and packages below the current directory that the beginning of a locator can become."""
    try:
        return sorted(name for name in _names(incomplete) if name.startswith(incomplete))
    except OSError:  # a directory that cannot be read has nothing to offer
        return []


def members(kind: Iterable[StrEnum]) -> Callable[[str], list[str]]:
    """The values of an enumeration, also behind a comma, in the case in which the person writes."""

    def complete(incomplete: str) -> list[str]:
        given, comma, last = incomplete.rpartition(",")
        values = [member.value.lower() if last.islower() else member.value for member in kind]
        return [f"{given}{comma}{value}" for value in values if value.startswith(last)]

    return complete


def _names(incomplete: str) -> Iterator[str]:
    if "/" in incomplete:
        folder = incomplete[: incomplete.rindex("/") + 1]
        for path in Path(folder).iterdir():
            if path.suffix == ".py":
                yield f"{folder}{path.name}"
            elif path.is_dir() and not path.name.startswith((".", "__")):
                yield f"{folder}{path.name}/"
        return
    package = incomplete.rpartition(".")[0]
    prefix = f"{package}." if package else ""
    for path in Path(*package.split(".")).iterdir():
        if path.suffix == ".py" and path.stem.isidentifier() and not path.stem.startswith("__"):
            yield f"{prefix}{path.stem}"
        elif (path / "__init__.py").is_file():
            yield f"{prefix}{path.name}"
