"""Writes the start journal (R-103): the supervisor creates the file and gives each task a slot, and the child fills it
in.

The child writes into mapped memory just before it calls a function; this costs less than a microsecond and outlives all
processes of the worker. The supervisor assigns the slots, because only it knows when one may be reused: when the end of
its task is in the database. `core.recovery.journal` defines the format and reads it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import mmap
import os
import struct
from pathlib import Path
from typing import Protocol

from horsies.core.recovery import journal as file
from horsies.core.recovery.journal import HEADER_BYTES, NOTE_BYTES, SLOT_BYTES
from horsies.core.lifecycle.moves import Claim

log = logging.getLogger("horsies.worker")

_WHERE = struct.Struct("<Iq")  # where the note goes, claim_seq; the task id follows


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
        for directory in file.directories():
            try:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                if file.is_private(directory):
                    file.tidy(directory)
                    self._make(directory / file.file_name(worker_id), worker_id, process_start, slots)
                    return
            except OSError as error:
                problem = error
        log.warning("no start journal: after a crash all RUNNING tasks of this worker count as started (%s)", problem)

    def _make(self, path: Path, worker_id: str, process_start: int | None, slots: int) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # All of it now: a full disk must not kill whoever writes into the map later.
            content = file.header(worker_id, process_start, slots) + bytes(slots * SLOT_BYTES)
            if os.pwrite(fd, content, 0) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.close(fd)
            path.unlink()
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
            with contextlib.suppress(OSError):
                os.pwrite(self._fd, bytes(HEADER_BYTES), 0)  # first: it proves nothing, even if it cannot be removed
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
        with contextlib.suppress(OSError, ValueError), open(path, "r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)

    @property
    def is_open(self) -> bool:
        return self._map is not None

    def note(self, entry: bytes) -> None:
        """The function of this task is about to be called."""
        if entry and self._map is not None:
            at, claim_seq = _WHERE.unpack_from(entry)
            self._map[at : at + NOTE_BYTES] = file.note(entry[_WHERE.size :], claim_seq)
