"""horsies in applications of Flask (X-21): `bind(flask_app, app)` runs each task inside an app context of the Flask
application, so that `flask.current_app`, `flask.g` and extensions such as Flask-SQLAlchemy work in tasks as they do in
requests. `flask horsies worker` starts a worker of the app.

A context belongs to one task and its hooks, also where many async tasks share a process: contexts of Flask follow the
asyncio task. Functions of `teardown_appcontext` run when the last hook has ended, with the exception of the task if it
raised one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import click
from flask import Flask

from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.locate import locator_of

__all__ = ["bind"]
FlaskSource: TypeAlias = Flask | Callable[[], Flask] | str
EXTENSION = "horsies"
PROG = "flask horsies"
_WANTED = 'bind(flask_app, app), bind(create_app, app), or bind("shop:create_app", app) if shop imports this module'


def bind(flask_app: FlaskSource, app: Horsies) -> None:
    """Run every task of `app` in an app context of the Flask application.

    `flask_app` is the application, or a function that makes it, or the name of one of them: `"shop:create_app"`. A
    function is called, and a name is imported, once in each process that runs tasks, before its first task; a web
    server never does so. With an application, this also adds `flask horsies`, the commands of horsies for this app.
    """
    if not isinstance(app, Horsies):
        raise _misused(f"bind takes a Horsies app, not {type(app).__name__}")
    if not isinstance(flask_app, Flask | str) and not callable(flask_app):
        raise _misused(f"bind takes a Flask application, not {type(flask_app).__name__}")
    binding = _bindings.get(app)
    if binding is None:
        binding = _bindings[app] = _Binding(flask_app)
        app.on_child_process_start(binding.prepare)
        app.task_hooks.add_outermost(binding.around)
    else:  # a second call, such as that of a factory that is called for each test
        binding.replace(flask_app)
    if isinstance(flask_app, Flask):
        flask_app.extensions[EXTENSION] = app
        flask_app.cli.add_command(_command(app), EXTENSION)


class _Binding:
    """The Flask application of one app, made when it is needed."""

    def __init__(self, source: FlaskSource) -> None:
        self._source = source

    def replace(self, source: FlaskSource) -> None:
        self._source = source
        self.__dict__.pop("flask_app", None)

    @cached_property
    def flask_app(self) -> Flask:
        made = _imported(self._source) if isinstance(self._source, str) else self._source
        source = made
        if not isinstance(made, Flask) and callable(made):
            made = made()
        if not isinstance(made, Flask):
            raise _misused(f"{source!r} is no Flask application, and does not make one")
        return made

    def prepare(self) -> None:
        """In a child, before its tasks: a factory that fails is a worker that does not start."""
        _ = self.flask_app

    def around(self, ctx: Any) -> Iterator[None]:
        with self.flask_app.app_context():
            yield


_bindings: WeakKeyDictionary[Horsies, _Binding] = WeakKeyDictionary()


def _imported(name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise _misused(f"{name!r} does not name a module and an application in it")
    found: Any = importlib.import_module(module)
    for part in attribute.removesuffix("()").split("."):
        if not hasattr(found, part):
            raise _misused(f"there is no {part!r} in {module!r}")
        found = getattr(found, part)
    return found


def _command(app: Horsies) -> click.Command:
    """`flask horsies ...`: the command line of horsies, with this app if none is typed."""

    @click.command(
        EXTENSION,
        short_help="Workers, checks and more of horsies.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def horsies(arguments: tuple[str, ...]) -> None:
        from horsies.cli.main import run

        # If no variable has the app, its processes could not find it; the command says what to name.
        sys.exit(run(list(arguments), PROG, locator_of(app)))

    return horsies


def _misused(message: str) -> ConfigurationError:
    return ConfigurationError(message, code=ErrorCode.CONFIG_INVALID, help_text=_WANTED)
