"""The start journal of a worker as a file (R-103): its place, its format, and what it proves.

A header names the worker. Slots follow, each with the (task id, `claim_seq`) that a child was about to call, and a
checksum. `core.worker.journal` writes it. A note stays until the end of its task is in the database, so that a task
whose code has ended but whose result was lost with the worker counts as started too. An old note does no harm, because
its claim is over and nobody asks for it.

The file is in a directory that belongs to this user alone. A file that is missing, damaged, or of another worker or
user proves nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
import tempfile
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from zlib import crc32

from horsies.core.lifecycle.moves import Claim

VARIABLE = "HORSIES_RUNTIME_DIR"
SUFFIX = ".journal"
HEADER_BYTES = 512
SLOT_BYTES = 64  # a line of the processor's cache: children do not get in each other's way
KEPT_S = 86_400.0  # a file that nobody has asked for is kept this long after the end of its worker

_MAGIC = b"horsies\x01"
_HEADER = struct.Struct("<8sIq256s")  # slots, start of the process, id of the worker
_NOTE = struct.Struct("<36sq")  # task id, claim_seq
_CHECKSUM = struct.Struct("<I")
NOTE_BYTES = _NOTE.size + _CHECKSUM.size
_EMPTY = bytes(NOTE_BYTES)
_NO_START = -1

Notes = frozenset[bytes]


# What it looks like


def note(task_id: bytes, claim_seq: int) -> bytes:
    """The content of a slot for one claim. It is always the same bytes, so that two notes can be compared."""
    if len(task_id) > 36:  # letters of more than one byte
        task_id = sha256(task_id).digest()
    body = _NOTE.pack(task_id, claim_seq)
    return body + _CHECKSUM.pack(crc32(body))


def header(worker_id: str, process_start: int | None, slots: int) -> bytes:
    start = _NO_START if process_start is None else process_start
    body = _HEADER.pack(_MAGIC, slots, start, worker_id.encode()[:256])
    return (body + _CHECKSUM.pack(crc32(body))).ljust(HEADER_BYTES, b"\0")


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
            return None  # somebody was just writing: what it was going to be is not known
        notes.add(found)
    return frozenset(notes)


def was_noted(notes: Notes | None, claim: Claim) -> bool:
    """Whether a task was noted as started; without proof, all tasks count as started."""
    return notes is None or note(claim.task_id.encode(), claim.claim_seq) in notes


# Where it lies


def directories(environment: Mapping[str, str] | None = None) -> list[Path]:
    """Where the journals of this user's workers may be, the best place first."""
    environment = os.environ if environment is None else environment
    if given := environment.get(VARIABLE):
        return [Path(given)]
    found = [Path(tempfile.gettempdir()) / f"horsies-{os.geteuid()}"]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        found.insert(0, Path(runtime) / "horsies")
    return found


def file_name(worker_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:-]", "_", worker_id)[-200:] + SUFFIX


def is_private(directory: Path) -> bool:
    """Whether it is a directory into which only this user can have put files."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def read(worker_id: str, process_start: int | None) -> Notes | None:
    """What the children of a dead worker had noted. None: unknown."""
    for directory in directories():
        data = _contents(directory / file_name(worker_id)) if is_private(directory) else None
        if data is not None:
            return parse(data, worker_id, process_start)
    return None


def remove(worker_id: str) -> None:
    """Remove a journal that is no longer needed."""
    for directory in directories():
        if is_private(directory):
            with contextlib.suppress(OSError):
                (directory / file_name(worker_id)).unlink()


def tidy(directory: Path) -> None:
    """Remove the journals of workers that died a while ago and that could not be recovered."""
    with contextlib.suppress(OSError):
        for path in directory.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                if time.time() - path.stat().st_mtime > KEPT_S:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its worker holds it as long as it lives
                    path.unlink()


def _contents(path: Path) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        try:
            return file.read()
        except OSError:
            return None
