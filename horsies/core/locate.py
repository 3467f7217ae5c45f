"""Finds the app of a command: `pkg.mod:var`, `pkg.mod`, `path/file.py:var` or `path/file.py`, or a function that makes
it, `pkg.mod:create_app()` (M-01). `discovery.py` defines the name under which a file is imported; modules in the
current directory can be imported.
"""

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from horsies.core import discovery, errors
from horsies.core.app import Horsies
from horsies.core.text import nearest

_VARIABLE = re.compile(r"([^\W\d]\w*)(\(\))?")
_FORMS = "use pkg.mod:app, pkg.mod, path/file.py:app, path/file.py, or 'pkg.mod:create_app()' for a function"


def load_app(locator: str) -> Horsies:
    """The app that a locator names. It raises HRS-206 if the module does not exist or does not contain exactly one app,
    HRS-207 if the locator is not one or names something else, HRS-210 or the errors of the module if it fails."""
    where, colon, variable = locator.strip().partition(":")
    named = _VARIABLE.fullmatch(variable)
    if not where or (colon and named is None):
        raise _bad_locator(f"{locator!r} does not name a module and an app in it", _FORMS)
    module = _import(where)
    if named is None:
        return _only_app(module, where)
    return _made_app(module, where, named[1]) if named[2] else _named_app(module, where, named[1])


def is_not_found(problem: errors.HorsiesError) -> bool:
    """Whether a locator names no app; perhaps the word was not meant as one."""
    return problem.code in (errors.ErrorCode.CLI_INVALID_ARGS, errors.ErrorCode.WORKER_INVALID_LOCATOR)


def locator_of(app: Horsies) -> str | None:
    """The file and the variable in which a loaded module has this app; of several, the file that made it."""
    places = [
        (os.path.realpath(file), name)
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and file.endswith(".py")
        for name, value in list(vars(module).items())
        if value is app and name.isidentifier()
    ]
    home = None if app.location is None else os.path.realpath(app.location.file)
    found = min(places, key=lambda place: place[0] != home, default=None)
    return found and ":".join(found)


def _import(where: str) -> ModuleType:
    cwd, path = os.getcwd(), Path(where)
    if not any(os.path.realpath(entry or cwd) == os.path.realpath(cwd) for entry in sys.path):
        sys.path.insert(0, cwd)
    if not where.endswith(".py"):
        if not all(part.isidentifier() for part in where.split(".")):
            raise _bad_locator(f"{where!r} is not the name of a module", _FORMS)
    elif path.name == where and "." in path.stem:  # pkg.mod.py
        hint = f"did you mean {path.stem} or {path.stem.replace('.', '/')}.py?"
        raise _bad_locator(f"{where!r} is neither a dotted name nor a path", hint)
    with Horsies.loading():
        return discovery.import_entry(where)


def _named_app(module: ModuleType, where: str, variable: str) -> Horsies:
    app = getattr(module, variable, None)
    if isinstance(app, Horsies):
        return app
    what = f"is of type {type(app).__name__}, not a Horsies app" if hasattr(module, variable) else "does not exist"
    names = [*sorted(_apps_in(module)), *_factories_in(module)]
    meant = nearest(variable, names)
    if inspect.isroutine(app):
        hint: str | None = f"if it makes the app, call it: '{where}:{variable}()'"
    elif meant is not None:
        found = f"{where}:{meant}"
        hint = f"did you mean {shlex.quote(found)}?"
    else:
        hint = f"apps in that module: {', '.join(names)}" if names else None
    raise _bad_locator(f"{variable!r} in {where} {what}", hint)


def _made_app(module: ModuleType, where: str, name: str) -> Horsies:
    """The app that a function of the module returns. It becomes the current app, because modules that define its tasks
    cannot import it."""
    factory = getattr(module, name, None)
    if isinstance(factory, Horsies):
        raise _bad_locator(f"{name!r} in {where} is an app, not a function", f"use {where}:{name}")
    if not callable(factory):
        what = f"is of type {type(factory).__name__}, not a function" if hasattr(module, name) else "does not exist"
        functions = [other for other, value in vars(module).items() if inspect.isfunction(value)]
        meant = nearest(name, functions) or next(iter(_factories_in(module)), None)
        hint = None if meant is None else f"did you mean '{where}:{meant.removesuffix('()')}()'?"
        raise _bad_locator(f"{name!r} in {where} {what}", hint)
    app = _call(factory, f"{where}:{name}()")
    if not isinstance(app, Horsies):
        if inspect.iscoroutine(app):
            app.close()
        message = f"{where}:{name}() returned {type(app).__name__}, not a Horsies app"
        raise _bad_locator(message, "the function must be an ordinary one, and return the app")
    app.make_current()
    return app


def _call(factory: Callable[..., Any], what: str) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as problem:
        hint = "give its parameters defaults; it may read the environment"
        error = _bad_locator(f"{what} cannot be called without arguments: {problem}", hint)
        error.location = errors.SourceLocation.from_function(factory)
        raise error from None
    except ValueError:
        pass  # it has no signature
    try:
        with Horsies.loading():
            return factory()
    except errors.HorsiesError:
        raise
    except (Exception, SystemExit) as problem:
        raise discovery.exec_error(f"{what} failed", problem) from problem


def _only_app(module: ModuleType, where: str) -> Horsies:
    apps = _apps_in(module)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if apps:
        raise errors.ConfigurationError(
            f"{where} contains several Horsies apps: {', '.join(sorted(apps))}",
            code=errors.ErrorCode.CLI_INVALID_ARGS,
        ).with_help(f"say which one, for example {where}:{min(apps)}")
    error = errors.ConfigurationError(f"{where} contains no Horsies app", code=errors.ErrorCode.CLI_INVALID_ARGS)
    if made := _factories_in(module):
        raise error.with_help(f"call the function that makes it: '{where}:{made[0]}'")
    raise error.with_help("name the module that contains `app = Horsies(...)`")


def _apps_in(module: ModuleType) -> dict[str, Horsies]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Horsies)}


def _factories_in(module: ModuleType) -> list[str]:
    """Functions of this module that say that they return an app."""
    found = {name: value for name, value in vars(module).items() if inspect.isfunction(value)}
    returned = {name: getattr(value, "__annotations__", {}).get("return") for name, value in found.items()}
    return sorted(f"{name}()" for name, kind in returned.items() if kind is Horsies or kind == Horsies.__name__)


def _bad_locator(message: str, hint: str | None = None) -> errors.ConfigurationError:
    return errors.ConfigurationError(message, code=errors.ErrorCode.WORKER_INVALID_LOCATOR, help_text=hint)
