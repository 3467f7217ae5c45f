"""The row and its task in one transaction: an order is stored if and only if its confirmation will be sent.

Run it as `python examples/sqlalchemy_outbox.py`. Without `connection=` there would be two commits, and a crash between
them would leave an order without its mail, or a mail without its order. With it there is one. The usual table of
messages to be sent later (the "outbox") and the program that empties it are not needed: the queue is that table.
"""

import asyncio
import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from horsies import AppConfig, Horsies, TaskError, TaskHandle, TaskResult, Worker

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "outbox_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@app.task("outbox.confirm")
def confirm(order_id: int, item: str) -> TaskResult[str, TaskError]:
    return TaskResult(ok=f"confirmed order {order_id}: {item}")


def place_order(session: Session, item: str) -> TaskHandle[str]:
    """Part of whatever transaction the session is in; the caller commits."""
    order = Order(item=item)
    session.add(order)
    session.flush()  # now it has an id
    return confirm.with_options(connection=session).send(order.id, item).unwrap()


def main() -> None:
    asyncio.run(app.get_broker().ensure_schema_initialized()).unwrap()  # usually: horsies init-db
    engine = create_engine(app.config.broker.dsn().replace("postgresql://", "postgresql+psycopg://"))
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)

    with Session(engine) as session, session.begin():
        kept = place_order(session, "a book")

    try:
        with Session(engine) as session, session.begin():
            lost = place_order(session, "a unicorn")
            raise LookupError("not in stock")
    except LookupError as problem:
        print(f"rolled back: {problem}")

    with Session(engine) as session, session.begin():
        many = [place_order(session, "a pen")]
        calls = [confirm.prepare(order_id=number, item="a sheet of paper") for number in range(100, 103)]
        many += confirm.with_options(connection=session).send_many(calls).unwrap()

    asyncio.run(Worker(app).run_once())
    for handle in (kept, *many):
        print(handle.get().unwrap())
    print(f"the task of the unicorn: {lost.get(timeout_ms=0).err_value.error_code}")
    with Session(engine) as session:
        print(f"orders: {', '.join(order.item for order in session.query(Order).order_by(Order.id))}")
    engine.dispose()
    app.get_broker().close()


if __name__ == "__main__":
    main()
