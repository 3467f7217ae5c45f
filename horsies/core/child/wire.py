"""The messages between a supervisor, its fork server and its children: how a frame is packed, and how a byte stream is
split into frames. It does no I/O and knows nothing about tasks; an `Outbox` is memory that two processes share. `io.py`
and `forkserver.py` send and read frames on this side, `launcher.py`, `children.py` and `dispatch.py` on the worker's.

One frame is `<IBQH` (size of the rest, kind, number, number of parts), then the lengths of the parts, then the parts.
The number of most frames is a token: the supervisor's name for one task sent to one child. `ChildSpec` is what a child
must know to serve an app; it is sent as JSON to the fork server, never on a command line.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import partial
from typing import NamedTuple

MOST_CHILDREN = 1_024  # of one worker

# Seconds on a clock that runs while the machine sleeps and that nobody sets. All processes of a machine read the same.
clock: Callable[[], float] = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """The same for all children of a worker. `app_locator` is resolved by `locate.load_app` in the child itself."""

    app_locator: str
    imports: tuple[str, ...] = ()  # further modules to import, dotted or `.py`
    beat_interval_ms: int = 1_000
    hook_timeout_ms: int = 10_000  # W-45, for each hook
    goodbye_timeout_ms: int = 3_000  # for what user code wants to do at the end
    concurrency: int = 1  # async tasks at a time
    loglevel: str = "INFO"
    log_format: str = "text"
    is_helper: bool = False  # asked about recovery instead of running tasks (W-01)
    recovery_hook_timeout_ms: int = 10_000  # R-74, for each call of a handler
    sys_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    cwd: str = field(default_factory=os.getcwd)
    journal: str | None = None  # the file in which starts are noted
    database_url: str | None = field(default=None, repr=False)  # replaces the app's own; holds a password

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ChildSpec:
        fields = json.loads(text)
        return cls(**{**fields, "imports": tuple(fields["imports"]), "sys_path": tuple(fields["sys_path"])})


class Kind(IntEnum):
    """What a frame means."""

    # supervisor → child
    # RUN has the task name, args and kwargs (empty: NULL), the entry for the start journal, the facts about the run
    # (`tasks/context.py`), and for a child that traces what the span says. A helper gets the kind of a request and its
    # JSON instead.
    RUN = 1  # number: token
    TAKE_BACK = 2  # tokens the supervisor would like to have back
    STOP = 3  # number: token; reason
    BYE = 4  # finish what you hold, then exit 0
    MAY_RUN_UNTIL = 5  # number: until when you may run without another such message, nanoseconds of `clock`
    LEAVING = 6  # the worker will stop as soon as what runs has ended
    # child → supervisor
    READY = 16  # info as JSON
    BROKEN = 17  # text: why this child cannot serve the app
    STARTED = 18  # number: token; in a helper, the handler about to be called
    DONE = 19  # number: token; see `Done`
    GAVE_UP = 20  # tokens that will not be run by this child
    BEAT = 21  # tokens whose functions are running
    ANSWER = 22  # number: token; the answer of a helper (`helper.py`)
    PROGRESS = 23  # number: token; done, total and message as JSON (`notes.py`)
    LOGGED = 24  # number: token; the numbers of a `LogPart` as JSON, and its lines
    # supervisor → fork server
    SPAWN = 32  # number: child; name, spec as JSON; carries the child's end of the socket pair
    SIGNAL = 33  # number: child; signal number, b"1" for the whole process group
    # fork server → supervisor
    HELLO = 48  # ready to fork
    SPAWNED = 49  # number: child; pid
    REFUSED = 50  # number: child; why it could not be forked
    EXITED = 51  # number: child; return code (signed), peak memory in KiB


Frame = tuple[Kind, int, list[bytes]]
MAX_FRAME = 1 << 30
OUTBOX_BYTES = 1 << 16


class WireError(Exception):
    """The bytes are not frames: the other side is broken, or is not what we expect."""


class Done(NamedTuple):
    """The parts of a DONE frame, as the supervisor reads them. `stopped`: a stop was raised into the code. In that case
    `result` is empty, unless the code caught it and returned."""

    ok: bool
    result: str
    error_code: str | None
    error_message: str | None
    stopped: bool
    run_ns: int
    rss_kb: int
    leave_ms: int = 0  # it is left to others for so long, because its arguments cannot be read; 0: it is not (O-32)


_SIZE = struct.Struct("<I")
_HEAD = struct.Struct("<IBQH")
_UNSIGNED = struct.Struct("<Q")
_SIGNED = struct.Struct("<q")
_DONE = struct.Struct("<IBQH4I")
_FACTS = struct.Struct("<??QQQ")  # ok, stopped, nanoseconds it ran, resident KiB after it, milliseconds to leave it
_LENGTHS = [struct.Struct(f"<{count}I") for count in range(16)]
_AFTER_SIZE = _HEAD.size - _SIZE.size
_KINDS: list[Kind | None] = [None] * 256
for _kind in Kind:
    _KINDS[_kind] = _kind


def pack(kind: Kind, number: int, *parts: bytes) -> bytes:
    """One frame as bytes."""
    count = len(parts)
    if not count:
        return _HEAD.pack(_AFTER_SIZE, kind, number, 0)
    lengths = [len(part) for part in parts]
    size = _AFTER_SIZE + 4 * count + sum(lengths)
    if size > MAX_FRAME or count > 0xFFFF:
        raise WireError(f"a {kind.name} frame of {size} bytes in {count} parts is too large")
    return b"".join((_HEAD.pack(size, kind, number, count), _lengths(count).pack(*lengths), *parts))


def pack_tokens(kind: Kind, tokens: Iterable[int]) -> bytes:
    """TAKE_BACK, GAVE_UP and BEAT have their tokens as parts."""
    return pack(kind, 0, *map(_UNSIGNED.pack, tokens))


def pack_done(token: int, done: Done) -> bytes:
    """DONE is the most frequent frame of a child; texts that UTF-8 cannot encode are replaced rather than lost."""
    result = done.result.encode("utf-8", "replace")
    code = done.error_code.encode("utf-8", "replace") if done.error_code else b""
    message = done.error_message.encode("utf-8", "replace") if done.error_message else b""
    size = _AFTER_SIZE + 4 * 4 + _FACTS.size + len(result) + len(code) + len(message)
    if size > MAX_FRAME:
        raise WireError(f"a result of {len(result)} bytes is too large")
    head = _DONE.pack(size, Kind.DONE, token, 4, _FACTS.size, len(result), len(code), len(message))
    return b"".join((head, _FACTS.pack(done.ok, done.stopped, *done[5:]), result, code, message))


def tokens_of(parts: Sequence[bytes]) -> list[int]:
    """The tokens of a TAKE_BACK, GAVE_UP or BEAT frame."""
    return [unsigned(part) for part in parts]


def done_of(parts: Sequence[bytes]) -> Done:
    """The content of a DONE frame."""
    try:
        facts, result, code, message = parts
        ok, stopped, *numbers = _FACTS.unpack(facts)
        return Done(ok, result.decode(), code.decode() or None, message.decode() or None, stopped, *numbers)
    except (ValueError, struct.error) as error:
        raise WireError(f"unreadable DONE frame: {error}") from None


def unsigned(part: bytes) -> int:
    """An unsigned number of eight bytes."""
    return _unpack(_UNSIGNED, part)


def signed(part: bytes) -> int:
    """A signed number of eight bytes."""
    return _unpack(_SIGNED, part)


def pack_unsigned(number: int) -> bytes:
    return _UNSIGNED.pack(number)


def pack_signed(number: int) -> bytes:
    return _SIGNED.pack(number)


class Decoder:
    """Splits a stream of bytes into frames, however the stream was divided."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = 0  # the length of the rest that completes a frame: a large frame arrives in many pieces

    def feed(self, data: bytes) -> list[Frame]:
        """The frames completed by these bytes. Raises WireError on invalid data; the stream cannot be used after
        that."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        frames: list[Frame] = []
        end = self._cut(data, frames)
        if end < len(data):
            self._rest += memoryview(data)[end:]
        return frames

    def _cut(self, data: bytes, frames: list[Frame]) -> int:
        start, length = 0, len(data)
        while length - start >= _HEAD.size:
            size, code, number, count = _HEAD.unpack_from(data, start)
            kind = _KINDS[code]
            if kind is None or size > MAX_FRAME or size < _AFTER_SIZE + 4 * count:
                raise WireError(f"not a frame: kind {code}, {size} bytes, {count} parts")
            following = start + _SIZE.size + size
            if following > length:
                self._needed = following - start
                return start
            frames.append((kind, number, _parts(data, start + _HEAD.size, count, following) if count else []))
            if not count and following != start + _HEAD.size:
                raise WireError(f"a {kind.name} frame without parts has {size} bytes")
            start = following
        self._needed = _HEAD.size
        return start


class Outbox:
    """Frames that a child has not sent yet, in memory that it shares with its supervisor: so they outlive the child.

    The child adds frames, sends them together, and clears the outbox. If it dies in between, the supervisor finds here
    what it could not send any more, and perhaps what it had just sent: a frame that comes twice must do no harm. Two
    numbers stand first: how often it was cleared, and the length of what it holds. That is written after the frames."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, OUTBOX_BYTES)
        memory = memoryview(self._map)
        self._head, self._frames = memory[:16].cast("Q"), memory[16:]
        memory.release()
        self._seen = self._told = (0, 0)

    # The child

    def add(self, data: bytes) -> bool:
        """Whether there was room for these frames."""
        begin = self._head[1]
        end = begin + len(data)
        if end > len(self._frames):
            return False
        self._frames[begin:end] = data
        self._head[1] = end
        return True

    def content(self) -> bytes:
        return bytes(self._frames[: self._head[1]])

    def clear(self) -> None:
        if self._head[1]:
            self._head[1] = 0
            self._head[0] += 1

    # The supervisor

    def left(self) -> list[Frame]:
        """What a child that has ended could not send."""
        return Decoder().feed(self.content()) if self._head[1] <= len(self._frames) else []

    def lying(self) -> list[Frame]:
        """What a living child had added before the last call of this, and has not sent since: its code takes longer
        than it expected. It is told once. Whatever else is there may be changing at this moment."""
        now = (self._head[0], self._head[1])
        is_lying, self._seen = now == self._seen, now
        if not is_lying or not now[1] or now == self._told:
            return []
        data = self.content()
        if now != (self._head[0], self._head[1]):
            return []
        self._told = now
        return Decoder().feed(data)

    def close(self) -> None:
        """Nobody needs it any more. Not left to the collector: each has a descriptor."""
        self._head.release()
        self._frames.release()
        self._map.close()


def _parts(data: bytes, start: int, count: int, end: int) -> list[bytes]:
    lengths = _lengths(count)
    at = start + lengths.size
    parts = []
    for length in lengths.unpack_from(data, start):
        parts.append(data[at : at + length])
        at += length
    if at != end:
        raise WireError(f"the parts of a frame end at {at}, the frame at {end}")
    return parts


def _lengths(count: int) -> struct.Struct:
    return _LENGTHS[count] if count < len(_LENGTHS) else struct.Struct(f"<{count}I")


def _unpack(form: struct.Struct, part: bytes) -> int:
    try:
        number: int = form.unpack(part)[0]
    except struct.error:
        raise WireError(f"a number of {len(part)} bytes") from None
    return number
