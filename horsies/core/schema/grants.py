"""The rights that each kind of process needs (O-20), as statements for `horsies grants`. A right that is missing is
PostgreSQL's own error at the statement that needs it. A table of docs/security.md says what each kind may do.

A worker has every table but those of schedules. The others have the least rights that they need: inserts are granted
column by column, so that a sender cannot write a task that has already ended or belongs to a worker. A producer sends
and reads nothing: not even the results of its own tasks, because the ids of all tasks are on channels to which every
role may listen, so that an id proves nothing. Who waits for results is a client. Programs in other languages need no
table at all, only two functions (X-40); these let a role read the results of what it has sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Composed, Identifier

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
_NOT_OF_WORKERS = (META, SCHEDULES, SCHEDULE_STATE)
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
        *_READ,
        *(_table(name, "INSERT", "UPDATE", "DELETE") for name in TABLES if name not in _NOT_OF_WORKERS),
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


class Grant(NamedTuple):
    """One right for one role, and the statement that gives it."""

    right: Right
    role: str
    statement: Composed


async def script(conn: psycopg.AsyncConnection[Any], roles: RolesByKind) -> list[Grant]:
    """All of them, for the tables that this connection sees. The roles need not exist."""
    refuse_impossible([role for some in roles.values() for role in some])
    await look(conn)  # it refuses a database without tables
    server = await look_around(conn)
    assert server.schema is not None
    return [
        Grant(right, role, _grant(right, role, server.database, server.schema))
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
    grants = await script(conn, roles)
    named = sorted({role for some in roles.values() for role in some})
    async with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(load("schema/known_roles").encode(), {"roles": named})
        may_enter: dict[str, bool] = dict(await cursor.fetchall())
        if unknown := [role for role in named if role not in may_enter]:
            create = "; ".join(f"CREATE ROLE {_quoted(role)} LOGIN" for role in unknown)
            raise ConfigurationError(
                f"there is no role {', '.join(map(repr, unknown))} on this server",
                code=ErrorCode.CLI_INVALID_ARGS,
                help_text=f"create it first ({create}), or leave out --apply to get the statements as a script",
            )
        await cursor.execute("SET LOCAL client_min_messages = warning")
        for right, role, statement in grants:
            with _warnings(conn) as heard:
                await cursor.execute(statement)
            # The owner of the tables may own neither the database nor the schema; these may be open already.
            if heard and not (right.kind in ("DATABASE", "SCHEMA") and may_enter[role]):
                raise SchemaError(
                    f"the rights of role {role!r} could not be granted",
                    notes=[f"the server said: {'; '.join(heard)}"],
                    help_text="run this as the owner of the tables, the schema and the database",
                )
    return len(grants)


@contextmanager
def _warnings(conn: psycopg.AsyncConnection[Any]) -> Iterator[list[str]]:
    """What the server says if it has granted less than the statement names: that is an error only for a role that has
    no right at all on the object."""
    heard: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == "01007":  # privilege_not_granted
            heard.append(notice.message_primary or "")

    conn.add_notice_handler(hear)
    try:
        yield heard
    finally:
        conn.remove_notice_handler(hear)


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
