"""Which files a reload is about (X-30)."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from horsies import AppConfig, Horsies
from horsies.cli import dev, reloading
from horsies.dev import generations, reports, watch


def test_x30_the_files_that_matter_are_found_and_what_is_foreign_is_not_even_watched(tmp_path: Path) -> None:
    for name in (
        "shop/tasks.py", "shop/notes.txt", "shop/.#tasks.py", "shop/__pycache__/tasks.py", ".venv/a.py",
        "env/pyvenv.cfg", "env/lib/b.py", "node_modules/c.py", ".horsies/postgres/d.py", "db/PG_VERSION", "db/e.py",
        "pg/keeper.lock", "pg/f.py", "deep/er/g.py",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    seen = watch.look([tmp_path])
    assert {str(file.relative_to(tmp_path)) for file in seen.files} == {"shop/tasks.py", "deep/er/g.py"}
    names = {str(folder.relative_to(tmp_path)) for folder in seen.directories}
    assert names == {".", "shop", "deep", "deep/er"}
    more = watch.look([tmp_path], ["*.py", "*.txt"])
    assert {file.name for file in more.files} == {"tasks.py", "notes.txt", "g.py"}


def test_x30_a_project_inside_a_hidden_directory_is_watched(tmp_path: Path) -> None:
    root = tmp_path / ".config" / "shop"
    root.mkdir(parents=True)
    (root / "app.py").touch()
    assert [*watch.look([root]).files] == [root / "app.py"]


def test_x30_a_file_that_is_new_gone_or_different_is_a_change(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept.py", tmp_path / "gone.py"
    kept.write_text("1")
    gone.write_text("1")
    before = watch.look([tmp_path]).files
    assert watch.difference(before, watch.look([tmp_path]).files) == []
    gone.unlink()
    (tmp_path / "new.py").touch()
    os.utime(kept, ns=(0, 0))
    assert watch.difference(before, watch.look([tmp_path]).files) == [gone, kept, tmp_path / "new.py"]


def test_x30_a_single_file_stands_for_itself(tmp_path: Path) -> None:
    (tmp_path / "util.py").touch()
    (tmp_path / "other.py").touch()
    seen = watch.look([tmp_path / "util.py"])
    assert [*seen.files] == [tmp_path / "util.py"] and seen.directories == {tmp_path}


def test_x30_what_was_compiled_from_an_older_save_of_the_same_second_is_forgotten(tmp_path: Path) -> None:
    source = tmp_path / "quick.py"
    cached = tmp_path / "__pycache__" / f"quick.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir()
    cached.touch()
    watch.forget_compiled([source, tmp_path / "settings.toml"])
    assert not cached.exists()


def test_x30_the_roots_of_an_app_are_its_packages_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here/shop.py", "there/shared/__init__.py", "there/shared/sub/__init__.py", "there/plain.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.syspath_prepend(tmp_path / "there")
    here = tmp_path / "here"
    assert watch.roots_of("shop:app", here) == [here]
    assert watch.roots_of("shared.sub.tasks:app", here) == [here, tmp_path / "there/shared"]
    assert watch.roots_of(f"{tmp_path}/there/plain.py", here) == [here, tmp_path / "there/plain.py"]
    assert watch.roots_of("json.decoder", here) == [here] == watch.roots_of("horsies.demo.shop", here)

    app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none"))
    app.discover_tasks(["shared.sub.tasks", str(tmp_path / "here/shop.py"), "json.tool"])
    found = reports.roots_of(app)
    assert {tmp_path / "there/shared", tmp_path / "here/shop.py"} <= found
    own = Path(reports.__file__).parents[1]
    assert not any("site-packages" in root.parts or root.is_relative_to(own) or root.name == "json" for root in found)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[watch.Watcher]:
    """The watchers of the commands, which are run in an empty directory with others beside it, and end at once."""
    made: list[watch.Watcher] = []

    class Kept(watch.Watcher):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    async def ends_at_once(work: Any, stop: Any) -> int:
        return 0

    monkeypatch.setattr(watch, "Watcher", Kept)
    monkeypatch.setattr(reloading, "until_told", ends_at_once)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("here", "there", "elsewhere"):
        (tmp_path / name).mkdir()
    for name in ("there/tasks.py", "there/page.html", "there/notes.txt", "elsewhere/prices.py"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "here")
    return made


def test_x30_directories_and_patterns_that_are_named_are_watched_too(
    tmp_path: Path, watched: list[watch.Watcher]
) -> None:
    there = tmp_path / "there"
    words = ["worker", "shop:app", "--reload"]
    assert reloading.run(words, "shop:app", directories=[there], patterns=["*.html"], overlap=True) == 0
    assert {*watched[0]._last.files} == {there / "tasks.py", there / "page.html"}


def test_x31_directories_of_the_table_and_of_the_command_are_watched(
    tmp_path: Path, watched: list[watch.Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@localhost:1/none")
    Path("pyproject.toml").write_text('[tool.horsies]\napp = "shop:app"\nreload-dirs = ["../there"]\n')
    assert dev.dev(None, no_web=True, reload_dir=[tmp_path / "elsewhere"]) == 0
    assert {*watched[0]._last.files} == {tmp_path / "there/tasks.py", tmp_path / "elsewhere/prices.py"}


def test_x30_a_worker_that_nobody_reloads_reports_nothing() -> None:
    for environment in ({}, {reports.VARIABLE: "no number"}, {reports.VARIABLE: "9999"}):
        said = reports.Reports.of(environment)
        assert not said.is_wanted and environment == {}
        said.ready()


def test_x30_a_worker_says_where_its_code_is_and_leaves_no_trace_in_the_environment() -> None:
    reading, writing = os.pipe()
    environment = {reports.VARIABLE: str(writing), "OTHER": "1"}
    said = reports.Reports.of(environment)
    assert environment == {"OTHER": "1"} and not os.get_inheritable(writing)
    said.ready()
    with os.fdopen(reading) as pipe:
        assert pipe.read() == '{"ready": true}\n', "and it is closed"


@pytest.mark.parametrize(("most", "is_said"), [(3, False), (2, True)])
async def test_x30_it_is_said_that_there_are_too_many_directories_to_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_said: bool
) -> None:
    for module in (watch, generations):
        monkeypatch.setattr(module, "MOST_DIRECTORIES", most)
    (tmp_path / "shop/tasks").mkdir(parents=True)
    for name in ("app.py", "shop/prices.py", "shop/tasks/mail.py"):
        (tmp_path / name).touch()
    watcher = watch.Watcher([tmp_path])
    said: list[str] = []
    worker = generations.Generations([sys.executable, "-c", ""], watcher, say=said.append, environment=os.environ)
    worker.stop()
    await worker.run()
    note = f"there are more than {most} directories: changes are seen in the first of them only"
    assert said == ([note] if is_said else [])
    assert len(watch.look([tmp_path]).files) == most


async def first_change(watcher: watch.Watcher) -> list[Path]:
    async with asyncio.timeout(20):
        async for changed in watcher.changes():
            return changed
    raise AssertionError("it never ends by itself")


async def test_x30_a_file_that_is_saved_again_and_again_is_one_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 1.0)  # a busy machine must not seem to be a quiet one
    monkeypatch.setattr(watch, "LONGEST_S", 60.0)
    file = tmp_path / "tasks.py"
    file.write_text("")
    watcher = watch.Watcher([tmp_path])
    found = asyncio.create_task(first_change(watcher))
    for number in range(12):
        await asyncio.sleep(0.1)
        file.write_text(f"{number}")
        assert not found.done(), "it is not quiet yet"
    assert await found == [file]
    assert watch.difference(watcher._last.files, watch.look([tmp_path]).files) == []


async def test_x30_a_file_that_is_written_all_the_time_is_a_change_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "QUIET_S", 0.5)
    monkeypatch.setattr(watch, "LONGEST_S", 1.0)
    file = tmp_path / "tasks.py"
    file.write_text("")
    found = asyncio.create_task(first_change(watch.Watcher([tmp_path])))
    while not found.done():
        await asyncio.sleep(0.05)
        file.write_text(f"{file.read_text()}x")
    assert await found == [file]


async def test_x30_changes_are_seen_where_the_system_gives_no_more_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*directories: Path, **options: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watch, "awatch", refused)
    monkeypatch.setattr(watch, "LOOK_MS", 50)
    watcher = watch.Watcher([tmp_path])
    (tmp_path / "new.py").touch()
    assert await first_change(watcher) == [tmp_path / "new.py"]
