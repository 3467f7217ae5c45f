"""`manage.py horsies ...`: the commands of `horsies`, each with the app of this project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from horsies.contrib.commands import commands_for
from horsies.contrib.django.project import LOCATOR

PROG = "manage.py horsies"
# Options of Django's own, which `manage.py` has obeyed before: those with a value, and those without.
TAKEN = ("--settings", "--pythonpath")
IGNORED = ("--no-color", "--force-color", "--traceback", "--skip-checks")


def make_command() -> Callable[..., Any]:
    """The command `manage.py horsies`, with its subcommands."""
    return commands_for(LOCATOR, PROG)


def without_django_options(args: Sequence[str]) -> list[str]:
    """What is left for us of the words behind `manage.py horsies`."""
    left: list[str] = []
    words = iter(args)
    for word in words:
        if word in TAKEN:
            next(words, None)
        elif word not in IGNORED and not word.startswith(tuple(f"{option}=" for option in TAKEN)):
            left.append(word)
    return left
