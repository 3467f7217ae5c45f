"""A change of files as a patch that `git apply` and `patch -p1` take, byte for byte: lines end where a newline is,
whatever the encoding and the other line ends are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from horsies.migrate.conversion import Changed

_ODD = re.compile(rb'[\x00-\x1f\x7f"\\]')
_ESCAPES = {b"\n": rb"\n", b"\t": rb"\t", b"\r": rb"\r", b'"': rb"\"", b"\\": rb"\\"}
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


def patch(changed: Iterable[Changed]) -> bytes:
    return b"".join(b"".join(_of_file(one)) for one in changed)


def _of_file(one: Changed) -> Iterator[bytes]:
    before, after = _lines(one.before), _lines(one.after)
    hunks = difflib.diff_bytes(difflib.unified_diff, before, after, b"a", b"b")
    for place, line in enumerate(hunks):
        if place < 2:
            sign = (b"--- ", b"+++ ")[place]
            yield sign + _name(("a/", "b/")[place] + one.path) + b"\n"
        else:
            yield line if line.endswith(b"\n") else line + _NO_NEWLINE


def _lines(content: bytes) -> list[bytes]:
    lines = [line + b"\n" for line in content.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _name(path: str) -> bytes:
    """As git writes it: odd letters in quotes, and a tab after a name with blanks, so that it has an end."""
    raw = path.encode("utf-8", "surrogateescape")
    if _ODD.search(raw):
        quoted = _ODD.sub(lambda found: _ESCAPES.get(found[0], b"\\%03o" % ord(found[0])), raw)
        return b'"' + quoted + b'"'
    return raw + (b"\t" if b" " in raw else b"")
