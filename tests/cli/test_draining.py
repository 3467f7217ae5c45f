"""`horsies drain`, and what `horsies workers` says of it (M-17, M-09)."""

from __future__ import annotations

from tests.cli.support import Terminal
from tests.factories import given_worker

ONE, TWO = "host:1:0000000a", "host:2:0000000b"


def test_m17_m09_workers_are_asked_to_leave(terminal: Terminal) -> None:
    for worker_id in (ONE, TWO):
        terminal.doing(lambda db, worker_id=worker_id: given_worker(db, worker_id))
    assert terminal.type("drain", ONE).out == f"{ONE} finishes its tasks and leaves\n"
    states = {one["worker_id"]: (one["state"], one["is_draining"]) for one in terminal.type("workers", "--json").json}
    assert states == {ONE: ("draining", True), TWO: ("live", False)}
    assert "draining" in terminal.type("workers").out


def test_m17_a_worker_that_is_not_registered_is_told_of(terminal: Terminal) -> None:
    terminal.doing(lambda db: given_worker(db, ONE))
    said = terminal.type("drain", ONE, TWO, code=1)
    assert f"no worker {TWO} is registered" in said.err and ONE in said.out
    found = terminal.type("drain", ONE, TWO, "--json", code=1).json
    assert [one["worker_id"] for one in found["draining"]] == [ONE]
    assert found["not_asked"] == [
        {"worker_id": TWO, "code": "WORKER_NOT_FOUND", "message": f"no worker {TWO} is registered"}
    ]
