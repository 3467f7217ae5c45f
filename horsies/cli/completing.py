"""What the shell offers when a person presses TAB, in addition to the names of commands and options. Completion imports
no user code and queries no database; it only reads the names of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path


def modules(incomplete: str) -> list[str]:
    """The modules and packages below the current directory whose names begin with `incomplete`."""
    try:
        return sorted(name for name in _names(incomplete) if name.startswith(incomplete))
    except OSError:  # a directory that cannot be read has nothing to offer
        return []


def members(kind: Iterable[StrEnum]) -> Callable[[str], list[str]]:
    """The values of an enumeration, also after a comma, in the case in which the person types."""

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
