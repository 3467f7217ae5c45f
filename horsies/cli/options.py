"""Converts the words of a command line to values (durations, JSON, lists), and holds the options that several commands
share.

A word that cannot be read is a `typer.BadParameter`, which names the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from horsies.cli.completing import modules

E = TypeVar("E", bound=StrEnum)

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh]?)")
_DAYS = re.compile(r"([0-9]+(?:\.[0-9]+)?)d")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_LONGEST = timedelta(days=365)
_OLDEST = timedelta(days=36_500)


class LogLevel(StrEnum):
    """The names that `logging` knows."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class LogFormat(StrEnum):
    """`text` for people, `json` for programs."""

    TEXT = "text"
    JSON = "json"


def parse_duration(text: str) -> timedelta:
    """`300` and `300s` are seconds, `5m` minutes, `2h` hours (M-02)."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: give seconds (300) or a number with s, m or h (30s, 5m)")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST.total_seconds():
        raise typer.BadParameter(f"{text!r} is longer than a year")
    return timedelta(seconds=seconds)


def parse_age(text: str) -> timedelta:
    """A duration that may also be in days; an age may be longer than a year."""
    if (match := _DAYS.fullmatch(text.strip())) is None:
        return parse_duration(text)
    if (days := float(match[1])) > _OLDEST.days:
        raise typer.BadParameter(f"{text!r} is longer than a century")
    return timedelta(days=days)


def parse_names(texts: list[str] | None, option: str = "--queues") -> tuple[str, ...] | None:
    """`--queues a,b --queues c` gives three names; None if the option is not given."""
    names = tuple(name.strip() for text in texts or () for name in text.split(",") if name.strip())
    if texts and not names:
        raise typer.BadParameter("no name was given", param_hint=f"'{option}'")
    return names or None


def parse_members(
    kind: type[E], texts: list[str] | None, option: str, among: Iterable[E] | None = None
) -> tuple[E, ...]:
    """The same for members of an enumeration, or of a part of it, in any case."""
    known = {str(member.value).upper(): member for member in (kind if among is None else among)}
    names = parse_names(texts, option) or ()
    if wrong := [name for name in names if name.upper() not in known]:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(known)}", param_hint=f"'{option}'")
    return tuple(known[name.upper()] for name in names)


def parse_json(text: str | None, kind: type, option: str) -> str | None:
    """A JSON text of the wanted kind (`list` or `dict`), returned unchanged; the task's codec decodes its values."""
    if text is None:
        return None
    wanted = "a JSON list, such as '[1, \"two\"]'" if kind is list else "a JSON object, such as '{\"id\": 1}'"
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise typer.BadParameter(f"this is not JSON: {problem}; give {wanted}", param_hint=f"'{option}'") from None
    if not isinstance(value, kind):
        raise typer.BadParameter(f"give {wanted}", param_hint=f"'{option}'")
    return text


Module: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="MODULE",
        help="The app: pkg.mod:app, pkg.mod, path/file.py:app or path/file.py.",
        autocompletion=modules,
    ),
]
OptionalModule: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE", help="The app; without it, --database-url or DATABASE_URL is used.", autocompletion=modules
    ),
]
Queues: TypeAlias = Annotated[
    list[str] | None, typer.Option("--queue", "-q", metavar="NAMES", help="Only tasks of these queues.")
]
TaskNames: TypeAlias = Annotated[
    list[str] | None, typer.Option("--task", "-t", metavar="NAMES", help="Only tasks with these names.")
]
DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url", metavar="URL", help="Use this database instead: postgresql://… or embedded:DIRECTORY."
    ),
]
