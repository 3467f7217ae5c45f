"""`manage.py horsies worker`, and all other commands of `horsies`, with the app of this project."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from horsies.cli.main import run, run_and_exit
from horsies.contrib.django.project import LOCATOR, project_app

PROG = "manage.py horsies"
# Options of Django's own, which `manage.py` has obeyed before: those with a value, and those without.
TAKEN = ("--settings", "--pythonpath")
IGNORED = ("--no-color", "--force-color", "--traceback", "--skip-checks")


class Command(BaseCommand):
    help = "Run a command of horsies with the app of this project: worker, scheduler, check, send, tasks, web, ..."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """The words belong to our own parser, which also ends the process: threads of user code must not keep it."""
        prog = f"{os.path.basename(argv[0]) or 'manage.py'} {argv[1]}"
        run_and_exit(without_django_options(argv[2:]), prog, LOCATOR)

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        """For `call_command("horsies", "check")`."""
        words = [str(word) for word in (*args, *options.get("words", ()))]
        with project_app().as_it_was():
            code = run(words, PROG, LOCATOR)
        if code != 0:
            raise CommandError(f"horsies {' '.join(words[:1])} failed", returncode=code)


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
