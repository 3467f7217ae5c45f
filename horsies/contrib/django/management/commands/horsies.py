"""`manage.py horsies worker`, and all other commands of `horsies`."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from horsies.cli.main import run, run_and_exit
from horsies.contrib.django import commands
from horsies.contrib.django.project import project_app


class Command(BaseCommand):
    help = "Run a command of horsies with the app of this project: worker, scheduler, check, send, tasks, web, ..."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """The words belong to our own parser, which also ends the process: threads of user code must not keep it."""
        prog = f"{os.path.basename(argv[0]) or 'manage.py'} {argv[1]}"
        run_and_exit(commands.without_django_options(argv[2:]), commands.make_command(), prog)

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("words", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:
        """For `call_command("horsies", "check")`."""
        words = [str(word) for word in (*args, *options.get("words", ()))]
        with project_app().as_it_was():
            code = run(words, commands.make_command(), commands.PROG)
        if code != 0:
            raise CommandError(f"horsies {' '.join(words[:1])} failed", returncode=code)
