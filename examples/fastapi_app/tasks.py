"""The tasks, apart from the web application: a worker loads this module and needs no FastAPI."""

import os

import psycopg

from horsies import AppConfig, Horsies, TaskError, TaskResult

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))


@app.task("shop.ship")
def ship(order_id: int) -> TaskResult[str, TaskError]:
    """Runs in a worker, and only for orders that were committed."""
    with psycopg.connect(app.config.broker.dsn()) as conn:
        conn.execute("UPDATE shop_orders SET shipped = TRUE WHERE id = %s", [order_id])
    return TaskResult(ok=f"order {order_id} is on its way")
