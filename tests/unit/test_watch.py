"""Which files a reload is about (X-30)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from horsies.cli import dev, reloading
from horsies.core.errors import HorsiesError
from horsies.dev import tree, watch
from tests.support import eventually_sync


def changes_of(watcher: watch.Watcher, wanted: set[Path]) -> set[Path]:
    """What it has seen when it has seen this."""
    seen: set[Path] = set()

    def look() -> bool:
        seen.update(watcher.changed(0.1))
        return wanted <= seen

    eventually_sync(look, 20, what=f"{wanted} in {seen}")
    return seen


def started(directory: Path, *patterns: str) -> watch.Watcher:
    """One that sees what happens from now on."""
    watcher = watch.Watcher([directory], [*watch.SOURCES, *patterns])
    watcher.start()

    def sees() -> bool:
        (directory / "first.py").write_text("")
        return bool(watcher.changed(0.5))

    eventually_sync(sees, 20)
    return watcher


def test_x30_files_that_a_person_writes_are_seen_and_what_is_foreign_is_not(tmp_path: Path) -> None:
    for name in ("shop", ".venv", "env/lib", "node_modules", ".horsies/postgres", "db", "pg", "deep/er"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("env/pyvenv.cfg", "db/PG_VERSION", "pg/keeper.lock"):
        (tmp_path / name).touch()
    watcher = started(tmp_path, "*.toml")
    foreign = (
        "shop/notes.txt", "shop/.#tasks.py", ".venv/a.py", "env/lib/b.py", "node_modules/c.py",
        ".horsies/postgres/d.py", "db/e.py", "pg/f.py",
    )  # fmt: skip
    own = ("shop/tasks.py", "deep/er/g.py", "settings.toml", "last.py")
    for name in (*foreign, *own):
        (tmp_path / name).touch()
    wanted = {tmp_path / name for name in own}
    assert changes_of(watcher, wanted) - {tmp_path / "first.py"} == wanted


def test_x30_a_file_that_is_replaced_or_gone_and_what_comes_with_a_directory_is_a_change(tmp_path: Path) -> None:
    file, gone = tmp_path / "tasks.py", tmp_path / "gone.py"
    file.touch()
    gone.touch()
    watcher = started(tmp_path)
    (tmp_path / "new").write_text("2")
    (tmp_path / "new").replace(file)
    changes_of(watcher, {file})
    gone.unlink()
    changes_of(watcher, {gone})
    (tmp_path / "more/deep").mkdir(parents=True)
    (tmp_path / "more/deep/tasks.py").touch()
    changes_of(watcher, {tmp_path / "more/deep/tasks.py"})


def test_x30_a_project_inside_a_hidden_directory_is_watched(tmp_path: Path) -> None:
    root = tmp_path / ".config" / "shop"
    root.mkdir(parents=True)
    watcher = started(root)
    (root / "app.py").touch()
    changes_of(watcher, {root / "app.py"})


def test_x30_what_was_compiled_from_an_older_save_of_the_same_second_is_forgotten(tmp_path: Path) -> None:
    source = tmp_path / "quick.py"
    cached = tmp_path / "__pycache__" / f"quick.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir()
    cached.touch()
    watch.forget_compiled([source, tmp_path / "settings.toml"])
    assert not cached.exists()


def test_x30_a_watch_that_fails_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*directories: Path, **options: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watch, "watch", refused)
    watcher = watch.Watcher([tmp_path])
    watcher.start()
    with pytest.raises(OSError, match="limit reached"):
        eventually_sync(lambda: watcher.changed(0.1), 20)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[watch.Watcher]:
    """The watchers of the commands, which are run in an empty directory with others beside it, and end at once."""
    made: list[watch.Watcher] = []

    class Kept(watch.Watcher):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(watch, "Watcher", Kept)
    monkeypatch.setattr(tree.Tree, "run", lambda self: 0)
    for name in ("here", "there", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return made


def test_x30_directories_and_patterns_that_are_named_are_watched_too(
    tmp_path: Path, watched: list[watch.Watcher]
) -> None:
    there = tmp_path / "there"
    words = ["worker", "shop:app", "--reload"]
    assert reloading.run(words, directories=[there], patterns=["*.html"], overlap=True) == 0
    assert watched[0]._roots == (tmp_path / "here", there) and watched[0]._patterns == ("*.py", "*.html")
    with pytest.raises(HorsiesError, match="is not a directory"):
        reloading.run(words, directories=[tmp_path / "absent"], patterns=[], overlap=True)


def test_x31_directories_of_the_table_and_of_the_command_are_watched(
    tmp_path: Path, watched: list[watch.Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@localhost:1/none")
    Path("pyproject.toml").write_text('[tool.horsies]\napp = "shop:app"\nreload-dirs = ["../there"]\n')
    assert dev.dev(None, no_web=True, reload_dir=[tmp_path / "elsewhere"]) == 0
    assert set(watched[0]._roots) == {tmp_path / name for name in ("here", "there", "elsewhere")}
