"""The start journal of a worker (R-103): a file that says which tasks its children were about to call.

The supervisor creates the file and gives each task a slot (`Journal`). The child fills in the slot just before it calls
the function (`Notebook`): it writes into mapped memory, which costs less than a microsecond and outlives all processes
of the worker. After the death of the worker, another worker reads the file (`read`). Only the supervisor knows when a
slot may be reused: when the end of its task is in the database. So a task whose code has ended, but whose result was
lost with the worker, counts as started too. An old note does no harm, because its claim is over and nobody asks for it.

A header names the worker. Slots follow, each with a task id, its `claim_seq` and a checksum. The file is in a directory
that belongs to this user alone; it is opened relative to that directory, and no link is followed. A file that is
missing, damaged, or of another worker or user proves nothing.
"""

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import re
import stat
import struct
import tempfile
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Protocol
from zlib import crc32

from horsies.core.tasks.moves import Claim

log = logging.getLogger("horsies.worker")

VARIABLE = "HORSIES_RUNTIME_DIR"
SUFFIX = ".journal"
HEADER_BYTES = 512
SLOT_BYTES = 64  # one line of the processor's cache, so that children do not slow each other down
KEPT_S = 86_400.0  # a file that nobody has asked for is kept this long after the end of its worker
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in the place of a file must not make us wait
_MAGIC = b"horsies\x01"
_HEADER = struct.Struct("<8sIq256s")  # slots, start of the process, id of the worker
_NOTE = struct.Struct("<36sq")  # task id, claim_seq
_CHECKSUM = struct.Struct("<I")
NOTE_BYTES = _NOTE.size + _CHECKSUM.size
_EMPTY = bytes(NOTE_BYTES)
_NO_START = -1
_WHERE = struct.Struct("<Iq")  # the offset of the slot, claim_seq; the task id follows
Notes = frozenset[bytes]


class NotedTask(Protocol):
    """What the journal needs of a task that is handed to a child; it keeps the task's slot in `note_at`."""

    id: str
    claim: Claim
    note_at: int | None


class Journal:
    """The supervisor's side. Without a file there are no notes, and after a crash all tasks count as started."""

    def __init__(self, worker_id: str, process_start: int | None, slots: int) -> None:
        self.path: Path | None = None
        self._fd = -1
        self._free: list[int] = []
        problem: object = "no directory that belongs to this user"
        for directory in directories():
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                with opened(directory) as parent:
                    if parent is not None:
                        tidy(parent)
                        path = directory / file_name(worker_id)
                        self._make(path, parent, header(worker_id, process_start, slots), slots)
                        return
            except OSError as error:
                problem = error
        log.warning("no start journal: after a crash all RUNNING tasks of this worker count as started (%s)", problem)

    def _make(self, path: Path, parent: int, header: bytes, slots: int) -> None:
        fd = os.open(path.name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=parent)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The whole file is written now, because a full disk would kill a process that writes into the map later.
            content = header + bytes(slots * SLOT_BYTES)
            if os.pwrite(fd, content, 0) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(fd)
            os.unlink(path.name, dir_fd=parent)
            raise
        self.path, self._fd = path, fd
        self._free = [HEADER_BYTES + slot * SLOT_BYTES for slot in reversed(range(slots))]

    def entry(self, held: NotedTask) -> bytes:
        """What the child must know to note this task, which is about to be sent to it."""
        if self.path is None:
            return b""
        if not self._free:
            self.give_up("it is full")
            return b""
        held.note_at = self._free.pop()
        return _WHERE.pack(held.note_at, held.claim.claim_seq) + held.id.encode()

    def release(self, held: NotedTask) -> None:
        """The end of this task is written, or it is not ours any more."""
        if held.note_at is not None:
            self._free.append(held.note_at)
            held.note_at = None

    def give_up(self, why: str) -> None:
        """The journal would be incomplete, so there must be none."""
        if self.path is not None:
            log.warning("the start journal can no longer be used: %s", why)
            self.remove()

    def remove(self) -> None:
        if self.path is not None:
            # The header goes first, so that the file proves nothing even if it cannot be removed.
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, bytes(HEADER_BYTES), 0)
            with contextlib.suppress(OSError):
                self.path.unlink()
            self.close()

    def close(self) -> None:
        """Leave the file to the worker that recovers what is left."""
        if self.path is not None:
            os.close(self._fd)
            self.path = None


