"""The one log of `horsies dev`: each line has the name of the program that it comes from, in a colour of its own
(X-31). Lines are text for people; a terminal obeys nothing in them but colours.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import PurePath

from horsies.core.text import visible

COLOURS = ("36", "35", "34", "32", "33", "96", "95", "94")
_SGR = re.compile(r"(\x1b\[[0-9;]*m)")
_RESET = "\x1b[0m"


class Log:
    """Writes lines, with the names in one column."""

    def __init__(self, write: Callable[[str], None], names: Iterable[str], *, color: bool) -> None:
        self._write = write
        self._names = dict(zip(names, cycle(COLOURS), strict=False))
        self._width = max(map(len, self._names), default=0)
        self._color = color
        self._lock = threading.Lock()  # the output of each program is read by a thread
        self.on_gone: Callable[[], None] = lambda: None  # nobody reads the log any more

    def line(self, name: str, text: str) -> None:
        shown = f"{name:<{self._width}} |"
        if self._color:
            shown = f"\x1b[{self._names[name]}m{shown}{_RESET}"
        try:
            with self._lock:
                self._write(f"{shown} {cleaned(text, color=self._color)}".rstrip())
        except OSError:  # as with `horsies dev 2>&1 | head`
            self.on_gone()


def cleaned(text: str, *, color: bool) -> str:
    """The line with its colours, or without them; everything else that a terminal would obey is shown."""
    parts = _SGR.split(text.rstrip("\r").expandtabs())
    kept = [part if _SGR.fullmatch(part) else visible(part) for part in parts if color or not _SGR.fullmatch(part)]
    return "".join([*kept, _RESET if color and len(parts) > 1 else ""])


def names_of(commands: Sequence[Sequence[str]], taken: Iterable[str]) -> list[str]:
    """A short name for each command line, each once: what is run, not what runs it."""
    used = set(taken)
    names = []
    for words in commands:
        base = name = next(iter(_telling(words)), "program")
        number = 1
        while name in used:
            number += 1
            name = f"{base}-{number}"
        used.add(name)
        names.append(name)
    return names


def _telling(words: Sequence[str]) -> Iterator[str]:
    program = PurePath(words[0]).name
    if program.startswith("python"):
        yield from (PurePath(word).name for word in words[1:] if not word.startswith("-"))
    yield program
