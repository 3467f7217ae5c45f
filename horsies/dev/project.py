"""What a project says about itself, in `[tool.horsies]` of its pyproject.toml (X-31):

- `app = "shop:app"`: the app;
- `before = ["python manage.py migrate"]`: what is run to its end before anything starts;
- `run = ["python manage.py runserver"]`: further programs;
- `reload-dirs = ["../shared"]`: further directories to watch.
"""

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.text import nearest

FILE = "pyproject.toml"
KEYS = ("app", "before", "run", "reload-dirs")


@dataclass(frozen=True, slots=True)
class DevProject:
    """The table, and the directory that it is in."""

    directory: Path
    app: str | None = None
    before: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    reload_dirs: tuple[str, ...] = ()


def find(here: Path) -> DevProject | None:
    """The nearest table, in this directory or one above."""
    for directory in (here, *here.parents):
        if (found := read(directory)) is not None:
            return found
    return None


def below(here: Path) -> DevProject | None:
    """A project in a folder of this one, for whoever has not gone into it."""
    for file in sorted(here.glob(f"*/{FILE}")):
        with suppress(ConfigurationError):
            if (found := read(file.parent)) is not None and found.app is not None:
                return found
    return None


def read(directory: Path) -> DevProject | None:
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


def _project(file: Path, table: Any) -> DevProject:
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
    before, run, reload_dirs = (_texts(file, table, key) for key in ("before", "run", "reload-dirs"))
    return DevProject(file.parent, app, before, run, reload_dirs)


def _texts(file: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = table.get(key, [])
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
        raise _wrong(file, f"[tool.horsies] {key} is not a list of texts")
    return tuple(given)


def _wrong(file: Path, message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(f"{file}: {message}", code=ErrorCode.CONFIG_INVALID, help_text=hint)
