"""The patch is taken by `git apply` and by `patch -p1`, whatever a file looks like, and everything that has nothing to
do with Celery stays byte for byte."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path

import pytest

from horsies.core.errors import HorsiesError
from horsies.migrate import celery, conversion, procrastinate
from horsies.migrate.conversion import Changed, Given, convert
from horsies.migrate.files import refuse_uncommitted
from horsies.migrate.findings import Library
from horsies.migrate.patch import patch
from horsies.migrate.source import read
from tests.e2e.cli_support import run
from tests.each import each
from tests.migrate.support import ROOT, converted

TASKS = """# caf\u00e9 \u2014 left as it is
from shop.app import app
from celery import shared_task


@shared_task(name="add",
             max_retries=3)   # two blanks too many
def add(a,b):
\treturn a+b     # tab and no blanks


x = 'caf\u00e9', add.delay(1, 2)
"""
LEFT = "from shop.app import app\n\napp.send_task('x')\n"
APP = 'from celery import Celery\napp = Celery("x")\n'
SHAPES: dict[str, bytes] = {
    "plain.py": TASKS.encode(),
    "crlf.py": TASKS.replace("\n", "\r\n").encode(),
    "mixed.py": TASKS.replace("\n", "\r\n", 3).encode(),
    "no_newline.py": TASKS.encode().rstrip(b"\n"),
    "crlf_no_newline.py": TASKS.replace("\n", "\r\n").encode().rstrip(b"\r\n"),
    "bom.py": b"\xef\xbb\xbf" + TASKS.encode(),
    "latin.py": ("# -*- coding: latin-1 -*-\n" + TASKS.replace("\u2014", "-")).encode("latin-1"),
    "form_feed.py": TASKS.replace("\n\n\n", "\n\f\n\n").encode(),
    "sub directory/with blanks.py": TASKS.encode(),
    'odd "names"/t\u00e4glich.py': TASKS.encode(),
    "deep/er/still.py": TASKS.encode(),
}


def write_project(directory: Path) -> dict[Path, bytes]:
    files = {directory / "shop" / name: content for name, content in SHAPES.items()}
    files[directory / "shop/app.py"] = APP.encode()
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return files


def git(directory: Path, *args: str, given: bytes = b"") -> bytes:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "core.autocrlf=false"]
    return subprocess.run(["git", *identity, *args], cwd=directory, input=given, capture_output=True, check=True).stdout


def test_x42_the_patch_applies_to_files_of_every_shape(tmp_path: Path) -> None:
    by_git, by_patch, written = (tmp_path / name for name in ("git", "patch", "written"))
    for directory in (by_git, by_patch, written):
        files = write_project(directory)
    given = [
        Given(path.relative_to(written).as_posix(), f"shop.m{place}" if path.name != "app.py" else "shop.app", content)
        for place, (path, content) in enumerate(files.items())
    ]
    done = convert(Library.CELERY, given)
    assert len(done.changed) == len(files)
    assert done.by_hand == []
    text = patch(done.changed)
    git(by_git, "init", "-q")
    git(by_git, "apply", "-", given=text)
    for one in done.changed:
        assert (by_git / one.path).read_bytes() == one.after, one.path
    if (program := shutil.which("patch")) is not None:
        subprocess.run([program, "-p1", "--binary", "-s"], cwd=by_patch, input=text, capture_output=True, check=True)
        for one in done.changed:
            assert (by_patch / one.path).read_bytes() == one.after, one.path
    for one in done.changed:
        if not one.path.endswith("app.py"):
            assert b"def add(a,b) -> " in one.after and b"# two blanks too many" in one.after
            assert b"\treturn a+b     # tab and no blanks" in one.after
            assert one.after.endswith(b"\n") == one.before.endswith(b"\n")
            compile(one.after, one.path, "exec")
    shapes = {Path(one.path).name: one.after for one in done.changed}
    assert shapes["crlf.py"].count(b"\n") == shapes["crlf.py"].count(b"\r\n")
    assert shapes["bom.py"].startswith(b"\xef\xbb\xbf#") and b"caf\xe9" in shapes["latin.py"]


@pytest.mark.e2e
def test_x42_the_command_prints_a_patch_or_writes_the_files(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    tasks = tmp_path / "shop/tasks.py"
    (tmp_path / "shop/app.py").write_text(APP)
    tasks.write_text(TASKS)
    tasks.chmod(0o640)
    git(tmp_path, "init", "-q")
    refused = run("migrate-from", "celery", "shop", "--write", cwd=tmp_path)
    assert refused.returncode == 1 and "not committed" in refused.stderr and tasks.read_text() == TASKS
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "all")
    printed = run("migrate-from", "celery", "shop.app", "shop/tasks.py", cwd=tmp_path)
    assert printed.returncode == 0, printed.stderr
    assert "2 files read, 2 would change, 0 things left" in printed.stderr and tasks.read_text() == TASKS
    written = run("migrate-from", "celery", "shop", "--write", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    assert written.stdout == "" and tasks.stat().st_mode & 0o777 == 0o640
    changed = git(tmp_path, "diff").decode()
    git(tmp_path, "checkout", "-q", ".")
    git(tmp_path, "apply", "-", given=printed.stdout.encode())
    assert git(tmp_path, "diff").decode() == changed != ""
    missing = run("migrate-from", "celery", "shop.nothing", cwd=tmp_path)
    assert missing.returncode == 1 and "shop.nothing" in missing.stderr


def write_project_with_an_environment(directory: Path) -> None:
    (directory / "shop/.venv").mkdir(parents=True)
    (directory / "shop/.venv/pyvenv.cfg").touch()
    (directory / "shop/.venv/lib.py").write_text(LEFT)
    (directory / "shop/app.py").write_text(APP)
    (directory / "shop/late.py").write_text(LEFT)


@pytest.mark.e2e
def test_x42_what_is_left_is_told_with_its_page_and_by_the_exit_code(tmp_path: Path) -> None:
    write_project_with_an_environment(tmp_path)
    done = run("migrate-from", "celery", "shop", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.startswith("--- a/shop/app.py")
    assert "shop/late.py:3: send_task by name" in done.stderr and "(docs/from-celery.md#sends)" in done.stderr
    told = run("migrate-from", "celery", "shop", "--json", cwd=tmp_path)
    assert told.returncode == 1
    report = json.loads(told.stdout)  # instead of the patch
    assert (report["files_read"], report["changed"], report["written"]) == (2, ["shop/app.py"], False)
    [left] = [one for one in report["findings"] if one["kind"] == "by hand"]
    assert left == {**left, "file": "shop/late.py", "line": 3, "page": "docs/from-celery.md#sends"}
    [differs] = [one for one in report["findings"] if one["kind"] == "differs"]
    assert "broker and result backend" in differs["what"]


@pytest.mark.e2e
def test_x42_a_patch_names_no_file_outside(tmp_path: Path) -> None:
    write_project_with_an_environment(tmp_path)
    (tmp_path / "other").mkdir()
    done = run("migrate-from", "celery", "../shop", cwd=tmp_path / "other")
    assert done.returncode == 1 and "is not below this directory" in done.stderr and done.stdout == ""


@pytest.mark.e2e
def test_x42_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    write_project_with_an_environment(tmp_path)
    file = tmp_path / "shop/app.py"
    os.link(file, tmp_path / "before")  # who has it open reads the old one to its end
    run("migrate-from", "celery", "shop", "--write", cwd=tmp_path)  # no work tree, so nothing is asked
    assert (tmp_path / "before").read_text() == APP != file.read_text()
    assert sorted(one.name for one in (tmp_path / "shop").iterdir()) == [".venv", "app.py", "late.py"]


def write_repository(directory: Path) -> None:
    directory.mkdir()
    (directory / ".gitignore").write_text("ignored.py\nignored_too/\n")
    (directory / "committed.py").write_text(APP)
    (directory / "edited.py").write_text(APP)
    git(directory, "init", "-q")
    git(directory, "add", "-A")
    git(directory, "commit", "-qm", "all")
    git(directory, "config", "status.showUntrackedFiles", "no")
    (directory / "edited.py").write_text(f"{APP}x = 1\n")
    (directory / "ignored_too").mkdir()
    for name in ("new.py", "committe[d].py", "ignored.py", "ignored_too/inside.py"):
        (directory / name).write_text(APP)


def changes(*paths: str) -> list[Changed]:
    return [Changed(path, b"", b"") for path in paths]


def test_x42_what_git_does_not_have_is_not_overwritten(tmp_path: Path) -> None:
    write_repository(tmp_path / "one")
    refuse_uncommitted(changes("committed.py"), tmp_path / "one")
    for name in ("edited.py", "new.py", "committe[d].py", "ignored.py", "ignored_too/inside.py"):
        with pytest.raises(HorsiesError, match=f"{re.escape(name)} is not committed"):
            refuse_uncommitted(changes("committed.py", name), tmp_path / "one")


def test_x42_a_file_of_another_repository_or_of_none_takes_no_protection_away(tmp_path: Path) -> None:
    write_repository(tmp_path / "one")
    write_repository(tmp_path / "two")
    (tmp_path / "loose.py").write_text(APP)
    others = [str(tmp_path / "two/committed.py"), str(tmp_path / "loose.py")]
    refuse_uncommitted(changes("committed.py", *others), tmp_path / "one")
    for path in ("edited.py", str(tmp_path / "two/edited.py")):
        with pytest.raises(HorsiesError, match=r"edited\.py is not committed"):
            refuse_uncommitted(changes("committed.py", *others, path), tmp_path / "one")


def test_x42_a_repository_that_git_cannot_read_is_not_written_to(tmp_path: Path) -> None:
    write_repository(tmp_path / "one")
    (tmp_path / "one/.git/HEAD").write_text("nonsense")
    with pytest.raises(HorsiesError, match="git cannot say whether"):
        refuse_uncommitted(changes("committed.py"), tmp_path / "one")


def test_x42_files_without_the_old_library_stay_as_they_are() -> None:
    """Much of this repository and of the standard library. Modules that only speak of Celery are read to the end."""
    paths = [*sorted((ROOT / "horsies").rglob("*.py")), *sorted((ROOT / "tests/unit").rglob("*.py"))]
    paths += sorted((ROOT / "examples").rglob("*.py"))
    paths += sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    given = [Given(path.as_posix(), f"m{place}", path.read_bytes()) for place, path in enumerate(paths)]
    assert len(given) > 500
    for library in Library:
        done = convert(library, given)
        assert done.changed == []
        assert done.findings == []
    # Most of them were not even read. A part of them is, and is followed to the last name.
    some = [read(one.path, one.module, one.content) for one in given[::60]]
    for convert_all in (celery.convert, procrastinate.convert):
        project = convert_all(some)
        assert all(file.source.result() == file.source.text for file in project.files.values())
        assert all(file.findings == [] for file in project.files.values())


def test_x42_a_name_that_means_something_else_stays() -> None:
    source = """\
