"""What tasks say while they run, on its way from their code to the supervisor: the newest progress of each (P-50), and
what they log (P-51a).

The code of a task only leaves a note here; it never waits for anybody. The io thread sends the notes: progress at most
once a second, with the beats, and log lines a moment after they were logged, in frames of limited size. What is left
goes with the report of the task's end. A log has limits: its first half is sent as it comes, and after that only the
last lines are kept, so that the middle is missing. Lines are numbered, so that whoever reads them sees how many are
missing.

Everything here may be called by any thread, also while a task is being stopped: a line that is lost then counts as
dropped.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from time import monotonic, time
from typing import NamedTuple

from horsies.core.child.wire import Kind, pack
from horsies.core.models.notes import LONGEST_LINE, Progress, TaskLogs

PROGRESS_S = 1.0  # between two messages about the progress of a task
LOG_S = 0.1  # between two messages about log lines
FRAME_BYTES = 32_768  # of log lines: such a frame finds room in a socket at once, or is tried later


class LogLine(NamedTuple):
    """One line, as JSON."""

    number: int
    text: str

    @property
    def size(self) -> int:
        return len(self.text)  # it is ASCII


class LogPart(NamedTuple):
    """Lines that follow each other. Whatever was stored between the lines `after` and `before` is to be deleted."""

    first: int
    last: int
    after: int
    before: int
    lines: str


class _Last(NamedTuple):
    """A line of the second half of a log. `end` counts the bytes of that half up to and including this line."""

    number: int
    size: int
    end: int


class RunLog:
    """The log of one run: the first lines, up to half of the limits, and the last ones, up to the other half.

    `add` may be interrupted between any two instructions, because a stop is an exception that a signal raises (T-30).
    So each of its steps leaves a state that the others can work with, and later lines remove what an interrupted one
    has left: at worst that line is missing."""

    def __init__(self, limits: TaskLogs) -> None:
        self._most_lines, self._most_bytes = limits.max_lines // 2, limits.max_bytes // 2
        self._longest = min(LONGEST_LINE, self._most_bytes // 4)
        self._count = 0
        self._head_bytes = 0
        self._head_end: int | None = None  # the last line of the first half, once that is full
        self._tail: deque[_Last] = deque()
        self._unsent_head: deque[LogLine] = deque()
        self._unsent_tail: deque[LogLine] = deque()
        self.partial = ""  # of a printed line

    def __bool__(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent_head or self._unsent_tail)

    def add(self, time: float, level: str, logger: str, text: str) -> None:
        self.put(self.packed(time, level, logger, text))

    def put(self, packed: str) -> None:
        self._count = number = self._count + 1
        line = LogLine(number, packed)
        if self._head_end is None and self._has_room_in_front(line):
            self._head_bytes += line.size
            self._unsent_head.append(line)
        else:
            self._add_behind(line)

    def skip(self, count: int) -> None:
        """So many lines belong to the middle: at least as many as `most_kept` are put after them."""
        if self._head_end is None:
            self._head_end = self._count
        self._count += count

    def most_kept(self) -> tuple[int, int]:
        """How many lines of those to come can be kept: so many of the first ones, and so many of the last."""
        return max(0, self._most_lines - self._count) if self._head_end is None else 0, self._most_lines

    def packed(self, time: float, level: str, logger: str, text: str) -> str:
        """A line as JSON. It fits into a frame, whatever its characters need there."""
        most = min(len(text), self._longest)
        while True:
            cut = text if most == len(text) else f"{text[:most]}… ({len(text) - most} more characters)"
            line = json.dumps([round(time, 3), level[:50], logger[:255], cut])
            if len(line) <= FRAME_BYTES or not most:
                return line
            most = most * FRAME_BYTES // len(line) * 9 // 10

    def _has_room_in_front(self, line: LogLine) -> bool:
        return line.number <= self._most_lines and self._head_bytes + line.size <= self._most_bytes

    def _add_behind(self, line: LogLine) -> None:
        if self._head_end is None:
            self._head_end = line.number - 1
        tail, unsent = self._tail, self._unsent_tail
        tail.append(_Last(line.number, line.size, (tail[-1].end if tail else 0) + line.size))
        unsent.append(line)
        while len(tail) > 1 and (len(tail) > self._most_lines or self._tail_bytes() > self._most_bytes):
            tail.popleft()
        while unsent and unsent[0].number < tail[0].number:
            unsent.popleft()  # it belongs to the middle, and was not even sent

    def _tail_bytes(self) -> int:
        return self._tail[-1].end - self._tail[0].end + self._tail[0].size

    def part(self) -> LogPart | None:
        """The next lines to be sent; they stay here until `sent` is called."""
        unsent = self._unsent_head or self._unsent_tail
        if not unsent:
            return None
        lines: list[str] = []
        size, last = 0, unsent[0].number - 1
        for line in unsent:
            if line.number != last + 1 or (lines and size + line.size > FRAME_BYTES):
                break
            lines.append(line.text)
            size, last = size + line.size, line.number
        after, before = (self._head_end or 0, self._tail[0].number) if self._tail else (0, 0)
        return LogPart(unsent[0].number, last, after, before, f"[{','.join(lines)}]")

    def sent(self, part: LogPart) -> None:
        for unsent in (self._unsent_head, self._unsent_tail):
            while unsent and part.first <= unsent[0].number <= part.last:
                unsent.popleft()


@dataclass(slots=True)
class _Noted:
    """What one running task has said and the supervisor does not know yet."""

    progress: Progress | None = None
    progress_due: float = 0.0
    log: RunLog | None = None
    log_due: float = 0.0


class Note(NamedTuple):
    """A frame, and what it is about."""

    token: int
    data: bytes
    content: Progress | LogPart


class Notes:
    """The notes of all tasks of a child. `held` has the tokens of the tasks that run here; `wake` is called when log
    lines wait and the io thread may be asleep."""

    def __init__(self, held: Container[int]) -> None:
        self.limits: TaskLogs | None = None  # without them, nothing is kept of what tasks log
        self.wake: Callable[[], None] = lambda: None
        self._held = held
        self.noted: dict[int, _Noted] = {}  # empty, if no task has said anything that is not sent yet
        # The same thread may enter it again: a finalizer or a signal handler may log at any moment.
        self._lock = threading.RLock()
        self._is_copy = False
        os.register_at_fork(after_in_child=self._copied)

    # The code of a task

    def progress(self, token: int, progress: Progress) -> None:
        """The newest wins."""
        with self._lock:
            if (noted := self._of(token)) is not None:
                noted.progress = progress

    def log(self, token: int, time: float, level: str, logger: str, text: str) -> None:
        with self._lock:
            if (log := self._log_of(token)) is None:
                return
            was_empty = not log
            log.add(time, level, logger, text)
        if was_empty:
            self.wake()

    def printed(self, token: int, time: float, text: str) -> None:
        """A part of what a task prints; each of its lines becomes one of the log. It may be a million of them, so only
        those are read that can be kept, and others have the lock between any two."""
        lines, end, partial = text.rpartition("\n")
        with self._lock:
            if (log := self._log_of(token)) is None:
                return
            if end:
                lines = log.partial + lines
            else:
                partial = log.partial + partial
            is_long = len(partial) > LONGEST_LINE
            log.partial = "" if is_long else partial
            front, back = log.most_kept()
        if is_long:
            lines, end = lines + end + partial, "\n"
        if end:
            self._put_lines(log, time, *_ends(lines, front, back))
            self.wake()

    def _put_lines(self, log: RunLog, time: float, first: list[str], between: int, last: list[str]) -> None:
        for line in first:
            self._put(log, log.packed(time, "INFO", "stdout", line))
        if between:
            with self._lock:
                log.skip(between)
        for line in last:
            self._put(log, log.packed(time, "INFO", "stdout", line))

    def _put(self, log: RunLog, line: str) -> None:
        with self._lock:
            log.put(line)

    def _of(self, token: int) -> _Noted | None:
        if self._is_copy or token not in self._held:
            return None
        noted = self.noted.get(token)
        if noted is None:
            noted = self.noted[token] = _Noted()
        return noted

    def _log_of(self, token: int) -> RunLog | None:
        if self.limits is None or (noted := self._of(token)) is None:
            return None
        if noted.log is None:
            noted.log = RunLog(self.limits)
        return noted.log

    # The io thread

    def next(self) -> Note | None:
        """What is to be sent now. It stays here until `sent` is called."""
        now = monotonic()
        with self._lock:
            for token, noted in self.noted.items():
                if noted.log and now >= noted.log_due and (part := noted.log.part()) is not None:
                    return Note(token, _frame(token, part), part)
                if noted.progress is not None and now >= noted.progress_due:
                    return Note(token, _frame(token, noted.progress), noted.progress)
        return None

    def sent(self, note: Note) -> None:
        now = monotonic()
        with self._lock:
            if (noted := self.noted.get(note.token)) is None:
                return
            if isinstance(note.content, LogPart):
                if noted.log is not None:
                    noted.log.sent(note.content)
                    noted.log_due = 0.0 if noted.log else now + LOG_S
                return
            if noted.progress is note.content:
                noted.progress = None
            noted.progress_due = now + PROGRESS_S

    def due_in(self) -> float | None:
        """In how many seconds the io thread must look here again, if not before; None if there is nothing."""
        now = monotonic()
        with self._lock:
            waits = [noted.log_due - now for noted in self.noted.values() if noted.log]
            waits += [noted.progress_due - now for noted in self.noted.values() if noted.progress is not None]
        return max(0.0, min(waits)) if waits else None

    # The main thread

    def last(self, token: int) -> bytes:
        """The task has ended: the frames of what is left, to be sent before its report."""
        with self._lock:
            noted = self.noted.pop(token, None)
            if noted is None:
                return b""
            frames = []
            if (log := noted.log) is not None:
                if log.partial:
                    log.add(time(), "INFO", "stdout", log.partial)
                while (part := log.part()) is not None:
                    frames.append(_frame(token, part))
                    log.sent(part)
            if noted.progress is not None:
                frames.append(_frame(token, noted.progress))
        return b"".join(frames)

    def _copied(self) -> None:
        """In a copy that a task made by `fork`: nobody reads its notes, and another thread may have held the lock."""
        self._lock = threading.RLock()
        self._is_copy = True
        self.noted = {}


class Bell:
    """Wakes the io thread, which polls `ear`. Writing a byte is all that the code of a task does for it: a stop cannot
    leave it half done."""

    def __init__(self, ear: int, mouth: int) -> None:
        self.ear = ear
        self._mouth = mouth

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # it is full, so it has rung; or user code has closed it
            os.write(self._mouth, b"!")

    def answer(self) -> bool:
        """Whether it can ring again."""
        try:
            return bool(os.read(self.ear, 1 << 16))
        except BlockingIOError:
            return True
        except OSError:
            return False


def _ends(text: str, front: int, back: int) -> tuple[list[str], int, list[str]]:
    """The first lines of a text and its last ones, and how many are between them."""
    between = text.count("\n") + 1 - front - back
    if between <= 0:
        return text.split("\n"), 0, []
    *first, rest = text.split("\n", front)
    _, *last = rest.rsplit("\n", back)
    return first, between, last


def _frame(token: int, content: Progress | LogPart) -> bytes:
    if isinstance(content, Progress):
        return pack(Kind.PROGRESS, token, json.dumps(content).encode())
    *numbers, lines = content
    return pack(Kind.LOGGED, token, json.dumps(numbers).encode(), lines.encode())
