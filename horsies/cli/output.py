"""How the commands print: answers on standard output, errors on standard error, colours by M-12. Answers are lines,
tables or JSON.

Everything that a command prints goes through this module, because most of it is foreign: names, ids, messages and
errors come from rows, exceptions and arguments. A terminal shows such text and does not obey it (`core/text.py`): the
only escape codes are our own colours. What needs rich is in `rendering.py` and is imported at its first use: a worker
runs for weeks and prints no table, so it does not keep rich in memory.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

from horsies.core.errors import ErrorCode, HorsiesError, ValidationReport
from horsies.core.logs import wants_color
from horsies.core.text import counted as count
from horsies.core.text import duration, json_text, visible, visible_lines

if TYPE_CHECKING:
    from horsies.cli.rendering import (
        Line,
        Shown,
        about_left_out,
        below_each_other,
        err,
        out,
        print_rows,
        print_whole,
        room,
        screen,
        stacked,
        styled,
        table_of,
        watch_until_interrupted,
        write_styled,
    )
    from horsies.core.types import TaskStatus

__all__ = [
    "Line",
    "Shown",
    "about_left_out",
    "below_each_other",
    "between",
    "count",
    "duration",
    "err",
    "out",
    "print_json",
    "print_rows",
    "print_whole",
    "refuse_watching",
    "room",
    "say",
    "screen",
    "seconds",
    "show_crash",
    "show_error",
    "show_errors",
    "some",
    "stacked",
    "style_of",
    "styled",
    "table_of",
    "text_of",
    "usage_error",
    "watch_until_interrupted",
    "with_plain_codes",
    "write",
    "write_log",
    "write_styled",
    "write_text",
]

_NAMES = 10

STYLES = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "EXPIRED": "red",
    "CANCELLED": "dim",
    "RUNNING": "yellow",
    "CLAIMED": "cyan",
    "PENDING": "default",
}


def style_of(status: TaskStatus) -> str:
    return STYLES.get(status, "default")  # also for a word that nobody knows


def write(*lines: str) -> None:
    """Write lines of the answer, for people or for other programs: ids, a sentence, a JSON text."""
    if lines:
        sys.stdout.write("\n".join(map(visible, lines)) + "\n")
        sys.stdout.flush()


def say(text: str) -> None:
    """Print one line for the person on standard error."""
    sys.stderr.write(f"{visible(text)}\n")
    sys.stderr.flush()


def write_text(text: str) -> None:
    """Write a text of many lines for other programs."""
    sys.stdout.write(visible_lines(text))


def write_log(line: str) -> None:
    """A line of the log of several programs. It is clean already, and has its colours."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def show_error(error: HorsiesError) -> None:
    """Headline, place, notes and help (M-30)."""
    _complain(error.format_rust_style(use_colors=wants_color(sys.stderr)))


def show_errors(errors: list[HorsiesError], phase: str) -> None:
    """Print all errors, then how many there are."""
    _complain(ValidationReport(phase, list(errors)).format_rust_style(use_colors=wants_color(sys.stderr)))


def show_crash(problem: BaseException) -> None:
    """The traceback of an error that nobody expected."""
    _complain(visible_lines("".join(traceback.format_exception(problem)).rstrip()))


def usage_error(message: str, hint: str | None = None) -> HorsiesError:
    """A command line that cannot be understood."""
    return HorsiesError(message, code=ErrorCode.CLI_INVALID_ARGS, help_text=hint)


def print_json(value: Any) -> None:
    """One document, ASCII only, with times as RFC 3339 in UTC: `2026-01-02T03:04:05.678900Z` (M-15)."""
    sys.stdout.write(f"{json_text(value, default=_in_json, indent=2)}\n")


def _in_json(value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def with_plain_codes(value: Any) -> Any:
    """A stored value with its error codes as plain texts: how the built-in ones are marked in a row is nobody's
    concern (M-15)."""
    from horsies.core.models.tasks import BUILTIN_KEY

    if isinstance(value, list):
        return [with_plain_codes(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {BUILTIN_KEY}:
        return value[BUILTIN_KEY]
    return {name: with_plain_codes(one) for name, one in value.items()}


def seconds(value: float) -> str:
    """How long something took: `3 ms`, `1.2 s`, `5 min 3 s`."""
    if value < 1:
        return f"{max(0.0, value) * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else duration(value)


def between(start: datetime | None, end: datetime | None) -> str | None:
    """How long something took; None if one of the times is not known."""
    return None if start is None or end is None else seconds((end - start).total_seconds())


def some(names: Sequence[str]) -> str:
    """A few of many names."""
    shown = ", ".join(names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown} and {len(names) - _NAMES} more"


def text_of(value: Any) -> str:
    """The text of a table cell."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    return "" if value is None else visible(str(value))


def refuse_watching(watch: bool, *others: bool) -> None:
    """Output for other programs is a single answer, so it cannot be watched."""
    if watch and any(others):
        raise usage_error("--watch can only show a table", "run the command again for new JSON or ids")


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module("horsies.cli.rendering"), name)
    return found
