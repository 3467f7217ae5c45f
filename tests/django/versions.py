"""`make test-django`: the tests of `tests/django` with each Python that is here, with the oldest and the newest Django
that it can have, each pair in an environment of its own below `.venv-django/`; and with the newest Django its own tests
of `django.tasks` on our backend (`conformance.py`). A table in the end. It asks the package index.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-django"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
OLDEST, NEWEST = "django~=5.2.0", "django>=6.1,<6.2"
NEWEST_NEEDS = (3, 12)
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


def pythons() -> list[tuple[str, tuple[int, int]]]:
    """Those on the path, and those of pyenv; the one that runs this first."""
    found = {sys.version_info[:2]: sys.executable}
    for series in PYTHONS:
        version = (int(series[0]), int(series[2:]))
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{series}.*/bin/python{series}"))
        place = shutil.which(f"python{series}") if not pyenv else str(pyenv[-1])
        if place is not None and version not in found and _runs(place):
            found[version] = place
    return [(place, (version[0], version[1])) for version, place in sorted(found.items())]


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def pairs() -> list[Pair]:
    each = pythons()
    return [Pair(place, OLDEST) for place, _ in each] + [
        Pair(place, NEWEST) for place, version in each if version >= NEWEST_NEEDS
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", default="2")
    jobs = parser.parse_args().jobs
    table = []
    for pair in pairs():
        began = time.monotonic()
        try:
            version = prepare(pair)
        except subprocess.CalledProcessError as problem:
            table.append((pair.python, pair.django, f"not had: {problem}"))
            continue
        python = str(pair.bin / "python")
        tests = [python, "-m", "pytest", "-q", "-n", jobs, "--dist", "loadscope", "tests/django"]
        env = {**os.environ, "HORSIES_TEST_DJANGO": "1"}
        ended = [subprocess.run(tests, cwd=ROOT, env=env, check=False).returncode]
        if pair.django == NEWEST:
            own = [python, "-m", "tests.django.conformance", str(sources(pair, version))]
            ended.append(subprocess.run(own, cwd=ROOT, check=False).returncode)
        word = "passed" if not any(ended) else "FAILED"
        table.append((pair.python, version, f"{word} in {time.monotonic() - began:.0f} s"))
    for row in table:
        print("  ".join(row))
    return 0 if table and all(row[2].startswith("passed") for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
