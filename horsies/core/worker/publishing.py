"""Publishes what the tasks of this worker are sent with (D-59b), so that senders in other languages need not know it,
and gives tasks that were sent before anybody had published their name what they lack (D-59c).

Both happen when the worker starts, and when its children have other code. Whoever starts last wins, which is right for
a deployment and for its rollback. A task that was being sent while the name was published for the first time may be
seen only afterwards, so the worker looks again after moments, and then once a minute; while there is no such task, that
is one look at an empty table.
"""

import asyncio
import logging
from collections.abc import Callable

from horsies.core.db import Connections
from horsies.core.store import defaults
from horsies.core.tasks.catalogue import Catalogue
from horsies.core.text import counted

log = logging.getLogger("horsies.worker")

PAUSE_S = 60.0
# After something new: a send that had not seen it yet is committed within moments, unless its transaction is long.
MOMENTS_S = (1.0, 4.0)


class Publisher:
    """`catalogue` tells what the children of this worker know."""

    def __init__(self, pool: Connections, catalogue: Callable[[], Catalogue]) -> None:
        self._pool = pool
        self._catalogue = catalogue
        self._published: Catalogue | None = None
        self._pauses = [0.0]

    async def wait(self) -> None:
        """Until it is time to look: at once in the beginning."""
        await asyncio.sleep(self._pauses.pop(0) if self._pauses else PAUSE_S)

    async def publish(self) -> None:
        """Publish what has changed, then adopt what waits for it, in small steps."""
        catalogue = self._catalogue()
        if catalogue != self._published:
            async with self._pool.connection() as conn:
                await defaults.publish(conn, catalogue)
            self._published = catalogue
            self._pauses = list(MOMENTS_S)
        if total := await adopt_all(self._pool, catalogue):
            log.info("%s got a queue: sent from SQL before any worker had published the name", counted(total, "task"))


async def adopt_all(pool: Connections, catalogue: Catalogue) -> int:
    """How many tasks have got what they lacked. Between the steps others may use the connection."""
    total = 0
    while True:
        async with pool.connection() as conn:
            step = await defaults.adopt(conn, catalogue.names)
        total += step.adopted
        if not step.found:
            return total
