"""Which app a command works on if none is typed (M-01), and what a project says about itself in `[tool.horsies]` of its
pyproject.toml (X-31):

- `app = "shop:app"`: the app;
- `database = "own"`: `horsies dev` leaves the database to the app;
- `before = ["python manage.py migrate"]`: what is run to its end before anything starts;
- `run = ["python manage.py runserver"]`: further programs;
- `reload-dirs = ["../shared"]`: further directories to watch.
"""

import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.text import nearest

FILE = "pyproject.toml"
VARIABLE = "HORSIES_APP"
KEYS = ("app", "database", "before", "run", "reload-dirs")


@dataclass(frozen=True, slots=True)
class Project:
    """The table, and the directory that it is in."""

    directory: Path
    app: str | None = None
    before: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    reload_dirs: tuple[str, ...] = ()
    has_own_database: bool = False


@contextmanager
def naming(app: str | None) -> Iterator[None]:
    """In this block, commands work with this app if none is typed."""
    before = os.environ.get(VARIABLE)
    if app is not None:
        os.environ[VARIABLE] = app
    try:
        yield
    finally:
        if app is not None:
            os.environ.pop(VARIABLE)
            os.environ.update({} if before is None else {VARIABLE: before})


def named_app() -> str | None:
    """The app that `HORSIES_APP` or the nearest table names, if there is one. A table's app is found in its directory,
    so the command runs there."""
    if named := os.environ.get(VARIABLE, "").strip():
        return named
    table = find(Path.cwd())
    if table is None or table.app is None:
        return None
    os.chdir(table.directory)
    return table.app


def required_app() -> str:
    """The same for a command that needs an app."""
    if (named := named_app()) is None:
        raise no_app()
    return named


def no_app() -> ConfigurationError:
    """The error for a command that needs an app."""
    here = Path.cwd()
    inside = below(here)
    error = ConfigurationError(
        "no app is named",
        code=ErrorCode.CLI_INVALID_ARGS,
        help_text=f"cd {shlex.quote(inside.directory.name)}"
        if inside is not None
        else f"type its place, such as shop:app, or name it once: {VARIABLE}=shop:app in the environment, or "
        f'app = "shop:app" in [tool.horsies] of {FILE}',
    )
    return error.with_note("horsies new shop creates a project")


def find(here: Path) -> Project | None:
    """The nearest table, in this directory or one above."""
    for directory in (here, *here.parents):
        if (found := read(directory)) is not None:
            return found
    return None


def below(here: Path) -> Project | None:
    """A project in a folder of this one, for whoever has not gone into it."""
    for file in sorted(here.glob(f"*/{FILE}")):
        with suppress(ConfigurationError):
            if (found := read(file.parent)) is not None and found.app is not None:
                return found
    return None


def read(directory: Path) -> Project | None:
    """The table of this directory; None if there is none. `ConfigurationError` if it cannot be understood."""
    file = directory / FILE
    try:
        with file.open("rb") as opened:
            content = tomllib.load(opened)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except (OSError, ValueError) as problem:
        raise _wrong(file, str(problem)) from None
    tools = content.get("tool", {})
    table = tools.get("horsies") if isinstance(tools, dict) else None
    return None if table is None else _project(file, table)


def _project(file: Path, table: Any) -> Project:
    if not isinstance(table, dict):
        raise _wrong(file, "[tool.horsies] is not a table")
    for key in table:
        if key not in KEYS:
            meant = nearest(key, KEYS)
            hint = f"did you mean {meant}?" if meant else f"it knows {', '.join(KEYS)}"
            raise _wrong(file, f"[tool.horsies] does not know {key!r}", hint)
    app = table.get("app")
    if app is not None and not (isinstance(app, str) and app):
        raise _wrong(file, "[tool.horsies] app is not a text", 'such as app = "shop:app"')
    database = table.get("database")
    if database not in (None, "own"):
        raise _wrong(file, f"[tool.horsies] database is {database!r}", 'leave it out, or write database = "own"')
    before, run, reload_dirs = (_texts(file, table, key) for key in ("before", "run", "reload-dirs"))
    return Project(file.parent, app, before, run, reload_dirs, database is not None)


def _texts(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = table.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
        raise _wrong(file, f"[tool.horsies] {key} is not a list of texts")
    return tuple(given)


def _wrong(file: Path, message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(f"{file}: {message}", code=ErrorCode.CONFIG_INVALID, help_text=hint)