class Notebook:
    """The child's side."""

    def __init__(self, path: str | None) -> None:
        self._map: mmap.mmap | None = None
        if path is None:
            return
        with contextlib.suppress(OSError, ValueError), open(os.open(path, os.O_RDWR | _FILE), "r+b") as file:
            if is_ours(file.fileno()):
                self._map = mmap.mmap(file.fileno(), 0)

    @property
    def is_open(self) -> bool:
        return self._map is not None

    def note(self, entry: bytes) -> None:
        """The function of this task is about to be called."""
        if entry and self._map is not None:
            at, claim_seq = _WHERE.unpack_from(entry)
            self._map[at : at + NOTE_BYTES] = note(entry[_WHERE.size :], claim_seq)


def read(worker_id: str, process_start: int | None) -> Notes | None:
    """What the children of a dead worker had noted. None: unknown."""
    for directory in directories():
        with opened(directory) as parent:
            data = None if parent is None else _contents(parent, file_name(worker_id))
        if data is not None:
            return parse(data, worker_id, process_start)
    return None


def was_noted(notes: Notes | None, claim: Claim) -> bool:
    """Whether a task was noted as started; without proof, all tasks count as started."""
    return notes is None or note(claim.task_id.encode(), claim.claim_seq) in notes


def remove(worker_id: str) -> None:
    """Remove a journal that is no longer needed."""
    for directory in directories():
        with opened(directory) as parent, contextlib.suppress(OSError):
            if parent is not None:
                os.unlink(file_name(worker_id), dir_fd=parent)


def tidy(directory: int) -> None:
    """Remove the journals of workers that died a while ago and that could not be recovered."""
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if name.endswith(SUFFIX) and time.time() - os.lstat(name, dir_fd=directory).st_mtime > KEPT_S:
                with open(os.open(name, os.O_RDONLY | _FILE, dir_fd=directory), "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its worker holds the lock as long as it lives
                    os.unlink(name, dir_fd=directory)


def directories(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Where the journals of this user's workers may be, the best place first."""
    environment = os.environ if environment is None else environment
    if given := environment.get(VARIABLE):
        return [Path(given)]
    found = [Path(tempfile.gettempdir()) / f"horsies-{os.geteuid()}"]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        found.insert(0, Path(runtime) / "horsies")
    return found


def last_change() -> int | None:
    """When a journal was last made or removed, where those of this user are; None if that cannot be told."""
    for directory in directories():
        with contextlib.suppress(OSError):
            return os.stat(directory).st_mtime_ns
    return None


def file_name(worker_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:-]", "_", worker_id)[-200:] + SUFFIX


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int | None]:
    """A descriptor of this directory if only this user can have put files into it; otherwise None."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        found = os.fstat(fd)
        yield fd if found.st_uid == os.geteuid() and not found.st_mode & 0o022 else None
    finally:
        os.close(fd)


def is_ours(fd: int) -> bool:
    """Whether it is an ordinary file of this user."""
    found = os.fstat(fd)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def _contents(directory: int, name: str) -> bytes | None:
    with contextlib.suppress(OSError), open(os.open(name, os.O_RDONLY | _FILE, dir_fd=directory), "rb") as file:
        return file.read() if is_ours(file.fileno()) else None
    return None


def header(worker_id: str, process_start: int | None, slots: int) -> bytes:
    start = _NO_START if process_start is None else process_start
    body = _HEADER.pack(_MAGIC, slots, start, worker_id.encode()[:256])
    return (body + _CHECKSUM.pack(crc32(body))).ljust(HEADER_BYTES, b"\0")


def note(task_id: bytes, claim_seq: int) -> bytes:
    """The content of a slot for one claim. It is always the same bytes, so that two notes can be compared."""
    if len(task_id) > 36:  # its letters take more than one byte
        task_id = sha256(task_id).digest()
    body = _NOTE.pack(task_id, claim_seq)
    return body + _CHECKSUM.pack(crc32(body))


def parse(data: bytes, worker_id: str, process_start: int | None) -> Notes | None:
    """The notes of this worker's journal. None: the bytes prove nothing."""
    slots, rest = divmod(len(data) - HEADER_BYTES, SLOT_BYTES)
    if slots <= 0 or rest or data[:HEADER_BYTES] != header(worker_id, process_start, slots):
        return None
    notes = set()
    for at in range(HEADER_BYTES, len(data), SLOT_BYTES):
        found = data[at : at + NOTE_BYTES]
        if found == _EMPTY:
            continue
        if crc32(found[: _NOTE.size]) != _CHECKSUM.unpack_from(found, _NOTE.size)[0]:
            return None  # a child died while it was writing: its note is unknown
        notes.add(found)
    return frozenset(notes)
