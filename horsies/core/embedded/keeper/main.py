"""The keeper of one embedded server: it starts the server, restarts it if it dies, and stops it when nobody uses its
directory any more.

It has its own session, so that neither Ctrl-C nor the end of the process that started it affects it. The kernel says
who uses the directory: each user holds a shared `flock` on `users.lock`, which is released however the user ends.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cluster import Cluster, Postmaster, kill_leftovers
from .place import Place
from .safety import Failure

GRACE_SECONDS = 1.0
POLL_SECONDS = 0.1
STARTS_BEFORE_GIVING_UP = 3


class Keeper:
    def __init__(self, place: Place, cluster: Cluster) -> None:
        self._place = place
        self._cluster = cluster
        self._server: Postmaster | None = None
        self.told_to_stop = False

    def start(self) -> None:
        """Start the server, after whatever an unclean end has left behind is gone."""
        self._cluster.prepare()
        self._cluster.end_left_server()
        self._server = None
        for attempt in range(STARTS_BEFORE_GIVING_UP):
            if self._server is not None or self.told_to_stop:
                return
            if attempt:  # backends of a killed server may outlive it for a moment, and hold its shared memory
                kill_leftovers(self._cluster.data, self._place.account[0])
                time.sleep(0.2)
            offset = self._place.log_size()
            self._server = self._cluster.launch()
        if self._server is None:
            raise Failure(f"PostgreSQL did not start in {self._place.path}", self._place.log_since(offset))

    def run(self, users: int) -> None:
        """Watch until nobody uses the directory or the keeper is told to stop; then stop the server."""
        idle_since: float | None = None
        while not (self.told_to_stop or self._place.stop_is_requested()):
            if not self._place.still_has(users):
                # The directory was deleted or moved: there is nothing left to save, and a new directory of that name
                # belongs to others.
                if self._server is not None:
                    self._server.stop(signal.SIGQUIT)
                return
            if not self._cluster.is_well(self._server):
                self._place.log("the server or its socket is gone; starting it again")
                self.start()
            if not try_lock(users):
                idle_since = None
            elif idle_since is not None and time.monotonic() - idle_since >= GRACE_SECONDS:
                break  # the exclusive lock is kept: a new user waits until this keeper is gone
            else:
                idle_since = idle_since or time.monotonic()
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(POLL_SECONDS)
        self.stop()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._cluster.withdraw()


def main() -> None:
    """Detach from the calling process, start the server, answer on stdout with one line of JSON, and keep the
    server."""
    order = json.loads(sys.argv[1])
    if os.fork():  # the keeper is not a child of the user, who need not wait for it
        os._exit(0)
    os.setsid()
    os.chdir("/")
    report = os.dup(1)
    try:
        place = Place(Path(order["path"]))
        place.redirect_output()
    except (Failure, OSError) as problem:
        os.write(report, json.dumps(refusal(problem)).encode())
        return
    keeper = Keeper(place, Cluster(place, Path(order["install"])))
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: setattr(keeper, "told_to_stop", True))
    users = place.open_lock("users.lock")
    with sole_keeper(place):
        answer = attempt_to_start(keeper)
        with contextlib.suppress(OSError):  # the process that asked may be gone
            os.write(report, json.dumps(answer).encode())
        os.close(report)
        if answer["ready"]:
            try:
                keeper.run(users)
            except BaseException:
                keeper.stop()
                raise


def attempt_to_start(keeper: Keeper) -> dict[str, Any]:
    try:
        keeper.start()
    except Exception as problem:
        return refusal(problem)
    return {"ready": True}


def refusal(problem: Exception) -> dict[str, Any]:
    if isinstance(problem, Failure):
        return {"ready": False, "message": problem.message, "detail": problem.detail, "way_out": problem.way_out}
    return {"ready": False, "message": "the embedded server cannot be set up", "detail": str(problem) or repr(problem)}


@contextlib.contextmanager
def sole_keeper(place: Place) -> Iterator[None]:
    """Become the only keeper of the directory, or end at once, because the other keeper does the work."""
    fd = place.open_lock("keeper.lock")
    if not try_lock(fd):
        os._exit(0)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)  # for people; programs do not trust a number in a file
        place.forget_stop_request()
        yield
        place.forget_stop_request()
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
