"""`horsies grants`: the rights that the roles of producers, clients, workers, schedulers, monitors, operators and
senders in other languages need (O-20), printed as a script or applied.
"""

import asyncio
from typing import Annotated, TypeAlias

import typer

from horsies.cli import database, options, output
from horsies.core import errors, locate
from horsies.core.db import AWAY, connect, describe, headline_of, hint_for
from horsies.core.models.broker import PostgresConfig
from horsies.core.schema import grants as rights
from horsies.core.schema.grants import ProcessKind
from horsies.core.text import visible

Roles: TypeAlias = list[str] | None


def _option(kind: ProcessKind, purpose: str) -> typer.models.OptionInfo:
    return typer.Option(f"--{kind}", metavar="ROLE", help=f"A role that {purpose}; may be repeated.")  # type: ignore[no-any-return]


def grants(
    module: options.OptionalModule = None,
    producers: Annotated[Roles, _option(ProcessKind.PRODUCER, "sends tasks and starts workflows")] = None,
    clients: Annotated[Roles, _option(ProcessKind.CLIENT, "also reads results, cancels, and steers workflows")] = None,
    workers: Annotated[Roles, _option(ProcessKind.WORKER, "runs workers")] = None,
    schedulers: Annotated[Roles, _option(ProcessKind.SCHEDULER, "runs schedulers, also inside a worker")] = None,
    monitors: Annotated[Roles, _option(ProcessKind.MONITOR, "reads everything and changes nothing")] = None,
    operators: Annotated[Roles, _option(ProcessKind.OPERATOR, "runs a dashboard with actions")] = None,
    senders: Annotated[Roles, _option(ProcessKind.SENDER, "sends from SQL and reads its own results")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Run the statements instead of printing them.")] = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Print, as a script for psql, the rights that roles need, or grant them with --apply. Run this as the owner
    of the tables, after horsies init-db and after every upgrade."""
    given = zip(ProcessKind, (producers, clients, workers, schedulers, monitors, operators, senders), strict=True)
    wanted = {kind: list(dict.fromkeys(roles)) for kind, roles in given if roles}
    if not wanted:
        raise output.usage_error("no role is named", "horsies grants --producer web --worker jobs --monitor grafana")
    rights.refuse_impossible([role for roles in wanted.values() for role in roles])
    chosen = database.choose(database_url, locate.load_app(module).config.broker if module is not None else None)
    output.say(chosen.sentence())
    database.refuse_missing(chosen)
    try:
        lines = asyncio.run(_work(chosen.config, wanted, apply=apply))
    except AWAY as problem:
        raise errors.ConfigurationError(
            "the rights could not be granted" if apply else headline_of(describe(problem)),
            code=errors.ErrorCode.BROKER_INIT_FAILED,
            notes=[chosen.config.redact(describe(problem))],
            help_text=hint_for(describe(problem)),
        ) from problem
    for line in lines:
        output.write(line)
    return 0


async def _work(config: PostgresConfig, wanted: rights.RolesByKind, *, apply: bool) -> list[str]:
    conn = await connect(config, session=True, name="horsies grants")
    try:
        for sentence in await rights.open_doors(conn):
            output.say(f"note: {sentence}")
        if apply:
            count = await rights.apply(conn, wanted)
            return [f"{output.count(count, 'grant')} for {output.count(len(_names(wanted)), 'role')}"]
        statements = [grant.statement.as_string(conn) for grant in await rights.script(conn, wanted)]
    finally:
        await conn.close()
    _refuse_unprintable(statements, wanted)
    return ["BEGIN;", *(f"{statement};" for statement in statements), "COMMIT;"]


def _refuse_unprintable(statements: list[str], wanted: rights.RolesByKind) -> None:
    """What would be printed instead of such a name is the name of another role, schema or database."""
    if all(visible(statement) == statement for statement in statements):
        return
    named = [repr(role) for role in sorted(_names(wanted)) if visible(role) != role]
    raise output.usage_error(
        f"a script cannot name {', '.join(named) or 'this schema or database'}: it has characters that are not printed",
        "use --apply, which runs the statements instead of printing them",
    )


def _names(wanted: rights.RolesByKind) -> set[str]:
    return {role for roles in wanted.values() for role in roles}
