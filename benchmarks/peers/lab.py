"""Where the contenders meet: one PostgreSQL with a database for each, a Redis if there is one, and the processes.

The server is the embedded one with the settings it always has, fsync on. Redis listens on a socket of its own in our
directory and nowhere else, and keeps an append-only file, written to disk every second unless told otherwise.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from benchmarks import ROOT
from benchmarks.peers import gate, marks
from benchmarks.peers.catalog import Contender, Settings, processes, worker_command
from benchmarks.processes import LAST_LINES, STOP_S, Failed, Process, compile_all, until
from benchmarks.server import Server
from horsies.core import embedded
from horsies.dev.program import Program

LOOK_S = 0.1
APPENDFSYNC = os.environ.get("REDIS_APPENDFSYNC", "everysec")


class Lab:
    """The servers, and the directory in which everything happens."""

    def __init__(self, home: Path, url: str, redis: Any, tasks: int) -> None:
        self.home = home
        self.redis = redis
        self.marks = marks.Marks.create(home / "marks", tasks)
        self._server = Server(home, url)

    def facts(self) -> dict[str, str]:
        """What the servers say of themselves."""
        found = self._server.facts()
        found = {"PostgreSQL": found.pop("version"), **found}
        if self.redis is not None:
            found["Redis"] = f"{self.redis.info('server')['redis_version']}, appendonly yes, appendfsync {APPENDFSYNC}"
        return found

    def fresh(self, contender: Contender) -> Store:
        """An empty place for its tasks."""
        if contender.needs_redis:
            self.redis.flushall()
            return RedisStore(self.redis, str(self.home / "redis.sock"))
        name = f"peer_{contender.system}"
        self._server.do(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._server.do(f"CREATE DATABASE {name}")
        url = urlunsplit(urlsplit(self._server.url)._replace(path=f"/{name}"))
        return PostgresStore(contender, url)

    def environment(self, store: Store, settings: Settings, waiting: Path) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "PEERS_URL": store.url,
            "PEERS_SETTINGS": json.dumps(dict(settings)),
            marks.VARIABLE: str(self.home / "marks"),
            gate.VARIABLE: str(waiting),
        }

    @contextmanager
    def worker(
        self, contender: Contender, store: Store, settings: Settings, *, waits: bool = True
    ) -> Iterator[list[Process]]:
        """The processes of one worker, for as long as the block lasts; with `waits`, all are ready when they go."""
        waiting = Path(tempfile.mkdtemp(dir=self.home, prefix="gate-"))
        count = processes(contender, settings)
        if not waits:
            gate.Gate(waiting).open()
        started: list[Process] = []
        try:
            for _ in range(count):
                environment = self.environment(store, settings, waiting)
                started.append(Process(worker_command(contender, settings), environment, self.home))
            if waits and contender.system not in ("horsies", "celery"):
                until(lambda: gate.Gate(waiting).ready == count, started, f"{contender.title}: worker ready")
                gate.Gate(waiting).open()
            yield started
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.stop(STOP_S)

    @contextmanager
    def sender(self, contender: Contender, store: Store) -> Iterator[Sender]:
        command = [sys.executable, "-m", "benchmarks.peers.program", contender.system, "send"]
        lines: SimpleQueue[str] = SimpleQueue()
        environment = self.environment(store, {}, self.home)
        with Program(command, cwd=ROOT, env=environment, output=lines.put, has_input=True) as program:
            yield Sender(program, lines)


class Store:
    """Where a contender's tasks are, seen from outside."""

    def __init__(self, url: str) -> None:
        self.url = url

    def clear(self) -> None:
        """Forget what was sent so far."""
        raise NotImplementedError

    def settle(self) -> None:
        """As if the tasks had been there for a while."""

    def is_done(self, count: int, settings: Settings) -> bool:
        """Whether every task is recorded as finished."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of it."""


class PostgresStore(Store):
    def __init__(self, contender: Contender, url: str) -> None:
        super().__init__(url)
        self._contender = contender
        self._conn = psycopg.connect(url, autocommit=True)

    def clear(self) -> None:
        self._conn.execute(f"TRUNCATE {self._contender.table} CASCADE".encode())

    def settle(self) -> None:
        self._conn.execute("VACUUM ANALYZE")
        self._conn.execute("CHECKPOINT")

    def is_done(self, count: int, settings: Settings) -> bool:
        return self._conn.execute(self._contender.unfinished.encode()).fetchone() is None

    def close(self) -> None:
        self._conn.close()


class RedisStore(Store):
    """Database 0 holds the messages, database 1 the results; unacknowledged messages count as unfinished."""

    def __init__(self, redis: Any, path: str) -> None:
        super().__init__(path)
        self._redis = redis

    def clear(self) -> None:
        self._redis.flushall()

    def is_done(self, count: int, settings: Settings) -> bool:
        if self._redis.llen("celery") or (settings["acks_late"] and self._redis.hlen("unacked")):
            return False
        keys: Mapping[str, Any] = self._redis.info("keyspace").get("db1", {"keys": 0})
        return not settings["results"] or int(keys["keys"]) >= count


class Sender:
    """A sender process that takes orders."""

    def __init__(self, program: Program, lines: SimpleQueue[str]) -> None:
        self._program = program
        self._lines = lines

    def order(self, do: str, settings: Settings | None = None, **facts: object) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            self._program.write(json.dumps({"do": do, "settings": dict(settings or {}), **facts}) + "\n")
        said: list[str] = []
        while self._program.is_running or not self._lines.empty():
            with contextlib.suppress(Empty):
                line = self._lines.get(timeout=LOOK_S)
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
                said.append(line)
        raise Failed("\n".join([f"a sender ended with {self._program.code}:", *said[-LAST_LINES:]]))


@contextmanager
def opened(tasks: int, *, with_redis: bool) -> Iterator[Lab]:
    """The servers, for as long as the block lasts."""
    home = Path(tempfile.mkdtemp(prefix="horsies-peers-"))
    home.chmod(0o711)  # the server runs as another user if we are root
    compile_all(sys.executable, ROOT)
    try:
        with redis_server(home) if with_redis else contextlib.nullcontext() as redis:
            url = embedded.ensure_running(home / "pg")
            yield Lab(home, url, redis, tasks)
    finally:
        embedded.stop(home / "pg")
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def redis_server(home: Path) -> Iterator[Any]:
    """A client of a Redis of our own, or None if this machine has no server or we have no client."""
    binary = shutil.which("redis-server")
    try:
        import redis
    except ImportError:
        binary = None
    if binary is None:
        yield None
        return
    (home / "redis").mkdir()
    options = {
        "port": "0",
        "unixsocket": str(home / "redis.sock"),
        "dir": str(home / "redis"),
        "save": "",
        "appendonly": "yes",
        "appendfsync": APPENDFSYNC,
        "daemonize": "no",
    }
    command = [binary, *(part for name, value in options.items() for part in (f"--{name}", value))]
    process = Process(command, os.environ, home)
    try:
        until((home / "redis.sock").is_socket, [process], "Redis")
        yield redis.Redis(unix_socket_path=str(home / "redis.sock"))
    finally:
        process.stop(STOP_S)
