"""Two ways to charge an order, of which one survives every crash. `test_payments.py` finds out which.

A task that is retried after a crash runs again, perhaps behind effects of its first run. `charge_hastily` does not
think of that: if its worker dies after the commit, the customer pays twice. `charge` names its request, as the
interface of a payment provider would want it, so doing it again changes nothing.
"""

import os

import psycopg

from horsies import AppConfig, Horsies, RetryPolicy

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))
AFTER_A_CRASH = RetryPolicy.fixed([5, 30], auto_retry_for=["WORKER_CRASHED"])


def connect() -> psycopg.Connection:
    return psycopg.connect(app.config.broker.dsn())


def create_tables() -> None:
    with connect() as conn:
        conn.execute("DROP TABLE IF EXISTS charges")
        conn.execute("CREATE TABLE charges (id serial, order_id int, cents int, request text UNIQUE)")


def charged(order_id: int) -> int:
    """What the customer has paid for this order, in cents."""
    with connect() as conn:
        row = conn.execute("SELECT coalesce(sum(cents), 0) FROM charges WHERE order_id = %s", [order_id]).fetchone()
    assert row is not None
    return int(row[0])


@app.task("payments.charge_hastily", retry_policy=AFTER_A_CRASH)
def charge_hastily(order_id: int, cents: int) -> None:
    with connect() as conn:
        conn.execute("INSERT INTO charges (order_id, cents) VALUES (%s, %s)", [order_id, cents])


@app.task("payments.charge", retry_policy=AFTER_A_CRASH)
def charge(order_id: int, cents: int) -> None:
    with connect() as conn:
        conn.execute(
            "INSERT INTO charges (order_id, cents, request) VALUES (%s, %s, %s) ON CONFLICT (request) DO NOTHING",
            [order_id, cents, f"order {order_id}"],
        )
