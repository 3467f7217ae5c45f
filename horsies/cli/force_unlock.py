"""`horsies force-unlock`: return all tasks of the named workers to the queue (M-09)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from horsies.cli import output
from horsies.cli.manual import AsJson, count, opened, print_json, value_of
from horsies.cli.options import DatabaseUrl
from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError, ErrorCode

USAGE = "horsies force-unlock shop.tasks:app web-1:4242:9f3a11c0; horsies workers lists the workers"
_WORKER_ID = re.compile(r".+:[0-9]+:[0-9a-f]{8}")


def force_unlock(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE] ID...", help="The app, unless --database-url is given, and the worker ids."),
    ],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Return all tasks of these workers to the queue at once, even if the workers are alive, and remove the workers
    from the list of workers. Running tasks run again, whatever their retry policy says."""
    module, ids = module_and_ids(what, has_database=database_url is not None)
    if not ids:
        raise output.usage_error(f"no worker is named: {what[0]!r} was read as the app", USAGE)
    with _found(module, database_url) as app:
        unknown = set(ids) - value_of(app.worker_utils().known_workers_sync(ids), app)
        unlocked = value_of(app.worker_utils().force_unlock_workers_sync(ids), app)
    for worker_id in sorted(unknown):
        output.say(f"no worker {worker_id} is known: it is not registered and holds no task")
    if as_json:
        print_json({"unlocked_count": unlocked, "worker_ids": sorted(set(ids))})
    elif len(unknown) < len(set(ids)):
        text = f"unlocked {count(unlocked, 'task')} of {count(len(set(ids) - unknown), 'worker')}"
        output.out().print(text, markup=False)
    return 1 if unknown else 0


@contextmanager
def _found(module: str | None, database_url: str | None) -> Iterator[Horsies]:
    """Open the app. If its module is not found, the first word may be an id and the module may be missing."""
    try:
        with opened(module, database_url) as app:
            yield app
    except ConfigurationError as problem:
        if problem.code is ErrorCode.WORKER_INVALID_LOCATOR:
            problem.with_note(f"the first word, {module!r}, was read as the app").with_help(USAGE)
        raise


def module_and_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """There is no module with --database-url (M-13), nor if the first word is a worker id; DATABASE_URL is used
    then."""
    if has_database or _WORKER_ID.fullmatch(what[0]):
        return None, what
    return what[0], what[1:]
