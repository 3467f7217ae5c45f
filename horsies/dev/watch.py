"""Which files belong to an app, and which of them have changed (X-30).

What changed is found by comparing the files with what they were before, so it does not matter how an editor saves: with
a temporary file, a rename, or twice. Events of the file system only say when to look, and every two seconds we look
anyway, because events get lost (a directory that is replaced, a mounted folder). Only directories that may contain the
app's code are watched: the embedded server alone would raise an event for each of its writes.
"""

import asyncio
import importlib.util
import os
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TypeAlias

from watchfiles import Change, awatch

from horsies.core.discovery import location_of
from horsies.dev.reports import is_own

SOURCES = ("*.py",)
QUIET_S = 0.2  # an editor that formats what it has just saved is done by then
LONGEST_S = 3.0  # a file that is written all the time
STEP_MS = 50
LOOK_MS = 2_000
MOST_DIRECTORIES = 5_000
FOREIGN_NAMES = frozenset({"__pycache__", "node_modules", "site-packages"})
# A virtual environment, the data of a PostgreSQL server, the directory of an embedded one.
FOREIGN_MARKS = frozenset({"pyvenv.cfg", "PG_VERSION", "keeper.lock"})

Stamp: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True)
class FilesSeen:
    """The directories to watch, and the state of each file that matters."""

    directories: frozenset[Path] = frozenset()
    files: dict[Path, Stamp] = field(default_factory=dict)
    is_cut: bool = False


class Watcher:
    """Knows the files of an app, and yields those that have changed."""

    def __init__(self, roots: Iterable[Path], patterns: Iterable[str] = SOURCES) -> None:
        self._roots = frozenset(roots)
        self._patterns = tuple(patterns)
        self._last = look(self._roots, self._patterns)

    @property
    def is_cut(self) -> bool:
        """Whether there are more directories than are watched."""
        return self._last.is_cut

    def add(self, roots: Iterable[Path]) -> None:
        """Watch these too. What they contain now is no change."""
        new = frozenset(roots) - self._roots
        if new:
            self._roots |= new
            files = look(new, self._patterns).files | self._last.files
            self._last = FilesSeen(self._last.directories, files, self._last.is_cut)

    async def changes(self) -> AsyncIterator[list[Path]]:
        """What has changed, each time that something has."""
        while True:
            directories = look(self._roots, self._patterns).directories
            if not directories:
                await asyncio.sleep(LOOK_MS / 1000)  # the only one is gone, perhaps for a moment
                continue
            try:
                async for changed in self._until_directories_change(directories):
                    yield changed
            except FileNotFoundError:  # a directory that has just gone
                continue
            except OSError:  # the system has no more watches to give: look without being told
                await asyncio.sleep(LOOK_MS / 1000)
                if changed := (await self._look())[0]:
                    yield changed

    async def _until_directories_change(self, directories: frozenset[Path]) -> AsyncIterator[list[Path]]:
        events = awatch(
            *directories,
            watch_filter=self._is_worth_a_look,
            step=STEP_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            ignore_permission_denied=True,
        )
        async for _ in events:
            changed, now = await self._look()
            if changed:
                yield changed
            if now != directories:
                return

    async def _look(self) -> tuple[list[Path], frozenset[Path]]:
        """What has changed, when it has been quiet for a moment, and the directories that there are."""
        until = time.monotonic() + LONGEST_S
        now = await self._see()
        is_quiet = now.files == self._last.files
        while not is_quiet and time.monotonic() < until:
            await asyncio.sleep(QUIET_S)
            before, now = now, await self._see()
            is_quiet = now.files == before.files
        changed = difference(self._last.files, now.files)
        forget_compiled(changed)
        self._last = now
        return changed, now.directories

    async def _see(self) -> FilesSeen:
        while True:
            roots = self._roots
            seen = await asyncio.to_thread(look, roots, self._patterns)
            if roots == self._roots:  # otherwise what was added meanwhile would seem to be gone
                return seen

    def _is_worth_a_look(self, change: Change, path: str) -> bool:
        return change is not Change.modified or matches(os.path.basename(path), self._patterns)


def look(roots: Iterable[Path], patterns: Iterable[str] = SOURCES) -> FilesSeen:
    """What is below these directories. A root that is a file stands for itself."""
    wanted = tuple(patterns)
    directories: set[Path] = set()
    files: dict[Path, Stamp] = {}
    for root in sorted(roots):
        if root.is_file():
            directories.add(root.parent)
            _note(root, root, files)
            continue
        for directory, entries in _walk(root):
            if len(directories) >= MOST_DIRECTORIES:
                return FilesSeen(frozenset(directories), files, is_cut=True)
            directories.add(directory)
            for entry in entries:
                if matches(entry.name, wanted):
                    _note(Path(entry.path), entry, files)
    return FilesSeen(frozenset(directories), files)


def difference(before: dict[Path, Stamp], after: dict[Path, Stamp]) -> list[Path]:
    """The files that are new, gone or different."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a file matters. Names with a dot in front are locks and copies of editors."""
    return not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns)


def is_foreign(name: str, content: Iterable[str]) -> bool:
    """Whether a directory contains nothing that a person of this project writes."""
    return name.startswith(".") or name in FOREIGN_NAMES or not FOREIGN_MARKS.isdisjoint(content)


def roots_of(module: str, here: Path) -> list[Path]:
    """Where the code of an app is, by its locator, without importing it: the current directory, and the package or the
    file itself if it is elsewhere."""
    found = location_of(module.partition(":")[0])
    is_elsewhere = found is not None and not found.is_relative_to(here) and is_own(found)
    return [here, *([found] if found is not None and is_elsewhere else ())]


def forget_compiled(files: Iterable[Path]) -> None:
    """Python recognises a compiled file by the second and the size of its source. Who saves twice within a second would
    get the code of the first time."""
    for file in files:
        if file.suffix == ".py":
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(file))).unlink()


def _walk(root: Path) -> Iterator[tuple[Path, list[os.DirEntry[str]]]]:
    """The directories below a root that are not foreign. The root itself may be called as it likes."""
    left = [root]
    while left:
        directory = left.pop()
        try:
            with os.scandir(directory) as scanned:
                entries = list(scanned)
        except OSError:  # it is gone, or nobody may read it
            continue
        if directory != root and is_foreign(directory.name, (entry.name for entry in entries)):
            continue
        files: list[os.DirEntry[str]] = []
        for entry in entries:
            if _is_folder(entry):
                left.append(Path(entry.path))
            else:
                files.append(entry)
        yield directory, files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)  # a link could lead in circles
    except OSError:
        return False


def _note(file: Path, found: Path | os.DirEntry[str], files: dict[Path, Stamp]) -> None:
    with suppress(OSError):
        facts = found.stat()
        files[file] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
