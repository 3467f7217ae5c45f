"""The way to PostgreSQL: connections, their pool, the listener for notifications, the bridge from threads to the loop,
and what a failure means.
"""

# fmt: off
from horsies.core import libpq as libpq
from horsies.core.db.bridge import Bridge, BridgeError, Reply, on_bridge
from horsies.core.db.connections import BY_INDEX, IN_BULK, connect, drain_pending_connects, make_pool
from horsies.core.db.failures import (
    AWAY, OperationRefused, Refused, SchemaInitFailed, as_broker_result, as_result, broker_error, by_halves, describe,
    facts_of, halves, headline_of, hint_for, is_about_content, is_about_one, is_away, is_held_up, is_known,
    is_not_permitted, is_transient, mending, reason,
)
from horsies.core.db.listener import Backoff, Listener, answered_within, cancel_all
from horsies.core.db.pool import Connection, Connections, Pool, PoolClosed, PoolTimeout
from horsies.core.db.pooler import as_one, in_one_go, without_session

# fmt: on

__all__ = [
    "AWAY",
    "BY_INDEX",
    "IN_BULK",
    "Backoff",
    "Bridge",
    "BridgeError",
    "Connection",
    "Connections",
    "Listener",
    "OperationRefused",
    "Pool",
    "PoolClosed",
    "PoolTimeout",
    "Refused",
    "Reply",
    "SchemaInitFailed",
    "answered_within",
    "as_broker_result",
    "as_one",
    "as_result",
    "broker_error",
    "by_halves",
    "cancel_all",
    "connect",
    "describe",
    "drain_pending_connects",
    "facts_of",
    "halves",
    "headline_of",
    "hint_for",
    "in_one_go",
    "is_about_content",
    "is_about_one",
    "is_away",
    "is_held_up",
    "is_known",
    "is_not_permitted",
    "is_transient",
    "make_pool",
    "mending",
    "on_bridge",
    "reason",
    "without_session",
]
