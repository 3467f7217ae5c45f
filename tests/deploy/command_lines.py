"""Command lines of `horsies` in files and pages, read by the parser of the command itself: a name, an option or a value
that does not exist is found without running anything."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import typer

from horsies.cli.main import app as command_line


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The name of the command and the values of its parameters. An `AssertionError` says what it would have said."""
    command = _whole()
    before: list[str] = []
    rest = list(words)
    while hasattr(command, "commands"):
        name = rest.pop(0) if rest else ""
        assert name in command.commands, f"there is no command {' '.join([*before, name])!r}"
        command = command.commands[name]
        before.append(name)
    try:
        with command.make_context(" ".join(before), rest) as context:
            return " ".join(before), dict(context.params)
    except Exception as problem:
        message = getattr(problem, "format_message", None)
        if message is None:
            raise
        raise AssertionError(f"horsies {' '.join(words)}: {message()}") from problem


def unknown(words: list[str]) -> list[str]:
    """Of a command that is only spoken of, perhaps without its arguments: the words that it does not know."""
    command = _whole()
    rest = list(words)
    while hasattr(command, "commands") and rest:
        names = rest.pop(0).split("|")  # one of them
        if missing := [name for name in names if name not in command.commands]:
            return missing
        command = command.commands[names[0]]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    options = [word.partition("=")[0] for word in rest if word.startswith("-")]
    return [word for word in options if word not in known | {"-h", "--help"}]


@cache
def known_options() -> set[str]:
    """The options of all commands."""

    def below(command: Any) -> set[str]:
        own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        return own.union(*map(below, getattr(command, "commands", {}).values()))

    return below(_whole()) | {"--help"}


@cache
def _whole() -> Any:
    return typer.main.get_command(command_line)


def spoken_of(text: str) -> list[list[str]]:
    """The command lines of a page: each line of its code blocks that begins with `horsies`, without its comment."""
    lines = []
    for block in shell_blocks(text):
        whole = re.sub(r"\\\n\s*", " ", block)
        for line in whole.splitlines():
            found = re.fullmatch(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*(?:\S*/bin/)?(horsies .*)", line)
            if found is not None:
                lines += _commands(shlex.split(found[1].removesuffix("&"), comments=True))
    return [words for words in lines if words[:1] not in ([], ["--version"], ["--help"])]


def shell_blocks(text: str) -> list[str]:
    """The code blocks of a page that are for a shell, or do not say for what."""
    found: list[str] = []
    opened: str | None = None
    for line in text.splitlines():
        fence = re.fullmatch(r" *```(.*)", line)
        if fence is None:
            if opened in ("", "sh", "console", "bash"):
                found[-1] += f"{line}\n"
        elif opened is not None:
            opened = None
        else:
            opened = fence[1].partition(" ")[0]
            found.append("")
    return found


def _commands(words: list[str]) -> list[list[str]]:
    """Of a pipe, each part that is a command of ours; `xargs` gives it one word more."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("|", "&&", ">"):
            parts.append([])
        else:
            parts[-1].append(word)
    found = []
    for part in parts:
        if part[:1] == ["horsies"]:
            found.append(part[1:])
        elif part[:2] == ["xargs", "horsies"]:
            found.append([*part[2:], "0198c5de-0001-7000-8000-000000000001"])
    return found
