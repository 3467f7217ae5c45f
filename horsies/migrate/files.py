"""The files of a conversion: which ones are meant, their modules, and writing them. Nothing is imported."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from horsies.core.errors import ErrorCode, HorsiesError
from horsies.migrate.conversion import Changed, Given

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}
_GIT_S = 30


def find(words: Iterable[str], root: Path) -> list[Given]:
    """The Python files that modules (`shop.tasks`), files and directories name, each once, in order."""
    found: dict[Path, None] = {}
    for word in words:
        for path in _named(word, root):
            found.setdefault(path.resolve())
    return [_given(path, root) for path in found]


def _named(word: str, root: Path) -> Iterator[Path]:
    path = root / word
    if not path.exists() and all(part.isidentifier() for part in word.split(".")):
        path = root.joinpath(*word.split("."))
        path = path if path.is_dir() else path.with_suffix(".py")
    if path.is_dir():
        yield from _below(path)
    elif path.is_file():
        yield path
    else:
        raise _error(f"there is no module, file or directory {word!r}", f"modules are looked for below {root}")


def _below(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(
            one for one in directories if one not in _SKIPPED and not _is_foreign(Path(parent, one))
        )
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(".py"))


def _is_foreign(directory: Path) -> bool:
    """A hidden directory or a virtual environment."""
    return directory.name.startswith(".") or (directory / "pyvenv.cfg").exists()


def _given(path: Path, root: Path) -> Given:
    """The file with the module that it is: its name below the first directory that is no package."""
    is_package = path.name == "__init__.py"
    parts = [] if is_package else [path.stem]
    directory = path.parent
    while (directory / "__init__.py").exists():
        parts.insert(0, directory.name)
        directory = directory.parent
    if directory.is_relative_to(root) and not is_package and len(parts) == 1:
        parts = [*directory.relative_to(root).parts, *parts]  # packages without __init__.py
    try:
        content = path.read_bytes()
    except OSError as problem:
        raise _error(f"{path} cannot be read: {problem.strerror}") from None
    return Given(_shown(path, root), ".".join(parts) or path.parent.name, content, is_package)


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def refuse_outside(changed: Iterable[Changed]) -> None:
    """A patch names files below the directory where it is applied."""
    for one in changed:
        if os.path.isabs(one.path):
            raise _error(f"{one.path} is not below this directory", "go to the top of the project, or use --write")


def refuse_uncommitted(changed: Iterable[Changed], root: Path) -> None:
    """What git does not have could not be had back: changes that are not committed, and files that it does not know or
    ignores. Git is asked in the directory of each file, which may belong to another repository. Without git, and
    outside of every work tree, there is nothing to ask."""
    git = shutil.which("git")
    if git is None:
        return
    by_directory: dict[Path, dict[str, str]] = {}
    for one in changed:
        path = (root / one.path).resolve()
        by_directory.setdefault(path.parent, {})[path.name] = one.path
    lost = [files[name] for where, files in by_directory.items() for name in _uncommitted(git, where, list(files))]
    if lost:
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise _error(f"{lost[0]}{more} is not committed, so the change could not be undone", "commit first, or --force")


def _uncommitted(git: str, directory: Path, names: list[str]) -> list[str]:
    """The files of a directory that git does not have as they are."""
    options = ["--porcelain", "-z", "--no-renames", "--untracked-files=all", "--ignored"]
    command = [git, "-C", str(directory), "--literal-pathspecs", "status", *options, "--", *names]
    try:
        said = subprocess.run(command, capture_output=True, timeout=_GIT_S, check=False)
        problem = said.stderr.decode(errors="replace").strip() if said.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem is None:
        dirty = {os.fsdecode(entry[3:].rpartition(b"/")[2]) for entry in said.stdout.split(b"\0")}
        return [name for name in names if name in dirty]
    if any((above / ".git").exists() for above in (directory, *directory.parents)):
        raise _error(
            f"git cannot say whether the files in {directory} are committed: {problem}", "repair it, or --force"
        )
    return []


def write(changed: Iterable[Changed], root: Path) -> None:
    """Replace the files, each whole: a reader sees the old one or the new one."""
    for one in changed:
        path = (root / one.path).resolve()
        try:
            _replace(path, one)
        except OSError as problem:
            raise _error(f"{one.path} cannot be written: {problem.strerror}", "files before it are written") from None


def _replace(path: Path, one: Changed) -> None:
    if path.read_bytes() != one.before:
        raise _error(f"{one.path} was changed while it was converted", "run the command again")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(one.after)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _error(message: str, hint: str | None = None) -> HorsiesError:
    return HorsiesError(message, code=ErrorCode.CLI_INVALID_ARGS, help_text=hint)
