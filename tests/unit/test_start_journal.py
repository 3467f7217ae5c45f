"""The start journal (R-103): what the supervisor and the children write into it, and what it proves afterwards."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from horsies.core.recovery import start_journal as file
from horsies.core.recovery.start_journal import HEADER_BYTES, SLOT_BYTES, Journal, Notebook, Notes, was_noted
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim
from horsies.core.worker.in_hand import HeldTask

WORKER, START = "host:1:abcdef01", 700


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the journals."""
    directory = tmp_path / "runtime"
    monkeypatch.setenv(file.VARIABLE, str(directory))
    return directory


def held(task_id: str = "t1", claim_seq: int = 1) -> HeldTask:
    row = Claimed(0, 1, datetime.now(UTC), task_id, claim_seq, "t", "default", None, None, None, 0, 0, False, None)
    return HeldTask(row, False, 1, Claim(task_id, claim_seq))


def notes() -> Notes | None:
    return file.read(WORKER, START)


def notebook(journal: Journal) -> Notebook:
    opened = Notebook(str(journal.path))
    assert opened.is_open
    return opened


def test_r103_what_a_child_notes_is_started_and_nothing_else() -> None:
    journal = Journal(WORKER, START, 4)
    child = notebook(journal)
    begun, waiting = held("t1", 7), held("t2", 1)
    entries = [journal.entry(begun), journal.entry(waiting)]
    assert notes() == frozenset()
    child.note(entries[0])
    assert was_noted(notes(), Claim("t1", 7))
    assert not was_noted(notes(), Claim("t2", 1))
    assert not was_noted(notes(), Claim("t1", 8))  # the same task, claimed again
    journal.remove()


def test_r103_a_note_stays_until_its_slot_is_needed_again() -> None:
    """A task whose code has ended counts as started until its result is written."""
    journal = Journal(WORKER, START, 1)
    child = notebook(journal)
    first = held("t1")
    child.note(journal.entry(first))
    journal.release(first)
    second = held("t2")
    entry = journal.entry(second)
    assert was_noted(notes(), first.claim)
    child.note(entry)
    assert was_noted(notes(), second.claim) and not was_noted(notes(), first.claim)
    journal.remove()


def test_r103_several_tasks_of_several_children_are_noted_at_once() -> None:
    journal = Journal(WORKER, START, 100)
    children = [notebook(journal) for _ in range(3)]
    tasks = [held(f"t{n}", n) for n in range(100)]
    for n, one in enumerate(tasks):
        children[n % 3].note(journal.entry(one))
    assert all(was_noted(notes(), one.claim) for one in tasks)
    journal.remove()


def test_r103_the_file_outlives_the_processes() -> None:
    journal = Journal(WORKER, START, 4)
    entry = journal.entry(held("t1", 3))
    program = (
        "import os, signal, sys; from horsies.core.recovery.start_journal import Notebook;"
        " book = Notebook(sys.argv[1]); book.note(bytes.fromhex(sys.argv[2])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(journal.path), entry.hex()], check=False)
    journal.close()
    assert ended.returncode == -signal.SIGKILL
    assert was_noted(notes(), Claim("t1", 3)) and not was_noted(notes(), Claim("t2", 3))


def test_r103_only_its_user_can_read_it(runtime: Path) -> None:
    journal = Journal(WORKER, START, 4)
    assert journal.path is not None and journal.path.parent == runtime and WORKER in journal.path.name
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    journal.remove()


def test_r103_a_missing_file_proves_nothing() -> None:
    assert notes() is None
    assert was_noted(None, Claim("any", 1))


@pytest.mark.parametrize(("worker", "start"), [("host:1:abcdef02", START), (WORKER, START + 1), (WORKER, None)])
def test_r103_the_file_of_another_worker_proves_nothing(runtime: Path, worker: str, start: int | None) -> None:
    journal = Journal(worker, start, 4)
    assert journal.path is not None
    journal.path.rename(runtime / file.file_name(WORKER))
    assert notes() is None
    journal.close()


@pytest.mark.parametrize("place", [8, 20, HEADER_BYTES, HEADER_BYTES + 40, HEADER_BYTES + 45])
def test_r103_a_torn_file_proves_nothing(place: int) -> None:
    journal = Journal(WORKER, START, 4)
    notebook(journal).note(journal.entry(held("a task with an id of thirty-six chars", 258)))
    assert notes() is not None and journal.path is not None
    data = bytearray(journal.path.read_bytes())
    data[place] ^= 1
    journal.path.write_bytes(data)
    assert notes() is None
    journal.close()


@pytest.mark.parametrize("size", [0, HEADER_BYTES, HEADER_BYTES + 3 * SLOT_BYTES, HEADER_BYTES + 4 * SLOT_BYTES - 1])
def test_r103_a_file_that_was_cut_proves_nothing(size: int) -> None:
    journal = Journal(WORKER, START, 4)
    assert journal.path is not None
    os.truncate(journal.path, size)
    assert notes() is None
    journal.close()


def test_r103_a_note_half_written_over_an_older_one_proves_nothing() -> None:
    journal = Journal(WORKER, START, 1)
    assert journal.path is not None
    child = notebook(journal)
    images = []
    for task_id in ("t1", "t2"):
        one = held(task_id)
        child.note(journal.entry(one))
        journal.release(one)
        images.append(journal.path.read_bytes())
    before, after = images
    for cut in range(HEADER_BYTES + 2, HEADER_BYTES + file.NOTE_BYTES - 1):
        torn = after[:cut] + before[cut:]
        assert file.parse(torn, WORKER, START) is None or torn in images
    journal.remove()


def test_r103_a_link_or_a_file_in_a_directory_of_others_proves_nothing(runtime: Path, tmp_path: Path) -> None:
    journal = Journal(WORKER, START, 4)
    assert journal.path is not None
    journal.path.rename(tmp_path / "elsewhere")
    journal.path.symlink_to(tmp_path / "elsewhere")
    assert notes() is None
    journal.path.unlink()
    (tmp_path / "elsewhere").rename(journal.path)
    assert notes() is not None
    runtime.chmod(0o755)
    assert notes() is not None  # others may look, but not put anything there
    runtime.chmod(0o775)
    assert notes() is None
    journal.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_r103_what_belongs_to_another_user_proves_nothing(runtime: Path) -> None:
    journal = Journal(WORKER, START, 4)
    assert journal.path is not None
    os.chown(journal.path, 65534, -1)
    assert notes() is None
    os.chown(journal.path, 0, -1)
    assert notes() is not None
    os.chown(runtime, 65534, -1)
    assert notes() is None
    journal.close()


def test_r103_in_a_directory_of_others_there_is_no_journal(runtime: Path) -> None:
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o777)
    journal = Journal(WORKER, START, 4)
    assert journal.path is None and list(runtime.iterdir()) == []
    assert journal.entry(held()) == b""


