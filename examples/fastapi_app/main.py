"""The endpoints. Placing an order stores it, takes it from the stock and sends the task that ships it: one transaction.

The transaction is a dependency. It commits when the endpoint has returned and before the answer goes out
(`scope="function"`): whoever reads "201 Created" can rely on the order and on its task. If anything fails on the way,
neither exists.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, PositiveInt
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from horsies import TaskHandle
from horsies.contrib.asgi import Transactional, lifespan, mount_dashboard, transactional
from horsies.web import ViewOnly

from .tasks import app as horsies_app
from .tasks import ship

# A closed session stays closed: with it, a send after the answer would be in a transaction that nobody commits.
sessions = async_sessionmaker(expire_on_commit=False, close_resets_only=False)


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "shop_stock"

    item: Mapped[str] = mapped_column(primary_key=True)
    quantity: Mapped[int]


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    quantity: Mapped[int]
    shipped: Mapped[bool] = mapped_column(default=False)


class NewOrder(BaseModel):
    item: str
    quantity: PositiveInt = 1


class PlacedOrder(BaseModel):
    order_id: int
    task_id: str


@asynccontextmanager
async def database(_: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(horsies_app.config.broker.dsn().replace("postgresql://", "postgresql+psycopg://"))
    sessions.configure(bind=engine)
    async with engine.begin() as conn:
        await conn.run_sync(Base.metadata.create_all)
    async with sessions.begin() as session:
        await session.merge(Stock(item="book", quantity=3))
    yield
    await engine.dispose()


async def get_session() -> AsyncIterator[AsyncSession]:
    async with sessions.begin() as session:
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session, scope="function")]
Tasks = Annotated[Transactional, Depends(transactional(SessionDep))]
api = FastAPI(lifespan=lifespan(horsies_app, inner=database))
mount_dashboard(api, horsies_app, "/jobs", auth_policy=ViewOnly())  # only called localhost, and only to look at


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: SessionDep, tasks: Tasks) -> PlacedOrder:
    order = Order(item=new.item, quantity=new.quantity)
    session.add(order)
    await session.flush()  # now it has an id
    sent = await tasks(ship).send_async(order.id)
    handle = sent.unwrap_or_raise(HTTPException(503, "orders cannot be taken now"))
    await take_from_stock(session, new)
    return PlacedOrder(order_id=order.id, task_id=handle.task_id)


async def take_from_stock(session: AsyncSession, wanted: NewOrder) -> None:
    enough = (Stock.item == wanted.item) & (Stock.quantity >= wanted.quantity)
    taken = update(Stock).where(enough).values(quantity=Stock.quantity - wanted.quantity).returning(Stock.quantity)
    if await session.scalar(taken) is None:
        raise HTTPException(409, "not enough in stock")  # rolls back the order and its task as well


@api.get("/orders/{order_id}")
async def show_order(order_id: int, session: SessionDep) -> dict[str, str | int | bool]:
    order = await session.scalar(select(Order).where(Order.id == order_id))
    if order is None:
        raise HTTPException(404, "no such order")
    return {"item": order.item, "quantity": order.quantity, "shipped": order.shipped}


@api.get("/tasks/{task_id}/events")
async def watch(task_id: str) -> StreamingResponse:
    """The state of a task whenever it changes, until it has ended; a browser reads this with `EventSource`."""

    async def events() -> AsyncIterator[str]:
        async for info in TaskHandle[str](task_id, horsies_app.get_broker()).watch_async():
            yield f"data: {info.status}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
