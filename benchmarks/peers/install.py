"""Makes the environment of `make bench-peers`: ours from this tree and the peers from the package index, all pinned.

    python benchmarks/peers/install.py DIRECTORY

All of them run on the same Python, the one that runs this. A peer that cannot be installed, because it needs another
one or for another reason, is left out, and this is said. Only the standard library is used here, for there is nothing
else yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONSTRAINTS = (ROOT / "constraints.txt", ROOT / "benchmarks" / "peers" / "constraints.txt")
OURS = "horsies-pg"
PEERS = {
    "pgqueuer": ("pgqueuer", "asyncpg"),
    "procrastinate": ("procrastinate",),
    "oban": ("oban",),
    "celery": ("celery[redis]", "hiredis"),
}


def main(directory: Path) -> int:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(directory)], check=True)
    python = str(directory / "bin" / "python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    subprocess.run(from_index(python, shared_requirements(project)), check=True)
    subprocess.run(from_tree(python), check=True)
    for peer, names in PEERS.items():
        print(f"installing {peer}", flush=True)
        if subprocess.run(from_index(python, names), check=False).returncode:
            print(f"{peer} cannot be installed here; it will be left out", flush=True)
    check_ours(python)
    (directory / ".installed").touch()
    return 0


def shared_requirements(project: dict[str, Any]) -> list[str]:
    """What our package needs, with its server and the chart, and what builds it: everything but our package."""
    needed = [*project["project"]["dependencies"], *of_extras(project, "embedded", "bench")]
    return [*needed, *project["build-system"]["requires"], "editables", "uvloop"]


def of_extras(project: dict[str, Any], *extras: str) -> list[str]:
    """What these extras or groups of ours need. They name extras as `horsies-pg[binary]`."""
    known = {**project["project"]["optional-dependencies"], **project.get("dependency-groups", {})}
    found: list[str] = []
    for extra in extras:
        for one in known[extra]:
            inner = re.fullmatch(r"[^\[]*\[(.*)\]", one)[1] if name_of(one) == OURS else ""  # type: ignore[index]
            found += of_extras(project, *inner.split(",")) if inner else [one]
    return found


def from_index(python: str, requirements: Sequence[str]) -> list[str]:
    """The command that installs from the package index. Our own name is never looked up there."""
    ours = [one for one in requirements if name_of(one) in (OURS, "horsies")]
    if ours:
        raise ValueError(f"{ours} comes from this tree, not from an index")
    limits = [part for file in CONSTRAINTS for part in ("--constraint", str(file))]
    return [*pip(python), *limits, *requirements]


def from_tree(python: str) -> list[str]:
    """The command that installs our package: from this directory, without asking any index for anything."""
    return [*pip(python), "--no-index", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]


def pip(python: str) -> list[str]:
    """Not quiet: that would hide why something cannot be installed."""
    return [python, "-m", "pip", "install", "--disable-pip-version-check"]


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def check_ours(python: str) -> None:
    """What is measured as ours has to be this tree."""
    command = [python, "-I", "-c", "import horsies; print(horsies.__file__)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).resolve().is_relative_to(ROOT):
        raise SystemExit(f"the package in this environment is not that of this tree but {found}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