def test_r103_where_there_is_no_room_there_is_no_journal(runtime: Path) -> None:
    """Written to the end when it is made: later a full disk would kill whoever writes into the map."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    reset = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER_BYTES + SLOT_BYTES, before[1]))
    try:
        assert Journal(WORKER, START, 4).path is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, reset)
    assert list(runtime.iterdir()) == []


def test_r103_a_child_that_cannot_write_says_so(tmp_path: Path) -> None:
    assert not Notebook(str(tmp_path / "nothing")).is_open
    assert not Notebook(None).is_open
    Notebook(None).note(b"")


def test_r103_a_journal_that_would_not_be_complete_is_given_up() -> None:
    journal = Journal(WORKER, START, 2)
    path = journal.path
    assert path is not None
    entries = [journal.entry(held(f"t{n}")) for n in range(3)]
    assert [bool(entry) for entry in entries] == [True, True, False]
    assert not path.exists() and notes() is None
    assert journal.entry(held("t9")) == b""


def test_r103_it_is_removed_in_the_end_and_after_recovery() -> None:
    journal = Journal(WORKER, START, 2)
    path = journal.path
    assert path is not None and path.exists()
    journal.remove()
    assert not path.exists()
    Journal(WORKER, START, 2).close()
    assert path.exists()
    file.remove(WORKER)
    assert not path.exists()


def test_r103_what_nobody_has_recovered_is_cleared_away_after_a_day(runtime: Path) -> None:
    alive, dead, young = (Journal(f"host:{n}:abcdef01", START, 2) for n in range(3))
    old = time.time() - 2 * 86_400
    for journal in (alive, dead):
        assert journal.path is not None
        os.utime(journal.path, (old, old))
    dead.close()
    young.close()
    Journal(WORKER, START, 2).remove()
    assert sorted(path.name[:6] for path in runtime.iterdir()) == ["host:0", "host:2"]
    alive.remove()


def test_r103_what_is_no_file_of_ours_is_neither_opened_nor_followed(runtime: Path, tmp_path: Path) -> None:
    """A pipe would make a worker wait for ever at its start, and a link lead anywhere."""
    Journal(WORKER, START, 2).remove()  # it makes the directory
    pipe, link, target = runtime / f"pipe{file.SUFFIX}", runtime / f"link{file.SUFFIX}", tmp_path / "target"
    target.write_bytes(bytes(HEADER_BYTES + SLOT_BYTES))
    os.mkfifo(pipe)
    link.symlink_to(target)
    old = time.time() - 2 * 86_400
    for path in (pipe, target):
        os.utime(path, (old, old))
    starting = threading.Thread(target=lambda: Journal(WORKER, START, 2).remove(), daemon=True)
    starting.start()
    starting.join(30)
    try:
        assert not starting.is_alive()
    finally:
        with contextlib.suppress(OSError):
            os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))  # whoever waits for it goes on
    assert target.exists()
    assert not Notebook(str(link)).is_open


def test_r103_long_ids_are_noted_as_well() -> None:
    journal = Journal(WORKER, START, 4)
    long = "ü" * 36
    notebook(journal).note(journal.entry(held(long, 1)))
    assert was_noted(notes(), Claim(long, 1)) and not was_noted(notes(), Claim("ü" * 35 + "u", 1))
    journal.remove()


def test_r103_the_runtime_directory_is_the_users_own() -> None:
    uid = os.geteuid()
    plain = file.directories({})
    assert [path.name for path in plain] == [f"horsies-{uid}"]
    assert file.directories({"XDG_RUNTIME_DIR": "/run/user/5"}) == [Path("/run/user/5/horsies"), *plain]
    assert file.directories({"XDG_RUNTIME_DIR": "/run/user/5", file.VARIABLE: "/else"}) == [Path("/else")]
