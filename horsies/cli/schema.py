"""`horsies schema`: what programs in other languages need to know about the tasks of an app (X-40), as a table for
people, as JSON Schema, or as a typed TypeScript client; and, with `--publish`, what they are sent with, for SQL.
"""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from horsies.cli import database, options, output, tables
from horsies.cli.tables import Column
from horsies.cli.typescript import client_of
from horsies.core import errors, locate
from horsies.core.db import AWAY, connect, describe, headline_of, hint_for
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema.install import look
from horsies.core.store import defaults
from horsies.core.tasks.catalogue import Catalogue, catalogue_of
from horsies.core.tasks.documents import document_of


def schema(
    module: options.Module,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Schema of all tasks.")] = False,
    typescript: Annotated[bool, typer.Option("--typescript", help="Print a typed TypeScript client.")] = False,
    to: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", callback=options.absolute, help="Write into this file instead."),
    ] = None,
    publish: Annotated[
        bool,
        typer.Option("--publish", help="Publish queues and options of the tasks for horsies_send, as a worker does."),
    ] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Describe the tasks of an app for programs in other languages: their arguments, results, queues and errors."""
    if as_json + typescript + publish > 1:
        raise output.usage_error("--json, --typescript and --publish exclude each other", "give one of them")
    if to is not None and not (as_json or typescript):
        raise output.usage_error("--output is for --json and --typescript", "add one of them, or leave it out")
    if database_url is not None and not publish:
        raise output.usage_error("only --publish uses a database", "add it, or leave out --database-url")
    app = locate.load_app(module)
    app.import_modules()
    if publish:
        return _publish(database.choose(database_url, app.config.broker), catalogue_of(app.tasks))
    document = document_of(app.tasks)
    if not as_json and not typescript:
        rows = [{"name": name, **task} for name, task in document["tasks"].items()]
        output.print_rows(tables.Table(_COLUMNS), rows) if rows else output.write("the app has no tasks")
        return 0
    text = client_of(document) if typescript else json.dumps(document, indent=2, ensure_ascii=True) + "\n"
    if to is None:
        for line in text.splitlines():
            output.write(line)
    else:
        to.write_text(text, encoding="utf-8")
        output.say(f"{to}: {output.count(len(document['tasks']), 'task')}")
    return 0


def _publish(chosen: database.Database, catalogue: Catalogue) -> int:
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    try:
        adopted = asyncio.run(_write(chosen.config, catalogue))
    except AWAY as problem:
        raise errors.ConfigurationError(
            headline_of(describe(problem)),
            code=errors.ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
            help_text=hint_for(describe(problem)),
        ) from problem
    output.write(f"{output.count(len(catalogue.tasks), 'task')} published")
    if adopted:
        output.write(f"{output.count(adopted, 'task')} that had been sent before got a queue")
    return 0


async def _write(config: PostgresConfig, catalogue: Catalogue) -> int:
    conn = await connect(config, session=True, name="horsies schema")
    try:
        await look(conn)  # it refuses a database without tables
        await defaults.publish(conn, catalogue)
        total = 0
        while (step := await defaults.adopt(conn, catalogue.names)).found:
            total += step.adopted
        return total
    finally:
        await conn.close()


def _words(schema: Any) -> str:
    """A schema in a few words."""
    if not isinstance(schema, dict) or not schema:
        return "any"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(map(_words, schema[key]))
    if schema.get("type") == "array":
        return f"[{', '.join(map(_words, schema['prefixItems']))}]" if "prefixItems" in schema else (
            f"{_words(schema.get('items'))}[]"
        )  # fmt: skip
    return str(schema.get("format") or schema.get("contentEncoding") or schema.get("type") or "any")


def _arguments(task: dict[str, Any]) -> str:
    given = task["arguments"]
    if "not" in given:
        return _words(task["positional"])
    required = given.get("required", ())
    named = [f"{name}{'' if name in required else '?'}: {_words(one)}" for name, one in given["properties"].items()]
    return ", ".join(named)


_COLUMNS = (
    Column("task", lambda task: task["name"]),
    Column("arguments", _arguments, folds=True),
    Column("result", lambda task: _words(task["result"]), folds=True),
    Column("queue", lambda task: task["queue"], leaves=1),
    Column("priority", lambda task: task["priority"], leaves=3),
    Column("errors", lambda task: ", ".join(task["errors"]), leaves=2, folds=True),
)
