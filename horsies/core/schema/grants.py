"""The least rights that each kind of process needs (O-20): as statements for `horsies grants`, and as a question to the
database, so that a worker that lacks one says so before it runs a task.

A producer sends and reads nothing: not even the results of its own tasks, because the ids of all tasks are on channels
to which every role may listen, so that an id proves nothing. Who waits for results is a client. Inserts are granted
column by column, so that a sender cannot write a task that has already ended or belongs to a worker. Programs in other
languages need no table at all, only two functions (X-40); these let a role read the results of what it has sent.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composed, Identifier
from pydantic_core import to_json

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.core.schema.install import SchemaError, look, look_around
from horsies.core.sql import load
from horsies.core.text import visible

LONGEST_NAME = 63  # bytes; the server cuts a longer name off, and would grant to another role


class ProcessKind(StrEnum):
    """What a role is for; each member is an option of `horsies grants`."""

    PRODUCER = "producer"
    CLIENT = "client"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    MONITOR = "monitor"
    OPERATOR = "operator"
    SENDER = "sender"


class Right(NamedTuple):
    """Privileges on one object; with `columns`, only on these."""

    kind: str
    name: str
    privileges: tuple[str, ...]
    columns: tuple[str, ...] = ()


TASKS, ATTEMPTS, HEARTBEATS = "horsies_tasks", "horsies_task_attempts", "horsies_heartbeats"
STATES, WORKERS, WAITING, META = "horsies_worker_states", "horsies_workers", "horsies_waiting", "horsies_meta"
SCHEDULE_STATE, SCHEDULES = "horsies_schedule_state", "horsies_schedules"
WORKFLOWS, NODES = "horsies_workflows", "horsies_workflow_tasks"
LOAD, LOAD_MOVES = "horsies_load", "horsies_load_moves"
PROGRESS, LOGS = "horsies_task_progress", "horsies_task_logs"
KNOWN_NAMES, LEFT_TASKS = "horsies_known_names", "horsies_left_tasks"
ROLLUP, AUDIT = "horsies_rollup", "horsies_audit"
TASK_DEFAULTS, EARLY_TASKS = "horsies_task_defaults", "horsies_early_tasks"
TABLES = (
    TASKS, ATTEMPTS, HEARTBEATS, STATES, WORKERS, WAITING, META, SCHEDULE_STATE, SCHEDULES, WORKFLOWS, NODES, LOAD,
    LOAD_MOVES, PROGRESS, LOGS, KNOWN_NAMES, LEFT_TASKS, ROLLUP, AUDIT, TASK_DEFAULTS, EARLY_TASKS,
)  # fmt: skip

# The columns of `tasks/insert.sql`, `workflows/insert.sql` and `workflows/insert_nodes.sql`.
SENT_COLUMNS = (
    "id", "task_name", "queue_name", "priority", "args", "kwargs", "sent_at", "enqueued_at", "good_until",
    "max_retries", "task_options", "enqueue_sha", "flags", "idempotency_key", "workflow_id",
)  # fmt: skip
# What `tasks/cancel.sql` writes.
CANCELLED_COLUMNS = ("status", "claimed", "claim_expires_at", "result", "error_code", "updated_at")
# What `tasks/change_queue.sql` and `tasks/run_now.sql` write.
CHANGED_COLUMNS = ("queue_name", "priority", "enqueued_at", "next_retry_at", "updated_at")
# What `audit/complete.sql` writes: who did what stays as it was written.
COMPLETED_COLUMNS = ("outcome", "ended_at", "target_ids", "details")
WORKFLOW_COLUMNS = (
    "id", "name", "definition_key", "status", "on_error", "output_index", "success_policy", "parent_workflow_id",
    "parent_task_index", "root_workflow_id", "depth", "good_until", "open_nodes", "sent_at", "started_at",
)  # fmt: skip
NODE_COLUMNS = (
    "workflow_id", "task_index", "node_id", "node_type", "task_name", "task_kwargs", "queue_name", "priority",
    "task_options", "flags", "good_until", "dependencies", "dependents", "deps_total", "args_from", "workflow_ctx_from",
    "join_type", "min_success", "allow_failed_deps", "status", "task_id", "map_index", "map_position", "map_options",
    "sub_workflow_key", "sub_workflow_id", "ready_at", "enqueued_at", "started_at",
)  # fmt: skip


def _table(name: str, *privileges: str, columns: tuple[str, ...] = ()) -> Right:
    return Right("TABLE", name, privileges, columns)


# The columns of the other two kinds count up by themselves without a right (GENERATED … AS IDENTITY).
_COUNT_ATTEMPTS = Right("SEQUENCE", "horsies_task_attempts_id_seq", ("USAGE",))
_COUNT_NODES = Right("SEQUENCE", "horsies_workflow_tasks_id_seq", ("USAGE",))
_FIND_SENT = Right("FUNCTION", "horsies_find_sent(json)", ("EXECUTE",))
_DOOR = (
    Right("FUNCTION", "horsies_send(text, jsonb, text, integer, interval, timestamptz, text)", ("EXECUTE",)),
    Right("FUNCTION", "horsies_result(text)", ("EXECUTE",)),
)
_ALIVE_UNTIL = Right("FUNCTION", "horsies_alive_until(timestamptz, jsonb)", ("EXECUTE",))
_IN_FLIGHT = Right("FUNCTION", "horsies_in_flight(text)", ("EXECUTE",))
_RING = Right("FUNCTION", "horsies_ring(text, text, text)", ("EXECUTE",))
_WAKE = Right("FUNCTION", "horsies_wake_workers(text, bigint, text, text)", ("EXECUTE",))

_EVERYBODY = (Right("DATABASE", "", ("CONNECT",)), Right("SCHEMA", "", ("USAGE",)), _table(META, "SELECT"))
_SEND = (_table(TASKS, "INSERT", columns=SENT_COLUMNS), _table(TASKS, "SELECT", columns=("id",)), _FIND_SENT)
_START_WORKFLOWS = (
    _table(WORKFLOWS, "INSERT", columns=WORKFLOW_COLUMNS),
    _table(WORKFLOWS, "SELECT", columns=("id", "definition_key")),
    _table(NODES, "INSERT", columns=NODE_COLUMNS),
    _COUNT_NODES,
)
_READ = tuple(_table(name, "SELECT") for name in TABLES if name != META)
_SCHEDULE = (_table(SCHEDULES, "SELECT"), _table(SCHEDULE_STATE, "SELECT", "INSERT", "UPDATE"))

_STEER = (
    *_EVERYBODY,
    *_READ,
    _table(TASKS, "INSERT", columns=SENT_COLUMNS),
    _table(TASKS, "UPDATE", columns=(*CANCELLED_COLUMNS, "is_held")),
    *_START_WORKFLOWS,
    _table(WORKFLOWS, "UPDATE"),
    _table(NODES, "UPDATE"),
    _table(WAITING, "INSERT", "UPDATE", "DELETE"),
    _table(ROLLUP, "INSERT", "UPDATE"),  # it counts what it cancels
    _table(EARLY_TASKS, "INSERT"),  # a task that ended before its name was known can be sent again
    _FIND_SENT,
    _RING,
    *_DOOR,
)

RIGHTS: Mapping[ProcessKind, tuple[Right, ...]] = {
    ProcessKind.PRODUCER: (*_EVERYBODY, *_SEND, *_START_WORKFLOWS, *_DOOR),
    ProcessKind.CLIENT: _STEER,
    ProcessKind.WORKER: (
        *_EVERYBODY,
        _table(TASKS, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(ATTEMPTS, "SELECT", "INSERT"),
        _table(HEARTBEATS, "SELECT", "INSERT", "UPDATE", "DELETE"),  # rows are locked before they are deleted
        _table(STATES, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(WORKERS, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(WAITING, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(SCHEDULES, "SELECT"),  # for its metrics
        _table(SCHEDULE_STATE, "SELECT"),
        _table(WORKFLOWS, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(NODES, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(LOAD, "SELECT", "INSERT", "UPDATE", "DELETE"),  # a row is locked before it is replaced
        _table(LOAD_MOVES, "SELECT", "INSERT", "DELETE"),
        _table(PROGRESS, "SELECT", "INSERT", "UPDATE"),
        _table(LOGS, "SELECT", "INSERT", "UPDATE", "DELETE"),  # rows are locked before they are deleted
        _table(KNOWN_NAMES, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(LEFT_TASKS, "SELECT", "INSERT", "UPDATE", "DELETE"),  # rows are locked before they are deleted
        _table(ROLLUP, "SELECT", "INSERT", "UPDATE", "DELETE"),
        _table(AUDIT, "SELECT", "INSERT", "UPDATE", "DELETE"),  # the same
        _table(TASK_DEFAULTS, "SELECT", "INSERT", "UPDATE"),
        _table(EARLY_TASKS, "SELECT", "INSERT", "UPDATE", "DELETE"),  # rows are locked before they are deleted
        _ALIVE_UNTIL,
        _IN_FLIGHT,
        _COUNT_ATTEMPTS,
        _COUNT_NODES,
        _FIND_SENT,
        _RING,
        _WAKE,
    ),
    ProcessKind.SCHEDULER: (*_EVERYBODY, *_SEND, *_SCHEDULE),
    ProcessKind.MONITOR: (*_EVERYBODY, *_READ),
    ProcessKind.OPERATOR: (
        *_STEER,
        _table(TASKS, "UPDATE", columns=CHANGED_COLUMNS),
        _table(WORKERS, "UPDATE", columns=("drain_requested_at",)),
        _table(AUDIT, "INSERT"),
        _table(AUDIT, "UPDATE", columns=COMPLETED_COLUMNS),
    ),
    # A program in another language, or the owner of a trigger: it needs no right to any table.
    ProcessKind.SENDER: (*_EVERYBODY[:2], *_DOOR),
}

RolesByKind: TypeAlias = Mapping[ProcessKind, Sequence[str]]


async def script(conn: psycopg.AsyncConnection[Any], roles: RolesByKind) -> list[Composed]:
    """The statements, for the tables that this connection sees. The roles need not exist."""
    refuse_impossible([role for some in roles.values() for role in some])
    await look(conn)  # it refuses a database without tables
    server = await look_around(conn)
    assert server.schema is not None
    return [
        _grant(right, role, server.database, server.schema)
        for kind, some in roles.items()
        for role in some
        for right in RIGHTS[kind]
    ]


async def open_doors(conn: psycopg.AsyncConnection[Any]) -> list[str]:
    """What every role of the server may do here, so that the rights of some mean less."""
    server = await look_around(conn)
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load("schema/public_rights").encode())
        [(may_connect, may_create)] = await cursor.fetchall()
    found = []
    if may_connect:
        found.append(f"every role may connect: REVOKE CONNECT ON DATABASE {_quoted(server.database)} FROM PUBLIC")
    if may_create:
        found.append(
            f"every role may create functions: REVOKE CREATE ON SCHEMA {_quoted(server.schema or '')} FROM PUBLIC"
        )
    return found


async def apply(conn: psycopg.AsyncConnection[Any], roles: RolesByKind) -> int:
    """Run the statements in one transaction, and see that they took effect; return how many there were."""
    statements = await script(conn, roles)
    named = sorted({role for some in roles.values() for role in some})
    async with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load("schema/known_roles").encode(), {"roles": named})
        known = {row[0] for row in await cursor.fetchall()}
        if unknown := [role for role in named if role not in known]:
            create = "; ".join(f"CREATE ROLE {_quoted(role)} LOGIN" for role in unknown)
            raise ConfigurationError(
                f"there is no role {', '.join(map(repr, unknown))} on this server",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text=f"create it first ({create}), or leave out --apply to get the statements as a script",
            )
        for statement in statements:
            await cursor.execute(statement)
        for kind, some in roles.items():
            for role in some:
                if lacking := await missing(conn, [kind], role):
                    raise SchemaError(
                        f"the rights of role {role!r} could not be granted",
                        notes=[f"it still lacks: {grants_of(lacking, role)}"],
                        help_text="run this as the owner of the tables, the schema and the database",
                    )
    return len(statements)


async def missing(
    conn: psycopg.AsyncConnection[Any], kinds: Iterable[ProcessKind], role: str | None = None
) -> list[Right]:
    """The rights for all this that the role, or the role of this connection, does not have on what exists; one
    statement. A table that somebody renamed is not a matter of rights: the statements that need it fail and say so."""
    wanted = list(dict.fromkeys(one for kind in kinds for right in RIGHTS[kind] for one in _single(right)))
    rows = [
        {
            "place": place,
            "kind": right.kind,
            "name": right.name,
            "column": next(iter(right.columns), None),
            "privilege": right.privileges[0],
        }
        for place, right in enumerate(wanted)
    ]
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load("schema/missing_rights").encode(), {"rights": to_json(rows).decode(), "role": role})
        return [wanted[place] for (place,) in await cursor.fetchall()]


async def refuse_without_rights(conn: psycopg.AsyncConnection[Any], kinds: Sequence[ProcessKind]) -> None:
    """Raise if the role of this connection lacks a right that it will need, and name the grant."""
    if not (lacking := await missing(conn, kinds)):
        return
    server = await look_around(conn)
    wanted = " ".join(f"--{kind} {visible(shlex.quote(server.user))}" for kind in kinds)
    raise SchemaError(
        f"the role {server.user!r} lacks rights that a {kinds[0]} needs",
        notes=[server.place, f"missing: {grants_of(lacking, server.user)}"],
        help_text=f"let the owner of the tables run: horsies grants {wanted} --apply, with the same app or "
        "--database-url (without --apply it prints the statements)",
    )


def refuse_impossible(roles: Iterable[str]) -> None:
    """No role can have such a name, or the statement would mean another one."""
    for role in roles:
        if role.lower() == "public":
            why = "PUBLIC is every role of the server; name roles that are meant"
        elif not role.strip() or not _can_be_stored(role):
            why = f"{role!r} is not the name of a role"
        elif len(role.encode()) > LONGEST_NAME:
            why = f"{role!r} is longer than {LONGEST_NAME} bytes, so no role has this name"
        else:
            continue
        raise ConfigurationError(why, code=ErrorCode.CLI_INVALID_ARGS)


def grants_of(rights: Sequence[Right], role: str) -> str:
    """The rights as short grants for a message, columns of a table together."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for right in rights:
        by_privilege = found.setdefault((right.kind, right.name), {})
        by_privilege.setdefault(right.privileges[0], []).extend(right.columns)
    parts = []
    for (kind, name), by_privilege in found.items():
        what = ", ".join(
            f"{privilege} ({', '.join(columns)})" if columns else privilege
            for privilege, columns in by_privilege.items()
        )
        parts.append(f"GRANT {what} ON {kind} {name or '(this one)'} TO {_quoted(role)}")
    return "; ".join(parts)


