"""`horsies force-unlock`: take everything from workers by name (M-09)."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from horsies.cli import output
from horsies.cli.manual import AsJson, count, opened, print_json, value_of
from horsies.cli.options import DatabaseUrl

_WORKER_ID = re.compile(r".+:[0-9]+:[0-9a-f]{8}")


def force_unlock(
    what: Annotated[
        list[str],
        typer.Argument(metavar="[MODULE] ID...", help="The app, unless --database-url is given, and the worker ids."),
    ],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Return every task of these workers to the queue at once, dead or not, and strike them off the list of workers."""
    module, ids = module_and_ids(what, has_database=database_url is not None)
    if not ids:
        raise output.usage_error("no worker is named", "horsies workers lists them")
    with opened(module, database_url) as app:
        unlocked = value_of(app.worker_utils().force_unlock_workers_sync(ids), app)
    if as_json:
        print_json({"unlocked_count": unlocked, "worker_ids": sorted(set(ids))})
    else:
        text = f"unlocked {count(unlocked, 'task')} of {count(len(set(ids)), 'worker')}"
        output.out().print(text, markup=False)
    return 0


def module_and_ids(what: list[str], *, has_database: bool) -> tuple[str | None, list[str]]:
    """With --database-url there is no module (M-13), nor if the first word is a worker id: then DATABASE_URL counts."""
    if has_database or _WORKER_ID.fullmatch(what[0]):
        return None, what
    return what[0], what[1:]
