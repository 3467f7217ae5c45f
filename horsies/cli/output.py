"""How the commands print: answers on standard output, errors on standard error, colours by M-12."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from horsies.core.errors import ErrorCode, HorsiesError, ValidationReport
from horsies.core.logs import wants_color


def out() -> Console:
    return _console(sys.stdout)


def err() -> Console:
    return _console(sys.stderr)


def screen() -> Console | None:
    """A terminal that can be overwritten; None if there is none."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return None
    return Console(
        file=sys.stdout, force_terminal=True, no_color=not wants_color(sys.stdout), highlight=False, emoji=False
    )


def write(text: str) -> None:
    """Write a line of the answer unchanged, for other programs."""
    sys.stdout.write(f"{text}\n")


def say(text: str) -> None:
    """Print one line for the person on standard error."""
    err().print(text, markup=False)


def show_error(error: HorsiesError) -> None:
    """Headline, place, notes and help (M-30)."""
    _show(error.format_rust_style())


def show_errors(errors: list[HorsiesError], phase: str) -> None:
    """Print all errors, then how many there are."""
    _show(ValidationReport(phase, list(errors)).format_rust_style())


def usage_error(message: str, hint: str | None = None) -> HorsiesError:
    """A command line that cannot be understood."""
    return HorsiesError(message, code=ErrorCode.CLI_INVALID_ARGS, help_text=hint)


def _show(text: str) -> None:
    styled = Text(text)
    styled.highlight_regex(r"(?m)^error(\[HRS-\d+\])?:", "bold red")
    styled.highlight_regex(r"(?m)^warning(\[HRS-\d+\])?:", "bold yellow")
    styled.highlight_regex(r"(?m)^ *-->.*$", "cyan")
    styled.highlight_regex(r"(?m)^ *= (note|help):", "bold")
    err().print(styled)


def _console(stream: TextIO) -> Console:
    color = wants_color(stream)
    # Width only matters for tables; a line of text is never broken, so that it can be searched and copied.
    return Console(
        file=stream,
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,  # ":b:" in the name of a worker is no picture
        soft_wrap=True,
        width=None if stream.isatty() else 120,
    )
