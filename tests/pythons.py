"""The Pythons of this machine, for tests that run with each of them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def pythons() -> dict[str, str]:
    """The series that are found on the path or of pyenv, oldest first, each with its interpreter."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for series in SUPPORTED:
        pyenv = sorted(home.glob(f"versions/{series}.*/bin/python{series}"))
        place = str(pyenv[-1]) if pyenv else shutil.which(f"python{series}")
        if place is not None:
            found.setdefault(series, place)
    return {series: found[series] for series in SUPPORTED if series in found}
