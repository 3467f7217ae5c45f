"""horsies in FastAPI and Starlette (X-21), with their test client: the lifespan, sends in the transaction of a request
(X-22), and the dashboard in one line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Annotated, Any

import psycopg
import pytest
from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, Depends, FastAPI, HTTPException
from httpx import ASGITransport, AsyncClient
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from horsies import Horsies, TaskSendFailed
from horsies.contrib.asgi import Transactional, lifespan, mount_dashboard, transactional
from horsies.core.errors import ConfigurationError
from horsies.web import Token, ViewOnly, create_monitoring_app
from tests.app_support import Add, an_app, define_add
from tests.services.test_pool import refusing_port
from tests.support import eventually_sync

TOKEN = "0123456789abcdef"


@pytest.fixture
def app(database_url: str) -> Iterator[Horsies]:
    with psycopg.connect(database_url) as conn:
        conn.execute("CREATE TABLE orders (item text)")
    with an_app(database_url) as made:
        yield made


def sessions_of(url: str) -> list[str]:
    with psycopg.connect(url) as conn:
        rows = conn.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'horsies%'"
        )
        return [name for (name,) in rows]


def test_x21_the_lifespan_opens_and_closes_every_time(app: Horsies, database_url: str) -> None:
    add = define_add(app)
    api = FastAPI(lifespan=lifespan(app))

    @api.post("/add")
    async def send() -> str:
        return (await add.send_or_raise_async(1)).task_id

    for _ in range(3):
        with TestClient(api) as client:
            assert sessions_of(database_url), "it has connected before the first request"
            assert client.post("/add").status_code == 200
        eventually_sync(lambda: sessions_of(database_url) == [], what="the end of all connections")
    assert len(app.testing.sent.of(add)) == 3


def test_x21_of_several_servers_the_last_one_closes(app: Horsies, database_url: str) -> None:
    waited = define_add(app).send_or_raise(1)
    api = FastAPI(lifespan=lifespan(app))
    with TestClient(api):
        with ThreadPoolExecutor(1) as elsewhere, TestClient(api):
            waiting = elsewhere.submit(waited.get, 30_000)
            eventually_sync(lambda: waits_of(app) == 1)
            with TestClient(FastAPI(lifespan=lifespan(app))):
                pass
            app.testing.drain()
            assert waiting.result().unwrap() == 1, "that another server has stopped is no reason to end it"
        assert sessions_of(database_url)
    eventually_sync(lambda: sessions_of(database_url) == [], what="the end of all connections")


def waits_of(app: Horsies) -> int:
    hub = app.get_broker().bridge.peek()
    return 0 if hub is None else sum(len(waiter._places) for waiter in hub._waiters.values())


def test_x21_it_runs_the_lifespan_of_the_application_inside(app: Horsies) -> None:
    add = define_add(app)
    seen: list[str] = []

    async def own(server: Any) -> AsyncIterator[dict[str, str]]:
        await add.send_or_raise_async(1)
        yield {"colour": "blue"}
        await add.send_or_raise_async(2)
        seen.append("the end")

    async def colour(request: Request) -> Response:
        return JSONResponse(request.state.colour)

    for inner in (own, asynccontextmanager(own)):  # as Starlette takes both
        with TestClient(Starlette(routes=[Route("/", colour)], lifespan=lifespan(app, inner=inner))) as client:
            assert client.get("/").json() == "blue"
    assert seen == ["the end"] * 2 and len(app.testing.sent.of(add)) == 4


def test_x21_it_makes_the_tables_or_says_why_the_server_does_not_start(empty_database_url: str) -> None:
    with an_app(empty_database_url) as app, TestClient(FastAPI(lifespan=lifespan(app))):
        assert app.ping_database().is_ok()
    with an_app(f"postgresql://me:hunter2@127.0.0.1:{refusing_port()}/none") as app:
        starting = TestClient(FastAPI(lifespan=lifespan(app)))
        with pytest.raises(ConfigurationError, match="does not start without its queue") as refused, starting:
            pass
        assert "HRS-211" in str(refused.value) and "hunter2" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="takes a Horsies app"):
        lifespan(FastAPI())  # type: ignore[arg-type]


def test_x11_x21_a_server_starts_inline_without_a_database() -> None:
    with an_app("postgresql://nobody@127.0.0.1:1/none") as app:
        add = define_add(app)
        api = FastAPI(lifespan=lifespan(app))

        @api.post("/add")
        async def send() -> int:
            return await (await add.send_or_raise_async(1, 2)).result_async()

        with app.testing.inline(), TestClient(api) as client:
            assert client.post("/add").json() == 3
            assert app.get_broker().open().is_ok(), "also for who blocks"


def to_asyncpg(url: str) -> Any:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    return _async_sessions(engine)


def to_psycopg(url: str) -> Any:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    return _async_sessions(engine)


def _async_sessions(engine: Any) -> Any:
    class OwnSession(AsyncSession):
        """As SQLModel has one."""

    async def get_session() -> AsyncIterator[AsyncSession]:
        try:
            async with OwnSession(engine) as session, session.begin():
                yield session
        finally:
            await engine.dispose()

    return get_session


def to_blocking(url: str) -> Any:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))

    def get_session() -> Iterator[Session]:
        try:
            with Session(engine) as session, session.begin():
                yield session
        finally:
            engine.dispose()

    return get_session


WAYS_TO_DEPEND: list[Callable[[Any], Any]] = [
    lambda get_session: Annotated[Any, Depends(get_session, scope="function")],
    lambda get_session: Annotated[Any, Depends(get_session)],
]


def an_api(app: Horsies, add: Add, session_dep: Any, given: Any) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app))
    tasks_dep = Annotated[Transactional, Depends(transactional(given))]

    async def place(session, tasks, fails: bool = False) -> str:  # type: ignore[no-untyped-def]
        assert tasks.connection is session, "the one of the request"
        done = session.execute(text("INSERT INTO orders VALUES ('book')"))
        if isinstance(session, AsyncSession):
            await done
            handle = await tasks(add).send_or_raise_async(1, b=2)
        else:
            handle = tasks(add).with_options(priority=1).send_or_raise(1, b=2)
        if fails:
            raise HTTPException(409, "sold out")
        return str(handle.task_id)

    place.__annotations__ |= {"session": session_dep, "tasks": tasks_dep, "fails": bool}
    api.post("/orders")(place)
    return api


@pytest.mark.parametrize("way", WAYS_TO_DEPEND, ids=["function", "request"])
@pytest.mark.parametrize("sessions", [to_asyncpg, to_psycopg, to_blocking])
def test_x21_x22_a_send_commits_and_rolls_back_with_its_request(
    app: Horsies, database_url: str, sessions: Any, way: Any
) -> None:
    add = define_add(app)
    session_dep = way(sessions(database_url))
    with TestClient(an_api(app, add, session_dep, session_dep)) as client:
        task = client.post("/orders").json()
        assert client.post("/orders?fails=true").status_code == 409
    assert app.testing.sent.one(add).task_id == task
    app.testing.sent.assert_sent(add, 1, b=2)
    with psycopg.connect(database_url) as conn:
        assert conn.execute("SELECT count(*) FROM orders").fetchone() == (1,)


def test_x21_the_dependency_is_given_in_three_ways(app: Horsies, database_url: str) -> None:
    add = define_add(app)
    get_session = to_blocking(database_url)
    for given in (get_session, Depends(get_session), Annotated[Session, Depends(get_session)]):
        with TestClient(an_api(app, add, Annotated[Any, Depends(get_session)], given)) as client:
            assert client.post("/orders").status_code == 200
    assert len(app.testing.sent.of(add)) == 3
    with pytest.raises(ConfigurationError, match="takes the dependency that makes the session, not int"):
        transactional(7)


def test_x21_the_dependency_needs_no_thread(app: Horsies) -> None:
    """There are 40 in a server, and endpoints that block until a task has ended may have them all."""

    async def get_session() -> object:
        return object()

    tasks_dep = Annotated[Transactional, Depends(transactional(get_session))]
    api = FastAPI()

    async def named(tasks) -> str:  # type: ignore[no-untyped-def]
        return type(tasks).__name__

    named.__annotations__ |= {"tasks": tasks_dep}
    api.get("/")(named)

    async def ask_without_threads() -> str:
        threads = current_default_thread_limiter()
        threads.total_tokens = 1
        async with threads, AsyncClient(transport=ASGITransport(api), base_url="http://localhost") as client:
            return str((await asyncio.wait_for(client.get("/"), 15)).json())

    assert asyncio.run(ask_without_threads()) == "Transactional"


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_x22_a_session_that_was_closed_for_good_is_refused(app: Horsies, database_url: str, driver: str) -> None:
    """SQLAlchemy begins anew with a closed session unless it is told not to, and nobody would commit that."""
    add = define_add(app)
    engine = create_async_engine(database_url.replace("postgresql://", f"postgresql+{driver}://"))
    async with AsyncSession(engine, close_resets_only=False) as session, session.begin():
        tasks = Transactional(session)
        await tasks(add).send_or_raise_async(1)
    late = await tasks(add).send_async(2)
    assert late.err_value.code == "VALIDATION_FAILED" and "permanently closed" in late.err_value.message
    await engine.dispose()
    assert app.testing.sent.one(add).arguments["a"] == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_x22_a_savepoint_of_the_session_is_respected(app: Horsies, database_url: str, driver: str) -> None:
    add = define_add(app)
    engine = create_async_engine(database_url.replace("postgresql://", f"postgresql+{driver}://"))
    async with AsyncSession(engine) as session, session.begin():
        tasks = Transactional(session)
        await tasks(add).send_or_raise_async(1)
        with pytest.raises(KeyError):
            async with session.begin_nested():
                await tasks(add).send_or_raise_async(2)
                raise KeyError
        async with session.begin_nested():
            await tasks(add).send_or_raise_async(3)
    await engine.dispose()
    assert [sent.arguments["a"] for sent in app.testing.sent.of(add)] == [1, 3]


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_x22_a_two_phase_transaction_is_refused_in_time(app: Horsies, database_url: str, driver: str) -> None:
    """PostgreSQL would refuse to prepare it, with everything else that it contains."""
    add = define_add(app)
    engine = create_async_engine(database_url.replace("postgresql://", f"postgresql+{driver}://"))
    async with AsyncSession(engine, twophase=True) as session:
        refused = await Transactional(session)(add).send_async(1)
        assert refused.err_value.code == "VALIDATION_FAILED" and "two-phase" in refused.err_value.message
        await (await session.connection()).invalidate()
    await engine.dispose()


def test_x22_a_blocking_two_phase_transaction_is_refused_too(app: Horsies, database_url: str) -> None:
    add = define_add(app)
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with Session(engine, twophase=True) as session:
        with pytest.raises(TaskSendFailed, match="two-phase"):
            Transactional(session)(add).send_or_raise(1)
        session.connection().invalidate()
    engine.dispose()
    with psycopg.connect(database_url) as conn:
        conn.tpc_begin("a transaction")
        assert "two-phase" in add.with_options(connection=conn).send(1).err_value.message
        conn.tpc_rollback()
        assert add.with_options(connection=conn).send(1).is_ok()


async def test_x22_so_is_one_of_an_async_connection_of_psycopg(app: Horsies, database_url: str) -> None:
    add = define_add(app)
    async with await psycopg.AsyncConnection.connect(database_url) as conn:
        await conn.tpc_begin("a transaction")
        assert "two-phase" in (await Transactional(conn)(add).send_async(1)).err_value.message
        await conn.tpc_rollback()


@pytest.mark.parametrize("kind", [FastAPI, Starlette])
def test_x21_the_dashboard_is_mounted_in_one_line_and_closed(app: Horsies, database_url: str, kind: Any) -> None:
    add = define_add(app)
    api = kind(lifespan=lifespan(app))
    mount_dashboard(api, app, "/jobs", auth_policy=Token(TOKEN), enable_actions=True)
    for _ in range(2):
        with TestClient(api, base_url="http://localhost") as client:
            task = add.send_or_raise(1).task_id
            assert client.get("/jobs/api/tasks").status_code == 403
            assert client.get("/jobs", headers={"Accept": "text/html"}).url.path == "/jobs/login"
            client.post("/jobs/login", data={"token": TOKEN})
            assert client.get(f"/jobs/api/tasks/{task}").json()["task_id"] == task
            assert client.get("/jobs/api/meta").json()["actions_enabled"] is True
        eventually_sync(lambda: sessions_of(database_url) == [], what="the end of all connections")
    with TestClient(api) as client:  # it calls the host "testserver"
        assert client.get("/jobs/login").status_code == 400, "of unknown hosts nobody is let in"


def test_x21_with_a_dashboard_the_state_of_the_lifespan_is_still_that_of_the_requests(app: Horsies) -> None:
    @asynccontextmanager
    async def own(server: Any) -> AsyncIterator[dict[str, int]]:
        yield {"x": 1}

    async def x(request: Request) -> Response:
        return JSONResponse(request.state.x)

    for outer in (own, lifespan(app, inner=own)):
        api = Starlette(routes=[Route("/x", x)], lifespan=outer)
        mount_dashboard(api, app, "/jobs", auth_policy=ViewOnly())
        with TestClient(api, base_url="http://localhost") as client:
            assert client.get("/x").json() == 1
            assert client.get("/jobs/api/meta").status_code == 200


@pytest.mark.parametrize("path", ["/größe ä/日", "/a'b"])
def test_x21_m93_one_logs_in_wherever_it_is_mounted(app: Horsies, path: str) -> None:
    """A browser compares the path of a cookie with the address as it is written there."""
    api = FastAPI(lifespan=lifespan(app))
    mount_dashboard(api, app, path, auth_policy=Token(TOKEN))
    with TestClient(api, base_url="http://localhost") as client:
        client.post(f"{path}/login", data={"token": TOKEN})
        assert client.get(f"{path}/api/tasks").status_code == 200
        client.post(f"{path}/logout")
        assert not client.cookies


def test_x21_a_dashboard_needs_a_policy_and_a_path(app: Horsies) -> None:
    with pytest.raises(TypeError, match="auth_policy"):
        mount_dashboard(FastAPI(), app, "/jobs")  # type: ignore[call-arg]
    for path in ("", "/", "jobs", "//jobs", "/{tenant}/jobs"):
        with pytest.raises(ConfigurationError, match="below a fixed path"):
            mount_dashboard(FastAPI(), app, path, auth_policy=ViewOnly())
    with pytest.raises(ConfigurationError, match="on the application that the server runs, not on APIRouter"):
        mount_dashboard(APIRouter(), app, auth_policy=ViewOnly())  # type: ignore[arg-type]


def test_x21_nothing_of_it_is_imported_before_it_is_used() -> None:
    program = (
        "import sys\n"
        "names = ('starlette', 'fastapi', 'flask', 'jinja2', 'horsies.web')\n"
        "def found(): return [name for name in names if name in sys.modules]\n"
        "import horsies\nprint(found())\n"
        "import horsies.contrib.asgi\nprint(found())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


def test_x10_x21_in_a_test_the_dashboard_shows_the_database_of_the_test(database_url: str) -> None:
    with an_app("postgresql://nobody@127.0.0.1:1/none") as app:
        add = define_add(app)
        api = FastAPI(lifespan=lifespan(app))
        mount_dashboard(api, app, "/jobs", auth_policy=ViewOnly())  # at import, on the database of production
        with app.testing.on_database(database_url), TestClient(api, base_url="http://localhost") as client:
            task = add.send_or_raise(1).task_id
            assert client.get(f"/jobs/api/tasks/{task}").json()["status"] == "PENDING"
        alone = create_monitoring_app(app, auth_policy=ViewOnly())
        with app.testing.on_database(database_url), TestClient(alone, base_url="http://localhost") as client:
            assert client.get(f"/api/tasks/{task}").json()["status"] == "PENDING"