def _single(right: Right) -> Iterator[Right]:
    for privilege in right.privileges:
        for column in right.columns or (None,):
            yield Right(right.kind, right.name, (privilege,), () if column is None else (column,))


def _grant(right: Right, role: str, database: str, schema: str) -> Composed:
    privileges = SQL(", ").join(SQL(privilege) for privilege in right.privileges)
    if right.columns:
        columns = SQL(", ").join(map(Identifier, right.columns))
        privileges = SQL("{} ({})").format(privileges, columns)
    return SQL("GRANT {} ON {} {} TO {}").format(
        privileges, SQL(right.kind), _object(right, database, schema), Identifier(role)
    )


def _object(right: Right, database: str, schema: str) -> Composed | Identifier:
    match right.kind:
        case "DATABASE":
            return Identifier(database)
        case "SCHEMA":
            return Identifier(schema)
        case "FUNCTION":
            name, _, arguments = right.name.partition("(")
            return Identifier(schema, name) + SQL("(") + SQL(arguments)
        case _:
            return Identifier(schema, right.name)


def _can_be_stored(name: str) -> bool:
    """A byte that is not UTF-8 arrives from the command line as half a character."""
    return "\0" not in name and not any("\ud800" <= char <= "\udfff" for char in name)


def _quoted(name: str) -> str:
    """For a message."""
    return visible('"' + name.replace('"', '""') + '"')
