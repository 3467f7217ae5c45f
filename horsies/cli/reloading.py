"""`horsies worker --reload`: the same command line again, as a process that is replaced when a file changes (X-30).
`horsies/dev` does the work; it is imported only here, because it needs the extra `dev`.
"""

import logging
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from horsies.cli import output
from horsies.core import distribution, errors
from horsies.dev.program import Program

log = logging.getLogger("horsies.reload")


def run(words: Sequence[str] | None, *, directories: Sequence[Path], patterns: Sequence[str], overlap: bool) -> int:
    """Run the worker of this command line, and replace it, until it is told to stop."""
    refuse_without_extra()
    from horsies.dev import tree, watch

    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it counts every event
    command = command_of(words)
    watcher = watch.Watcher(roots(directories), [*watch.SOURCES, *patterns])
    return tree.Tree(lambda: Program(command, says_ready=True), watcher, log.info, overlap=overlap).run()


def command_of(words: Sequence[str] | None) -> list[str]:
    """This command again: the words behind `horsies`, or the whole program if it is another one, such as `manage.py`,
    with the options of Python (`python -m flask`)."""
    return [sys.executable, *sys.orig_argv[1:]] if words is None else [sys.executable, "-m", "horsies", *words]


def roots(directories: Sequence[Path]) -> list[Path]:
    """What is watched: the current directory, and those that were named."""
    for directory in directories:
        if not directory.is_dir():
            raise output.usage_error(f"--reload-dir: {str(directory)!r} is not a directory")
    return [Path.cwd(), *directories]


def refuse_without_extra(*packages: str) -> None:
    """The first package that is missing is named."""
    for package in ("watchfiles", *packages):
        if find_spec(package) is None:
            raise errors.ConfigurationError(
                f"this needs the package {package}, which is not installed",
                code=errors.ErrorCode.CLI_INVALID_ARGS,
                help_text=distribution.pip_install("dev"),
            )
