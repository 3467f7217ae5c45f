"""Environments with each Python that is found, and with the oldest and the newest Django that it can have, each pair
in its own below `.venv-django/`; and Django's own tests of `django.tasks`, which `conformance.py` runs on our backend.
They need the package index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from tests.pythons import pythons

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-django"
OLDEST, NEWEST = "django~=5.2.0", "django>=6.1,<6.2"
NOT_NEWEST = ("3.11",)
NEEDED = (
    "asgiref", "django-tasks", "httpx", "hypothesis", "packaging", "pytest", "pytest-asyncio", "pytest-timeout",
    "pytest-xdist",
)  # fmt: skip


@dataclass(frozen=True)
class Pair:
    """A Python and what is asked of Django."""

    python: str
    django: str

    @property
    def bin(self) -> Path:
        name = f"{os.path.basename(self.python)}-{re.sub('[^0-9.]', '', self.django.partition(',')[0])}"
        return HOME / name / "bin"


def pairs() -> list[Pair]:
    each = pythons()
    return [Pair(place, OLDEST) for place in each.values()] + [
        Pair(place, NEWEST) for series, place in each.items() if series not in NOT_NEWEST
    ]


def prepare(pair: Pair) -> str:
    """Make its environment, unless it is there; the version of Django in it."""
    if not (pair.bin / ".installed").exists():
        shutil.rmtree(pair.bin.parent, ignore_errors=True)
        subprocess.run([pair.python, "-m", "venv", str(pair.bin.parent)], check=True)
        pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not _is_django(line)]
        (pair.bin.parent / "constraints.txt").write_text("\n".join(pins))
        pip = [str(pair.bin / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        limits = ["-c", str(pair.bin.parent / "constraints.txt")]
        subprocess.run([*pip, *limits, "-e", f"{ROOT}[dev]", pair.django, *NEEDED], check=True)
        (pair.bin / ".installed").touch()
    asked = [str(pair.bin / "python"), "-c", "import django; print(django.__version__)"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def _is_django(pin: str) -> bool:
    """Also `Django==6.1 ; python_version >= "3.12"`: names of packages have no case."""
    return re.match(r"django\b(?!-)", pin, re.IGNORECASE) is not None


def sources(pair: Pair, version: str) -> Path:
    """Django's own tests of its tasks framework, out of its source distribution."""
    folder = HOME / f"django-{version}"
    if not folder.is_dir():
        command = [str(pair.bin / "python"), "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "django"]
        subprocess.run([*command, "-d", str(HOME), f"django=={version}"], check=True)
        with tarfile.open(next(HOME.glob(f"[dD]jango-{version}.tar.gz"))) as archive:
            filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.2 has none
            archive.extractall(HOME, **filters)
    return folder / "tests" / "tasks"
