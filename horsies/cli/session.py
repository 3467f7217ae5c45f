"""What the operator's commands share: the app they work with, which is made on the fly if only a database is given
(M-13); which of the words `[MODULE] ID...` is the app; and how a failure of the database ends a command.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeAlias, TypeVar

import typer

from horsies.cli import database, options, output, project
from horsies.core import errors, locate
from horsies.core.app import Horsies
from horsies.core.db import headline_of, hint_for
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import BrokerResult
from horsies.core.models.monitoring.tasks import MonitoringErrorCode, MonitoringResult
from horsies.core.models.workflow.results import HandleResult
from horsies.core.text import visible
from horsies.core.types import Err, Ok

T = TypeVar("T")
_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:[0-9]+)?")

OneId: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID",
        help="The app, unless it is named elsewhere or --database-url or DATABASE_URL is used, and the id.",
        autocompletion=options.modules,
    ),
]

Ids: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID...",
        help="The app, unless it is named elsewhere or --database-url or DATABASE_URL is used, and the ids.",
        autocompletion=options.modules,
    ),
]


@contextmanager
def open_app(module: str | None, database_url: str | None, *, with_hooks: bool = False) -> Iterator[Horsies]:
    """The app of the module on the chosen database, which must exist, or an app with default settings; it is closed at
    the end."""
    app = None if module is None else locate.load_app(module)
    chosen = database.choose(database_url, None if app is None else app.config.broker)
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    if app is None:
        app = Horsies(AppConfig(broker=chosen.config))
    else:
        database.use(app, chosen)
        if with_hooks:
            app.import_modules()  # these modules may register hooks
    try:
        yield app
    finally:
        app.get_broker().close()


@contextmanager
def open_read_only(module: str | None, database_url: str | None, *, needs_tables: bool = True) -> Iterator[Horsies]:
    """The same for a command that only reads: it creates and migrates nothing, and fails if the tables do not exist."""
    with open_app(module, database_url) as app:
        app.get_broker().only_look()
        if needs_tables:
            _refuse_without_tables(app)
        yield app


@contextmanager
def open_for_ids(
    what: list[str], database_url: str | None, usage: str, *, acts: bool = False
) -> Iterator[tuple[Horsies, list[str]]]:
    """Open the app, to read the tasks or to act on them, and return it with their ids. If its module is not found, the
    first word may be an id and the module may be missing."""
    module, ids = module_and_ids(what, has_database=database_url is not None)
    try:
        with (open_app if acts else open_read_only)(module, database_url) as app:
            yield app, ids
    except errors.ConfigurationError as problem:
        if locate.is_not_found(problem) and module == what[0]:
            problem.with_note(f"the first word, {module!r}, was read as the app").with_help(usage)
        raise


def module_and_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """A single word is an id. Of several words the first is the app, unless it looks like one of our ids or
    --database-url is given (M-13)."""
    if len(what) == 1 or has_database or _OURS.fullmatch(what[0]):
        return None if has_database else project.named_app(), list(dict.fromkeys(what))
    return what[0], list(dict.fromkeys(what[1:]))


def only_one(what: list[str], database_url: str | None, usage: str) -> list[str]:
    """The words of a command about one task: the app, if it is named, and the id."""
    has_database = database_url is not None
    if len(module_and_ids(what, has_database=has_database)[1]) != 1:
        raise output.usage_error(visible(f"one task at a time: {' '.join(what)}"), usage)
    return what


def no_such_task(what: list[str], task_id: str, usage: str) -> errors.HorsiesError:
    """If only one word was typed, it may be the app."""
    is_ours = len(what) > 1 or _OURS.fullmatch(task_id)
    hint = "if it is a workflow: horsies workflow show" if is_ours else f"a single word is the id: {usage}"
    return errors.HorsiesError(f"there is no task {visible(task_id)}", help_text=hint)


def value_of(result: BrokerResult[T] | HandleResult[T], app: Horsies) -> T:
    """The value of a result; a failure ends the command."""
    if isinstance(result, Err):
        problem = result.err_value
        notes = [app.config.broker.redact(problem.message)]
        hint = hint_for(problem.message)
        raise errors.HorsiesError(
            "the database refused the operation", notes=notes, help_text=hint
        ) from problem.exception
    return result.ok_value


def answer_of(result: MonitoringResult[T], app: Horsies) -> T:
    """The answer to a query; an invalid query or a failure of the database ends the command."""
    if isinstance(result, Ok):
        return result.ok_value
    problem = result.err_value
    if problem.code is MonitoringErrorCode.INVALID_ARGUMENT:
        raise output.usage_error(problem.message)
    raise _no_answer(problem.message, app)


def parts_missing(missing: Mapping[str, str], app: Horsies) -> errors.HorsiesError:
    """The queues could not be read."""
    notes = [app.config.broker.redact(f"{part}: {reason}") for part, reason in missing.items()]
    hint = next(filter(None, map(hint_for, missing.values())), None)
    return errors.HorsiesError("some of the numbers could not be read", notes=notes, help_text=hint)


def _refuse_without_tables(app: Horsies) -> None:
    found = app.get_broker().ensure_schema_initialized_sync()
    if isinstance(found, Err):
        problem = found.err_value
        if isinstance(problem.exception, errors.HorsiesError):
            raise problem.exception
        raise _no_answer(problem.message, app)


def _no_answer(message: str, app: Horsies) -> errors.HorsiesError:
    notes = [app.config.broker.redact(message)]
    return errors.HorsiesError(headline_of(message), notes=notes, help_text=hint_for(message))
