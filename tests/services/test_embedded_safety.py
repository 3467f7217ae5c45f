"""The embedded server and other users of the machine: directories where they could plant links are refused before
anything in them is touched, and under root nobody but root reaches the server or its files. `nobody` is the attacker.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from horsies.core.embedded import ensure_running, stop
from horsies.core.errors import ConfigurationError, ErrorCode
from tests.e2e.cli_support import run as run_command
from tests.embedded_support import (
    SETTINGS,
    USER,
    answers,
    needs_root,
    nobodys_python,
    place_for_a_server,
    postmaster,
)

STRANGER = 12_345
FILES = (
    *("users.lock", "start.lock", "keeper.lock", "server.log", "server.log.1", "stop.request"),
    *("settings.json", "settings.json.new", "server.json", "server.json.new"),
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of our own that everybody can enter."""
    with place_for_a_server() as directory:
        yield directory


@pytest.fixture
def treasure(home: Path) -> Path:
    """A file of ours that others want."""
    file = home / "treasure"
    file.write_text('{"host": "treasure"}')
    file.chmod(0o640)
    return file


def looks(file: Path) -> tuple[object, ...]:
    found = file.stat()
    return found.st_uid, found.st_gid, found.st_mode, found.st_mtime_ns, file.read_text()


def nobody() -> int:
    return pwd.getpwnam("nobody").pw_uid


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


@needs_root
@pytest.mark.parametrize("name", FILES)
def test_a_link_in_a_directory_of_another_user_gives_that_user_nothing(home: Path, treasure: Path, name: str) -> None:
    trap = home / "db"
    trap.mkdir()
    (trap / name).symlink_to(treasure)
    for each in (trap, trap / name):
        os.chown(each, nobody(), -1, follow_symlinks=False)
    before = looks(treasure)
    try:
        with pytest.raises(ConfigurationError, match="it belongs to the user nobody") as raised:
            ensure_running(trap, settings=SETTINGS)
    finally:
        assert looks(treasure) == before
        found = names(trap)
        shutil.rmtree(trap)
    assert found == {name}, "nothing was touched"
    assert raised.value.code is ErrorCode.BROKER_INIT_FAILED


@needs_root
def test_a_command_of_root_in_a_project_of_another_user_says_what_to_do(home: Path) -> None:
    project = home / "project"
    project.mkdir()
    os.chown(project, nobody(), -1)
    refused = run_command("init-db", cwd=project)
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    text = " ".join(refused.stderr.split())
    for part in (
        f"{project} belongs to the user nobody",
        "run this as the user nobody",
        "embedded:/var/lib/horsies/NAME",
        "DATABASE_URL",
    ):
        assert part in text, part
    assert names(project) == set(), "nothing was made there"


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o702])
def test_a_directory_that_others_can_write_is_refused(home: Path, mode: int) -> None:
    (home / "db").mkdir()
    (home / "db").chmod(mode)
    with pytest.raises(ConfigurationError, match="other users can write in it") as raised:
        ensure_running(home / "db")
    assert f"chmod go-w {home / 'db'}" in str(raised.value)
    assert names(home / "db") == set()


@needs_root
def test_a_directory_of_root_is_refused_to_others(home: Path) -> None:
    (home / "db").mkdir(mode=0o711)
    with nobodys_python() as run:
        done = run(USER, home / "db")
    assert "ConfigurationError" in done.stderr
    assert "it belongs to the user root" in done.stderr


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_root_refuses_a_parent_that_others_can_write(home: Path, mode: int) -> None:
    (home / "open" / "below").mkdir(parents=True)
    os.chown(home / "open", 0, STRANGER)
    (home / "open").chmod(mode)
    with pytest.raises(ConfigurationError, match=f"other users can write in {home / 'open'}"):
        ensure_running(home / "open" / "below" / "db")
    assert names(home / "open" / "below") == set()


@needs_root
def test_root_refuses_a_parent_of_another_user(home: Path) -> None:
    (home / "theirs" / "below").mkdir(parents=True)
    os.chown(home / "theirs", nobody(), -1)
    with pytest.raises(ConfigurationError, match=f"{home / 'theirs'} belongs to the user nobody"):
        ensure_running(home / "theirs" / "below" / "db")
    assert names(home / "theirs" / "below") == set()


@pytest.mark.slow("creates another database server")
@needs_root
def test_root_follows_its_own_links_only_and_only_to_safe_places(home: Path) -> None:
    (home / "mine").mkdir()
    (home / "theirs").mkdir()
    os.chown(home / "theirs", nobody(), -1)
    for name, target, owner in (("planted", "mine", nobody()), ("away", "theirs", 0), ("good", "mine", 0)):
        (home / name).symlink_to(target)
        os.chown(home / name, owner, -1, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match=f"the link {home / 'planted'} belongs to the user nobody"):
        ensure_running(home / "planted" / "db")
    with pytest.raises(ConfigurationError, match=f"{home / 'theirs'} belongs to the user nobody"):
        ensure_running(home / "away" / "db")
    assert names(home / "mine") == names(home / "theirs") == set()
    try:
        assert answers(ensure_running(home / "good" / "db", settings=SETTINGS))
        assert ensure_running(home / "good" / ".." / "mine" / "db") == ensure_running(home / "mine" / "db")
    finally:
        stop(home / "mine" / "db")


