"""What a worker tells the program that reloads it: where its code is, and that it is ready (X-30). It writes to a pipe
whose number is in the environment. A worker that nobody reloads has no such pipe, and says nothing."""

import json
import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from sysconfig import get_paths
from typing import TYPE_CHECKING

from horsies.core import discovery

if TYPE_CHECKING:
    from horsies.core.app import Horsies

VARIABLE = "HORSIES_RELOAD_FD"
OURS = Path(__file__).resolve().parents[1]


class Reports:
    """The worker's end of the pipe."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> "Reports":
        """Take the number out of the environment, so that no process of a task believes that it is meant."""
        given = environment.pop(VARIABLE, "")
        if not given.isdigit():
            return cls(None)
        with suppress(OSError):
            os.set_inheritable(int(given), False)
            return cls(int(given))
        return cls(None)

    @property
    def is_wanted(self) -> bool:
        return self._fd is not None

    def loaded(self, app: "Horsies") -> None:
        if self.is_wanted:
            self._write({"roots": sorted(map(str, roots_of(app)))})

    def ready(self) -> None:
        """The last thing that it says."""
        self._write({"ready": True})
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, report: dict[str, object]) -> None:
        if self._fd is not None:
            with suppress(OSError):  # nobody reads it any more
                os.write(self._fd, json.dumps(report).encode() + b"\n")


def roots_of(app: "Horsies") -> set[Path]:
    """Where the code of the app is: the modules that are imported by now, and those that it will discover. What was
    installed is not the app's."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    found = {root_of(Path(file)) for file in files if isinstance(file, str)}
    found |= {place for entry in app.get_discovered_task_modules() if (place := discovery.location_of(entry))}
    return {root for root in found if is_own(root)}


def root_of(file: Path) -> Path:
    """The outermost package that a file is in, or the file itself."""
    file = file.resolve()
    root = file
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    return root


def is_own(root: Path) -> bool:
    """Whether this is neither Python's, nor ours, nor installed."""
    foreign = {Path(get_paths()[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {OURS}
    is_foreign = any(root.is_relative_to(place) for place in foreign)
    return not is_foreign and not {"site-packages", "dist-packages"}.intersection(root.parts)
