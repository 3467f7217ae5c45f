"""Which files of a project have changed (X-30)."""

import importlib.util
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from queue import Empty, SimpleQueue

from watchfiles import Change, watch

SOURCES = ("*.py",)
DEBOUNCE_MS, QUIET_MS = 500, 100  # many saves in a row are one change
FOREIGN_NAMES = frozenset({"__pycache__", "node_modules", "site-packages"})
# A virtual environment, the data of a PostgreSQL server, the directory of an embedded one.
FOREIGN_MARKS = ("pyvenv.cfg", "PG_VERSION", "keeper.lock")


class Watcher:
    """The files below some directories that change after its start. A thread of its own reads the events."""

    def __init__(self, roots: Iterable[Path], patterns: Iterable[str] = SOURCES) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        self._patterns = tuple(patterns)
        self._news: SimpleQueue[set[Path] | Exception] = SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._follow, daemon=True).start()

    def changed(self, seconds: float) -> list[Path]:
        """The files that have changed since the last call; it waits this long for one."""
        try:
            news = self._news.get(timeout=seconds)
        except Empty:
            return []
        if isinstance(news, Exception):
            raise news
        files = sorted(self._files(news))
        forget_compiled(files)
        return files

    def _follow(self) -> None:
        try:
            for changes in watch(
                *self._roots,
                watch_filter=self._matters,
                debounce=DEBOUNCE_MS,
                step=QUIET_MS,
                ignore_permission_denied=True,
            ):
                self._news.put({Path(path) for _, path in changes})
        except Exception as problem:  # the system may have no more watches to give
            self._news.put(problem)

    def _matters(self, change: Change, path: str) -> bool:
        """Of a new directory, what was in it before it was watched matters too."""
        file = Path(path)
        is_new_folder = change is Change.added and file.is_dir() and not is_foreign(file)
        return (is_new_folder or matches(file.name, self._patterns)) and self._is_own(file)

    def _is_own(self, path: Path) -> bool:
        root = next((root for root in self._roots if path.is_relative_to(root)), None)
        if root is None:
            return False
        folders = path.relative_to(root).parts[:-1]
        return not any(is_foreign(root.joinpath(*folders[: deep + 1])) for deep in range(len(folders)))

    def _files(self, paths: set[Path]) -> set[Path]:
        below = {file for path in paths if path.is_dir() for file in path.rglob("*")}
        return {path for path in paths | below if matches(path.name, self._patterns) and self._is_own(path)}


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a file matters. Names with a dot in front are locks and copies of editors."""
    return not name.startswith(".") and any(fnmatch(name, pattern) for pattern in patterns)


def is_foreign(folder: Path) -> bool:
    """Whether a directory contains nothing that a person of this project writes."""
    is_named_so = folder.name.startswith(".") or folder.name in FOREIGN_NAMES
    return is_named_so or any((folder / mark).exists() for mark in FOREIGN_MARKS)


def forget_compiled(files: Iterable[Path]) -> None:
    """Python recognizes a compiled file by the second and the size of its source. Two saves within a second would
    otherwise run the code of the first one."""
    for file in files:
        if file.suffix == ".py":
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(str(file))).unlink()