@pytest.mark.slow("creates another database server")
def test_directories_that_we_make_are_not_for_others_to_write(home: Path) -> None:
    before = os.umask(0)
    try:
        assert answers(ensure_running(home / "a" / "b" / "db", settings=SETTINGS))
    finally:
        os.umask(before)
        stop(home / "a" / "b" / "db")
    for directory in (home / "a", home / "a" / "b", home / "a" / "b" / "db"):
        assert not directory.stat().st_mode & 0o022


@pytest.mark.skipif(os.geteuid() == 0, reason="root asks more of the parents of a directory")
def test_an_ordinary_user_may_work_in_the_directory_of_a_group(home: Path) -> None:
    (home / "shared").mkdir()
    (home / "shared").chmod(0o775)
    try:
        assert answers(ensure_running(home / "shared" / "db", settings=SETTINGS))
    finally:
        stop(home / "shared" / "db")


@pytest.mark.parametrize("name", ["users.lock", "keeper.lock", "server.log", "settings.json"])
def test_a_link_in_the_place_of_a_file_is_not_followed(home: Path, treasure: Path, name: str) -> None:
    """Even in a directory of our own: it may have been somebody else's before."""
    (home / "db").mkdir(mode=0o711)
    (home / "db" / name).symlink_to(treasure)
    before = looks(treasure)
    with pytest.raises(ConfigurationError, match=f"cannot use its file {name}"):
        ensure_running(home / "db")
    assert looks(treasure) == before


@needs_root
@pytest.mark.parametrize("name", ["keeper.lock", "server.log"])
def test_a_second_name_of_a_file_of_root_is_not_written(home: Path, treasure: Path, name: str) -> None:
    (home / "db").mkdir(mode=0o711)
    os.link(treasure, home / "db" / name)
    before = looks(treasure)
    with pytest.raises(ConfigurationError, match=f"cannot use its file {name}"):
        ensure_running(home / "db")
    assert looks(treasure) == before


@needs_root
def test_under_root_no_other_user_reaches_the_server_or_its_data(home: Path) -> None:
    """In particular not `nobody`, whom many services run as."""
    url = ensure_running(home / "db", settings=SETTINGS)
    server = Path("/proc", str(postmaster(home / "db"))).stat().st_uid
    with pytest.raises(KeyError):
        pwd.getpwuid(server)
    code = """
import os, sys, psycopg
try:
    print(psycopg.connect(sys.argv[1]).execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone())
except psycopg.OperationalError as error:
    print("refused" if "Permission denied" in str(error) else error)
"""
    with nobodys_python() as run:
        done = run(code, url)
        assert done.stdout == "refused\n", done.stdout + done.stderr
        for wanted in ("data", "data/pg_hba.conf", "data/base", "socket", "server.json", "settings.json"):
            try_it = "import os, sys; os.open(sys.argv[1], os.O_RDONLY)"
            assert "PermissionError" in run(try_it, home / "db" / wanted).stderr, wanted
    assert answers(url)


@pytest.mark.slow("creates another database server")
@needs_root
def test_root_refuses_data_that_another_user_has_put_there(home: Path) -> None:
    path = home / "db"
    ensure_running(path, settings=SETTINGS)
    stop(path)
    os.chown(path / "data", STRANGER, -1)
    with pytest.raises(ConfigurationError, match=f"data belongs to user {STRANGER}"):
        ensure_running(path)
    assert (path / "data").stat().st_uid == STRANGER


@pytest.mark.slow("creates another database server")
@needs_root
def test_while_the_database_is_made_nobody_else_gets_at_it(home: Path) -> None:
    """initdb needs a user with a name. What it makes is out of reach of others who have that name."""
    look = 'while :; do ls -R "$0" 2>&1; done'
    watcher = subprocess.Popen(
        ["sh", "-c", look, home / "db" / "data.new"], stdout=subprocess.PIPE, text=True, user="nobody", group=nobody()
    )
    try:
        with ThreadPoolExecutor(1) as aside:
            reading = aside.submit(watcher.communicate)
            ensure_running(home / "db", settings=SETTINGS)
            watcher.kill()
            seen, _ = reading.result()
    finally:
        watcher.kill()
        watcher.wait()
    assert "Permission denied" in seen
    assert "PG_VERSION" not in seen and "base" not in seen
