"""`[MODULE] ID...`: the words of a command about tasks, and which of them is the app."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from horsies.cli import output
from horsies.cli.completing import modules
from horsies.cli.manual import looking, opened
from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError, ErrorCode, HorsiesError

_OURS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(:[0-9]+)?")

OneId: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID",
        help="The app, unless --database-url or DATABASE_URL is used, and the id.",
        autocompletion=modules,
    ),
]
Ids: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="[MODULE] ID...",
        help="The app, unless --database-url or DATABASE_URL is used, and the ids.",
        autocompletion=modules,
    ),
]


def module_and_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """A single word is an id. Of several words the first is the app, unless it looks like one of our ids or
    --database-url is given (M-13)."""
    if len(what) == 1 or has_database or _OURS.fullmatch(what[0]):
        return None, list(dict.fromkeys(what))
    return what[0], list(dict.fromkeys(what[1:]))


@contextmanager
def opened_for(
    what: list[str], database_url: str | None, usage: str, *, acts: bool = False
) -> Iterator[tuple[Horsies, list[str]]]:
    """Open the app, to read the tasks or to act on them, and return it with their ids. If its module is not found, the
    first word may be an id and the module may be missing."""
    module, ids = module_and_ids(what, has_database=database_url is not None)
    try:
        with (opened if acts else looking)(module, database_url) as app:
            yield app, ids
    except ConfigurationError as problem:
        if problem.code is ErrorCode.WORKER_INVALID_LOCATOR:
            problem.with_note(f"the first word, {module!r}, was read as the app").with_help(usage)
        raise


def only_one(what: list[str], database_url: str | None, usage: str) -> list[str]:
    """The words of a command about one task: the app, if it is named, and the id."""
    has_database = database_url is not None
    if len(module_and_ids(what, has_database=has_database)[1]) != 1:
        raise output.usage_error(f"one task at a time: {' '.join(what)}", usage)
    return what


def no_such_task(what: list[str], task_id: str, usage: str) -> HorsiesError:
    """If only one word was typed, it may be the app."""
    is_ours = len(what) > 1 or _OURS.fullmatch(task_id)
    hint = "if it is a workflow: horsies workflow show" if is_ours else f"a single word is the id: {usage}"
    return HorsiesError(f"there is no task {task_id}", help_text=hint)
