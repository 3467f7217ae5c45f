"""`horsies explain`: why is this task not running?"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rich.text import Text

from horsies.cli import manual, output
from horsies.cli.ids import OneId, no_such_task, only_one, opened_for
from horsies.cli.options import DatabaseUrl
from horsies.core.monitoring.models.answers import to_jsonable
from horsies.core.monitoring.models.explanations import Explanation
from horsies.monitoring import explain_task

USAGE = "horsies explain shop.tasks:app 0198c5de-0001-7000-8000-000000000001"


def explain(what: OneId, as_json: manual.AsJson = False, database_url: DatabaseUrl = None) -> int:
    """Explain why a task is not running, or what became of it, with the facts behind the answer.

    A workflow node that has no task yet is named by the id of the workflow and the index of the node: ID:3.
    """
    with opened_for(only_one(what, database_url, USAGE), database_url, USAGE) as (app, [subject]):
        found = manual.answer_of(asyncio.run(explain_task(app.get_broker(), subject)), app)
    if found is None:
        raise no_such_task(what, subject, USAGE)
    if as_json:
        manual.print_json(to_jsonable(found))
    else:
        _show(found)
    return 0


def _show(found: Explanation) -> None:
    console = output.out()
    console.print(Text(found.why.value, style="bold").append(f"  {manual.printable(found.message)}", style="default"))
    known: dict[str, Any] = {
        "status": found.status and found.status.value,
        "queue": found.queue,
        "worker": found.worker_id,
        "since": found.since,
        "until": found.until,
        **{str(name).replace("_", " "): _plain(value) for name, value in found.facts.items()},
        "tasks": manual.some(found.tasks) or None,
        "nodes": manual.some(found.nodes) or None,
    }
    lines = {name: manual.text_of(value) for name, value in known.items() if value not in (None, "")}
    width = max(map(len, lines), default=0)
    for name, text in lines.items():
        console.print(Text(f"  {name:<{width}}  ", style="dim").append(text, style="default"))


def _plain(value: Any) -> Any:
    """Texts, numbers and times unchanged, everything else as JSON."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(to_jsonable(value), ensure_ascii=False) if value else None
    return value
