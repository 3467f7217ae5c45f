"""`horsies worker --reload`: the same command line again, as a process that is replaced when a file changes (X-30).
`horsies/dev` does the work; it is imported only here, because it needs the extra `dev`.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from horsies.cli import output
from horsies.core import distribution, errors

log = logging.getLogger("horsies.reload")
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    words: Sequence[str] | None, module: str, *, directories: Sequence[Path], patterns: Sequence[str], overlap: bool
) -> int:
    """Run the worker of this command line, and replace it, until it is told to stop."""
    refuse_without_extra()
    from horsies.dev import generations, watch

    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it counts every event
    watcher = watch.Watcher(roots(module, directories), [*watch.SOURCES, *patterns])
    worker = generations.Generations(command_of(words), watcher, say=log.info, environment=os.environ, overlap=overlap)
    return asyncio.run(until_told(worker.run, worker.stop))


def command_of(words: Sequence[str] | None) -> list[str]:
    """This command again: the words behind `horsies`, or the whole program if it is another one, such as `manage.py`,
    with the options of Python (`python -m flask`)."""
    return [sys.executable, *sys.orig_argv[1:]] if words is None else [sys.executable, "-m", "horsies", *words]


def roots(module: str, directories: Sequence[Path]) -> list[Path]:
    """What is watched from the start. What the app imports from elsewhere is added when it is loaded."""
    from horsies.dev import watch

    for directory in directories:
        if not directory.is_dir():
            raise output.usage_error(f"--reload-dir: {str(directory)!r} is not a directory")
    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))  # as for the worker, so that the app is found
    return [*watch.roots_of(module, here), *(directory.resolve() for directory in directories)]


async def until_told(work: Callable[[], Awaitable[int]], stop: Callable[[], None]) -> int:
    """The work, with the signals that end it."""
    loop = asyncio.get_running_loop()
    for one in STOPS:
        loop.add_signal_handler(one, stop)
    return await work()


def refuse_without_extra(*packages: str) -> None:
    """The first package that is missing is named."""
    for package in ("watchfiles", *packages):
        if find_spec(package) is None:
            raise errors.ConfigurationError(
                f"this needs the package {package}, which is not installed",
                code=errors.ErrorCode.CLI_INVALID_ARGS,
                help_text=distribution.pip_install("dev"),
            )
