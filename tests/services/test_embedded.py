"""The embedded server with real processes and real signals: users that end in every way, servers and keepers that are
killed, files that lie.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from horsies.core.embedded import ensure_running, stop
from horsies.core.embedded.keeper.place import Place, run_as
from tests.embedded_support import (
    SETTINGS,
    USER,
    answers,
    finish,
    is_gone,
    is_used,
    is_written,
    keeper,
    kill,
    postmaster,
    postmasters,
    query,
    url_told_to,
    user_of,
    write_down,
)
from tests.support import eventually_sync


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
    eventually_sync(lambda: postmasters(path) not in ([], [first]) and answers(url))


@pytest.mark.slow("one more way for a server to end or to start")
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


@pytest.mark.slow("one more way for a server to end or to start")
def test_everything_killed_at_once_as_by_a_power_cut(path: Path) -> None:
    with user_of(path) as user:
        write_down(url_told_to(user))
        for pid in (keeper(path), user.pid, postmaster(path)):
            os.kill(pid, signal.SIGKILL)
        user.wait()
    assert is_written(ensure_running(path))


@pytest.fixture
def stranger(initialized: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the server's user, which is what makes PostgreSQL believe an old pid file."""
    with contextlib.closing(Place(initialized)) as place:
        process = subprocess.Popen(["sleep", "60"], **run_as(place.account))
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow("one more way for a server to end or to start")
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


@pytest.mark.slow("one more way for a server to end or to start")
@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"not a number\n"])
def test_a_garbled_pid_file_is_cleared_away(path: Path, content: bytes) -> None:
    (path / "data" / "postmaster.pid").write_bytes(content)
    assert answers(ensure_running(path))


@pytest.mark.slow("creates another database server")
def test_an_initialization_that_was_cut_short_starts_over(new_path: Path) -> None:
    (new_path / "data.new" / "base").mkdir(parents=True)
    (new_path / "data.new" / "PG_VERSION").write_text("18\n")
    assert answers(ensure_running(new_path, settings=SETTINGS))
    assert not (new_path / "data.new").exists()


def test_the_server_stops_when_its_last_user_ends(path: Path) -> None:
    with user_of(path) as user:
        assert answers(url_told_to(user))
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


def test_two_processes_share_one_server(path: Path) -> None:
    with user_of(path) as one, user_of(path) as other:
        urls = {url_told_to(one), url_told_to(other)}
        assert len(urls) == 1
        shared = postmaster(path)
        kill(one.pid)
        assert is_used(path)
        assert postmaster(path) == shared
        assert answers(urls.pop())
        finish(other)
    eventually_sync(lambda: postmasters(path) == [])


@pytest.mark.slow("many processes, started cold")
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


@pytest.mark.slow("one more way for a server to end or to start")
def test_who_comes_while_the_server_stops_gets_a_new_one(path: Path) -> None:
    with user_of(path) as user:
        url_told_to(user)
        last = postmaster(path)
        finish(user)
    eventually_sync(lambda: is_gone(last), every=0.001)
    assert answers(ensure_running(path))


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_forked_child_counts_as_a_user(path: Path) -> None:
    code = USER + "if os.fork() == 0:\n    sys.stdin.read()\n    os._exit(0)\nos._exit(0)\n"
    with user_of(path, code) as user:
        url = url_told_to(user)
        user.wait()
        assert is_used(path)
        assert answers(url)
        finish(user)
    eventually_sync(lambda: postmasters(path) == [])


@pytest.mark.slow("one more way for a server to end or to start")
def test_ctrl_c_in_the_terminal_of_one_user_does_not_reach_the_server(path: Path) -> None:
    with user_of(path, start_new_session=True) as user:
        url_told_to(user)
        ensure_running(path)
        running = postmaster(path)
        os.killpg(user.pid, signal.SIGINT)
        assert finish(user) != 0
    assert answers(ensure_running(path))
    assert postmaster(path) == running


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_new_keeper_replaces_the_server_of_a_killed_one(path: Path) -> None:
    with user_of(path) as user:
        url = url_told_to(user)
        write_down(url)
        left, first = postmaster(path), keeper(path)
        kill(first)
        assert ensure_running(path) == url
        assert is_written(url) and postmasters(path) != [left]
        assert keeper(path) != first
        kill(postmaster(path))
        assert answers(ensure_running(path)), "the new keeper looks after it as well"


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_killed_keeper_does_not_keep_stop_from_stopping(path: Path) -> None:
    ensure_running(path)
    kill(keeper(path))
    stop(path)
    assert postmasters(path) == []


@pytest.mark.slow("creates another database server")
def test_a_deleted_directory_ends_its_server_and_can_be_made_anew(new_path: Path) -> None:
    write_down(ensure_running(new_path, settings=SETTINGS))
    old = postmaster(new_path)
    eventually_sync(lambda: subprocess.run(["rm", "-rf", new_path], check=False).returncode == 0)
    url = ensure_running(new_path, settings=SETTINGS)
    with pytest.raises(psycopg.errors.UndefinedTable):
        is_written(url)
    eventually_sync(lambda: is_gone(old))
    assert answers(ensure_running(new_path)), "the old server took nothing of the new one's with it"


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_deleted_socket_is_made_again(path: Path) -> None:
    ensure_running(path)
    (path / "socket" / ".s.PGSQL.5432").unlink()
    assert answers(ensure_running(path))


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_dropped_database_is_made_again(path: Path) -> None:
    url = ensure_running(path)
    query(url.replace("/horsies?", "/postgres?"), "DROP DATABASE horsies")
    assert query(ensure_running(path), "SELECT current_database()") == [("horsies",)]


@pytest.mark.slow("one more way for a server to end or to start")
def test_a_server_without_free_connections_is_running(path: Path) -> None:
    url = ensure_running(path, settings=SETTINGS | {"max_connections": "5", "superuser_reserved_connections": "0"})
    with contextlib.ExitStack() as stack:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            for _ in range(30):
                stack.enter_context(psycopg.connect(url))
        assert ensure_running(path) == url
