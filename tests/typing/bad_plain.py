"""What a type checker must refuse about plain functions as tasks, and about nodes that take plain values: each line
that ends in `E:` and a code, and no other."""

from __future__ import annotations

from starlette.applications import Starlette

from horsies import (
    AppConfig,
    AsyncTaskContext,
    Horsies,
    PostgresConfig,
    TaskContext,
    TaskError,
    TaskHandle,
    TaskResult,
    from_node,
)
from horsies.contrib.asgi import Transactional, mount_dashboard
from horsies.web import ViewOnly

app = Horsies(AppConfig(broker=PostgresConfig(database_url="postgresql+psycopg://h/d")))
Int = TaskResult[int, TaskError]


@app.task
def add(a: int, b: int = 1) -> int:
    return "3"  # E: return-value


@app.task
def watched(ctx: TaskContext, count: int) -> list[int]:
    return [ctx.attempt] * count


@app.task("followed")
async def followed(ctx: AsyncTaskContext, url: str) -> str:
    return url


add.send()  # E: call-arg
add.send("1")  # E: arg-type
add.send(1, c=2)  # E: call-arg
watched.send()  # E: call-arg
watched.send("3")  # E: arg-type
watched.send(1, 2)  # E: call-arg
watched.send(count=1, ctx=None)  # E: call-arg
followed.send(5)  # E: arg-type
wrong_handle: TaskHandle[str] = add.send_or_raise(1)  # E: assignment
text: str = add.send_or_raise(1).result()  # E: assignment
text = add.send(1).unwrap().get().unwrap()  # E: assignment
number: int = watched.send_or_raise(1).result()  # E: assignment


@app.task
def word() -> str:
    return ""


@app.task
def words() -> list[str]:
    return []


@app.task
def total(values: list[int]) -> int:
    return sum(values)


@app.task
def maybe(value: int | None = None) -> int:
    return value or 0


@app.task
def checked(value: Int) -> int:
    return value.unwrap()


@app.task
def all_checked(values: list[Int]) -> int:
    return 0


@app.task
def size(word: str) -> int:
    return len(word)


said, listed, one = word.node()(), words.node()(), add.node()(a=1)
sizes = size.map_node(over=from_node(listed))()
add.node()(a=from_node(said))  # E: arg-type
add.node()(a=one)  # E: arg-type
maybe.node()(value=from_node(said))  # E: arg-type
checked.node()(value=from_node(said))  # E: arg-type
total.node()(values=from_node(one))  # E: arg-type
total.node()(values=from_node(listed))  # E: arg-type
all_checked.node()(values=from_node(one))  # E: arg-type
all_checked.node()(values=from_node(listed))  # E: arg-type
size.node()(word=from_node(sizes))  # E: arg-type
size.map_node(over=from_node(one))()  # E: arg-type
from_node(add)  # E: call-overload


async def with_a_request(tasks: Transactional) -> None:
    await tasks(add).send_async("1")  # E: arg-type
    await tasks(add).send_async(1, c=2)  # E: call-arg
    tasks("add")  # E: arg-type
    mount_dashboard(Starlette(), app, "/jobs", auth_policy=ViewOnly(), hosts=["a"])  # E: call-arg
    mount_dashboard(Starlette(), app, "/jobs")  # E: call-arg
