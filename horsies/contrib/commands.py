"""The commands of `horsies` below the command of a framework, each with the app of that project as its argument MODULE:
`manage.py horsies worker`, `flask horsies worker`. They are taken from the command line as they are; one that comes to
it comes here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer.main

from horsies.cli.main import app as horsies_cli

_EXAMPLE_APPS = (" shop.tasks:app", " shop.tasks")
_FACTORY = re.compile(r"\n[^\n]*\n[^\n]*create_app\(\)[^\n]*")  # an example with its line of words
MODULE, WORDS = "module", "what"


def commands_for(locator: str, prog: str) -> Callable[..., Any]:
    """All commands, for the app at this place; `prog` is what one types here instead of `horsies`."""
    group = typer.main.get_command(horsies_cli)
    _supply(group, locator, prog)
    return group


def _supply(command: Any, locator: str, prog: str) -> None:
    for inner in getattr(command, "commands", {}).values():
        _supply(inner, locator, prog)
    if getattr(command, "epilog", None):
        command.epilog = _as_typed_here(command.epilog, prog)
    named = {param.name: param for param in command.params}
    if MODULE in named and named[MODULE].param_type_name == "argument":
        command.params = [param for param in command.params if param.name != MODULE]
        command.callback = _with_module(command.callback, locator)
    elif WORDS in named:
        named[WORDS].metavar = str(named[WORDS].metavar).removeprefix("[MODULE] ")
        named[WORDS].help = None
        command.callback = _with_word(command.callback, locator)


def _with_module(run: Callable[..., Any], locator: str) -> Callable[..., Any]:
    return lambda **values: run(**values, **{MODULE: locator})


def _with_word(run: Callable[..., Any], locator: str) -> Callable[..., Any]:
    """For commands with ids, whose first word may be the app; with --database-url it may not."""

    def call(**values: Any) -> Any:
        words = values.pop(WORDS)
        if values.get("database_url") is None:
            words = [locator, *words]
        return run(**values, **{WORDS: words})

    return call


def _as_typed_here(text: str, prog: str) -> str:
    text = _FACTORY.sub("", text)
    for example in _EXAMPLE_APPS:
        text = text.replace(example, "")
    return text.replace("  horsies ", f"  {prog} ").replace("| xargs horsies", f"| xargs {prog}")
