"""Several real workers on one server, and what they cost together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil

from benchmarks.process import WorkerProcess, launch, own_seconds, tree_seconds
from benchmarks.scale.sizes import LOCATOR
from benchmarks.server import Server


class Crew:
    """Workers that are ready. They start side by side, and more may join."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.workers: list[WorkerProcess] = []

    def grow(self, to: int, *options: str, env: Mapping[str, str] | None = None) -> None:
        new = [launch(self._server, *options, app=LOCATOR, env=env) for _ in range(to - len(self.workers))]
        self.workers += new
        for one in new:
            one.wait_until_ready()

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time so far: of all processes of all workers, and of the server."""
        total = 0.0
        for one in self.workers:
            for process in [one.supervisor, *one.supervisor.children(recursive=True)]:
                try:
                    total += own_seconds(process)
                except psutil.NoSuchProcess:
                    continue
        return {"workers": total, "postgres": tree_seconds(self._server.postmaster())}

    def connections(self) -> int:
        """Sessions on the server, without that of the benchmark itself."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> %s"
        return int(self._server.row(query, self._server.backend)[0])

    def stop(self) -> None:
        for one in self.workers:
            one.tell_to_stop()
        for one in self.workers:
            one.stop()


@contextmanager
def crew(server: Server, count: int, *options: str, env: Mapping[str, str] | None = None) -> Iterator[Crew]:
    """So many workers of the app, for as long as the block lasts."""
    together = Crew(server)
    try:
        together.grow(count, *options, env=env)
        yield together
    finally:
        together.stop()
