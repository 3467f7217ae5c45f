"""The marks of programs that watch (D-61): while one of them is valid, changes of states are notified of."""

from horsies.core.db import Connection
from horsies.core.sql import load


async def announce(conn: Connection, holder: str, seconds: float) -> None:
    """Write the mark of this program, or renew it."""
    await conn.execute(load("waiting/announce_monitor"), {"holder": holder, "seconds": seconds})


async def withdraw(conn: Connection, holder: str) -> None:
    """Take the mark back."""
    await conn.execute(load("waiting/withdraw_monitor"), {"holder": holder})
