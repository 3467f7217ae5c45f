"""Which statements reach the server, told by the server: it writes each with its time into its log while we watch.

So nothing of the engine is touched or imitated, and statements of every process are counted. Writing costs time: what
is timed and what is counted are two runs, except for the time that the server itself says a statement took.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.server import Server

MARK = "@~"
SETTINGS = {
    "log_min_duration_statement": "0",
    "log_line_prefix": f"'{MARK}%p|%a|'",
    "log_parameter_max_length": "0",
}
HEARD_S = 0.3  # until every session has read the setting
_ENTRY = re.compile(
    r"(?P<pid>\d+)\|(?P<name>[^|]*)\|LOG:  duration: (?P<ms>[\d.]+) ms  "
    r"(?P<what>parse|bind|execute|statement)[^:]*: (?P<text>.*)",
    re.DOTALL,
)
_BEGIN = re.compile(r"(BEGIN|START TRANSACTION)", re.IGNORECASE)
_END = re.compile(r"(COMMIT|ROLLBACK(?! TO)|END)", re.IGNORECASE)
_CONTROL = re.compile(r"(SAVEPOINT|RELEASE|ROLLBACK|SET|RESET|DISCARD|DEALLOCATE)\b", re.IGNORECASE)
_WRITES = re.compile(r"\b(INSERT INTO|UPDATE horsies|DELETE FROM)\b")
_CLAIM = "claim_seq = t.claim_seq + 1"


class Statement(NamedTuple):
    """One that was executed: by which session, and how many milliseconds it took, planning included."""

    pid: int
    session: str
    ms: float
    text: str

    @property
    def is_claim(self) -> bool:
        """One that looks for waiting tasks; the one that looks for lapsed claims is another."""
        return _CLAIM in self.text and "is_waiting" in self.text


@dataclass
class Watched:
    """What was seen: statements, without those that only open, close or set something, and transactions that write."""

    statements: list[Statement] = field(default_factory=list)
    commits: int = 0
    seconds: float = 0.0

    @property
    def claims(self) -> list[Statement]:
        return [one for one in self.statements if one.is_claim]


def read(log: str, without: Sequence[int] = ()) -> Watched:
    """The statements of a log, without those of some sessions. A statement outside a transaction is one by itself."""
    found = Watched()
    spent: dict[int, float] = {}
    written: dict[int, bool] = {}  # by sessions that are inside a transaction: whether it has written
    for text in log.split(MARK)[1:]:
        entry = _ENTRY.match(text)
        if entry is None or (pid := int(entry["pid"])) in without:
            continue
        spent[pid] = spent.get(pid, 0.0) + float(entry["ms"])
        if entry["what"] in ("parse", "bind"):
            continue
        ms, words = spent.pop(pid), entry["text"].strip()
        if _BEGIN.match(words):
            written[pid] = False
        elif _END.match(words):
            found.commits += written.pop(pid, False)
        elif not _CONTROL.match(words):
            found.statements.append(Statement(pid, entry["name"], ms, words))
            is_write = bool(_WRITES.search(words))
            if pid in written:
                written[pid] |= is_write
            else:
                found.commits += is_write
    return found


@contextmanager
def watching(server: Server) -> Iterator[Watched]:
    """Everything that is executed within the block; it is there when the block has ended."""
    found = Watched()
    for name, value in SETTINGS.items():
        server.do(f"ALTER SYSTEM SET {name} = {value}")
    server.do("SELECT pg_reload_conf()")
    time.sleep(HEARD_S)
    size, begin = server.log.stat().st_size, time.monotonic()
    try:
        yield found
        found.seconds = time.monotonic() - begin
    finally:
        for name in SETTINGS:
            server.do(f"ALTER SYSTEM RESET {name}")
        server.do("SELECT pg_reload_conf()")
    with server.log.open("rb") as file:
        file.seek(size)
        seen = read(file.read().decode(errors="replace"), [server.backend])
    found.statements, found.commits = seen.statements, seen.commits


def until(is_so: Callable[[], bool], what: str, seconds: float = 120.0, every_s: float = 0.1) -> None:
    """Ask now and then; a measurement that never ends is none."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(every_s)
