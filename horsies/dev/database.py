"""Which database `horsies dev` works on (X-31). The first of these decides: `DATABASE_URL`, the app's own setting, the
embedded server in `.horsies/postgres`. If it is an embedded one, this process keeps it running, and everything below
finds its real address in `DATABASE_URL`: programs that know nothing of horsies can use it too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from horsies.core.child.forkserver import die_with_parent
from horsies.core.errors import ConfigurationError, ErrorCode

if TYPE_CHECKING:
    from horsies.core.models.broker import PostgresConfig

VARIABLE = "DATABASE_URL"
OWN = Path(".horsies/postgres")
PREFIX = "embedded:"
ASK_S = 60.0
LONG_S = 5.0
LOADED = "embedded"  # a key of the answer: a directory, or null; an app that cannot be loaded has none
PROBLEM = "problem"  # the other key: why it cannot be loaded
MOST_ANSWERED = 1 << 16
MOST_SAID = 300  # characters of a problem


def environment_with_database(
    module: str, environment: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, str]:
    """The environment of the programs. An embedded server that they need is running from now on."""
    given = environment.get(VARIABLE, "").strip()
    if given and not given.startswith(PREFIX):
        say(f"database: from {VARIABLE}")
        return dict(environment)
    path = Path(given.removeprefix(PREFIX)) if given else embedded_path_of(module, environment, say)
    if path is None:
        say("database: the one that the app names")
        return dict(environment)
    path = path.expanduser().resolve()
    is_new = not (path / "data").exists()
    say(f"database: embedded PostgreSQL in {path}{' (creating it; this takes a few seconds)' if is_new else ''}")
    from horsies.core.embedded import ensure_running

    return {**environment, VARIABLE: ensure_running(path)}


def embedded_path_of(module: str, environment: Mapping[str, str], say: Callable[[str], None]) -> Path | None:
    """The directory of the embedded server, None if the app says where its database is. An app that cannot be loaded
    may only lack the address; if it lacks more, its worker says so. If nothing is known of it, this is an error: to
    guess could mean to work on another database than the app would."""
    answer = _answer_of(module, environment, say)
    if LOADED not in answer:
        say(f"{module} did not load without {VARIABLE} ({answer[PROBLEM]}); it gets that of an embedded server")
        return OWN
    path = answer[LOADED]
    return None if path is None else Path(path)


def _answer_of(module: str, environment: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str | None]:
    """The app is loaded in a process of its own, because its code may change. The answer has a pipe of its own, and is
    there when that process has ended: what the app has started may keep every pipe open for as long as it likes."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        asked = subprocess.Popen(
            [sys.executable, "-m", "horsies.dev.database", module, str(writing)],
            env={name: value for name, value in environment.items() if name != VARIABLE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        _wait_for(asked, module, say)
        return _read(reading, module, asked.returncode)
    finally:
        os.close(reading)
        os.close(writing)


def _wait_for(asked: subprocess.Popen[bytes], module: str, say: Callable[[str], None]) -> None:
    """Code that runs at import may block; whoever waits for it should know."""
    try:
        asked.wait(LONG_S)
    except subprocess.TimeoutExpired:
        say(f"importing {module} is slow; waiting up to {ASK_S:.0f} s")
        try:
            asked.wait(ASK_S - LONG_S)
        except subprocess.TimeoutExpired:
            raise _unknown(module, f"its import takes longer than {ASK_S:.0f} s") from None
    finally:
        asked.kill()
        asked.wait()


def _read(reading: int, module: str, code: int) -> dict[str, str | None]:
    try:
        answer: dict[str, str | None] = json.loads(os.read(reading, MOST_ANSWERED))
    except (BlockingIOError, ValueError):
        raise _unknown(module, f"the process that imports it ended with exit code {code}") from None
    return answer


def _unknown(module: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"it is not known whether {module} names a database of its own: {why}",
        code=ErrorCode.CLI_INVALID_ARGS,
        help_text=f"say which one to use, such as {VARIABLE}={PREFIX}{OWN} horsies dev",
    )


def own_setting(config: "PostgresConfig") -> dict[str, str | None]:
    """What the process that loads the app answers. The address of a real server is nobody's business. Settings of a
    framework may have asked for an embedded one themselves."""
    from horsies.core.embedded import held_directories

    path = config.embedded_path or next(iter(held_directories()), None)
    return {LOADED: None if path is None else str(path.expanduser().resolve())}


def reply(module: str, writing: int) -> None:
    """What the process that was asked does."""
    from horsies.core import locate

    os.set_inheritable(writing, False)
    try:
        found = own_setting(locate.load_app(module).config.broker)
    except BaseException as problem:  # also a module that exits
        found = {PROBLEM: (str(problem).partition("\n")[0] or type(problem).__name__)[:MOST_SAID]}
    os.write(writing, json.dumps(found).encode())


if __name__ == "__main__":
    reply(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # threads of the app must not keep it
