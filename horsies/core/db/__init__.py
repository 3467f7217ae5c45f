"""The way to PostgreSQL: connections, their pool, the listener for notifications, the bridge from threads to the loop,
and what a failure means.
"""

# fmt: off
from horsies.core import libpq as libpq
from horsies.core.db.bridge import Bridge as Bridge, BridgeError as BridgeError, Reply as Reply, on_bridge as on_bridge
from horsies.core.db.connections import (
    BY_INDEX as BY_INDEX, IN_BULK as IN_BULK, connect as connect, drain_pending_connects as drain_pending_connects,
    make_pool as make_pool,
)
from horsies.core.db.failures import (
    AWAY as AWAY, OperationRefused as OperationRefused, Refused as Refused, SchemaInitFailed as SchemaInitFailed,
    as_broker_result as as_broker_result, as_result as as_result, broker_error as broker_error, by_halves as by_halves,
    describe as describe, facts_of as facts_of, halves as halves, headline_of as headline_of, hint_for as hint_for,
    is_about_content as is_about_content, is_about_one as is_about_one, is_away as is_away, is_held_up as is_held_up,
    is_known as is_known, is_not_permitted as is_not_permitted, is_transient as is_transient, mending as mending,
    reason as reason,
)
from horsies.core.db.listener import (
    Backoff as Backoff, Listener as Listener, answered_within as answered_within, cancel_all as cancel_all,
)
from horsies.core.db.pool import (
    Connection as Connection, Connections as Connections, Pool as Pool, PoolClosed as PoolClosed,
    PoolTimeout as PoolTimeout,
)
from horsies.core.db.pooler import as_one as as_one, in_one_go as in_one_go, without_session as without_session