from celery import group, shared_task
from shop.timer import delay, timer


@shared_task
def add(a: int) -> int:
    return a


def f(group, add, timer):
    group(add.delay(1), 2)()
    add.s(1)
    timer.apply_async((1,))


timer.delay(5)
delay.delay(1)
"""
    text, done = converted(source, timer="def delay(): ...\n")
    assert text.partition("def f(")[2] == source.partition("def f(")[2]
    assert done.by_hand == []


@each(
    ("content", "says"),
    [
        (b"def f(:\n", "no Python"),
        (b"print 'two'\n", "no Python"),
        (b"x = '\x00'\n", "null bytes"),
        (b"# coding: nonsense\nx = 1\n", "encoding"),
        (b"x = '\xff'\n", "encoding"),
        (b"x = " + b"(" * 5000 + b")" * 5000, ""),
    ],
)
def test_x42_what_is_no_python_is_left_and_said(content: bytes, says: str) -> None:
    app = Given("app.py", "app", APP.encode())
    done = convert(Library.CELERY, [app, Given("odd.py", "odd", content + b"\n# celery\n")])
    [finding] = done.by_hand
    assert finding.path == "odd.py" and "left as it is" in finding.what and says in finding.what
    assert [one.path for one in done.changed] == ["app.py"]


def test_x42_a_conversion_that_is_no_python_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "finished", lambda *given: "def (")
    done = convert(Library.CELERY, [Given("a.py", "a", APP.encode())])
    assert done.changed == [] and "its conversion is no Python" in done.by_hand[0].what


def test_x42_deep_and_long_sources_are_converted() -> None:
    deep = "y = " + "+".join(["1"] * 700) + "\nz = f" + ".a" * 700 + "\n"
    long = "".join(f"\n\n@shared_task\ndef f{i}(x):\n    f{i}.delay(x)\n" for i in range(300))
    source = "from celery import shared_task\n" + deep + long
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(source)
    given = [Given("app.py", "app", APP.encode()), Given("t.py", "t", source.encode())]
    done = convert(Library.CELERY, given)
    assert done.by_hand == []
    assert done.changed[1].after.count(b".send_or_raise(x)") == 300


def test_x42_two_files_of_one_module_are_not_mixed() -> None:
    done = convert(Library.CELERY, [Given("a/t.py", "t", APP.encode()), Given("b/t.py", "t", APP.encode())])
    assert [one.path for one in done.by_hand] == ["b/t.py"]


def test_x42_nothing_of_the_converter_is_imported_unless_used() -> None:
    code = (
        "import sys, horsies, horsies.cli.main; print(sorted(one for one in sys.modules if 'horsies.migrate' in one))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
