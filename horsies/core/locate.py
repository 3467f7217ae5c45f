"""Finds the app of a command: `pkg.mod:var`, `pkg.mod`, `path/file.py:var` or `path/file.py` (M-01). `discovery.py`
defines the name under which a file is imported; modules in the current directory can be imported.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

from horsies.core import discovery, errors
from horsies.core.app import Horsies


def load_app(locator: str) -> Horsies:
    """The app that a locator names. It raises HRS-206 if the module does not exist or does not contain exactly one app,
    HRS-207 if the locator is not one or names something else, HRS-210 or the errors of the module if it fails."""
    where, colon, variable = locator.strip().partition(":")
    if not where or (colon and not variable.isidentifier()):
        raise _bad_locator(f"{locator!r} does not name a module and an app in it").with_help(
            "use pkg.mod:app, pkg.mod, path/file.py:app or path/file.py"
        )
    module = _import(where)
    return _named_app(module, variable) if variable else _only_app(module)


def is_not_found(problem: errors.HorsiesError) -> bool:
    """Whether a locator names no app; perhaps the word was not meant as one."""
    return problem.code in (errors.ErrorCode.CLI_INVALID_ARGS, errors.ErrorCode.WORKER_INVALID_LOCATOR)


def _import(where: str) -> ModuleType:
    _make_cwd_importable()
    if where.endswith(".py"):
        _refuse_strange_file(where)
    elif not all(part.isidentifier() for part in where.split(".")):
        raise _bad_locator(f"{where!r} is not the name of a module")
    with Horsies.loading():
        return discovery.import_entry(where)


def _make_cwd_importable() -> None:
    cwd = os.getcwd()
    if not any(os.path.realpath(entry or cwd) == os.path.realpath(cwd) for entry in sys.path):
        sys.path.insert(0, cwd)


def _refuse_strange_file(entry: str) -> None:
    path = Path(entry)
    if path.name == entry and "." in path.stem:  # pkg.mod.py
        raise _bad_locator(f"{entry!r} is neither a dotted name nor a path").with_help(
            f"did you mean {path.stem} or {path.stem.replace('.', '/')}.py?"
        )


def _named_app(module: ModuleType, variable: str) -> Horsies:
    app = getattr(module, variable, None)
    if isinstance(app, Horsies):
        return app
    what = f"is of type {type(app).__name__}, not a Horsies app" if hasattr(module, variable) else "does not exist"
    error = _bad_locator(f"{variable!r} in {module.__name__} {what}")
    names = sorted(_apps_in(module))
    raise error.with_help(f"apps in that module: {', '.join(names)}") if names else error


def _only_app(module: ModuleType) -> Horsies:
    apps = _apps_in(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if not apps:
        raise errors.ConfigurationError(
            f"{module.__name__} contains no Horsies app", code=errors.ErrorCode.CLI_INVALID_ARGS
        ).with_help("name the module that contains `app = Horsies(...)`")
    raise errors.ConfigurationError(
        f"{module.__name__} contains several Horsies apps: {', '.join(sorted(apps))}",
        code=errors.ErrorCode.CLI_INVALID_ARGS,
    ).with_help(f"say which one, for example {module.__name__}:{min(apps)}")


def _apps_in(module: ModuleType) -> dict[str, Horsies]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Horsies)}


def _bad_locator(message: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(message, code=errors.ErrorCode.WORKER_INVALID_LOCATOR)
