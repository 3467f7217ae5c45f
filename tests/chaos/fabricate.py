"""Hand-made histories for the tests of the checker: a task is told step by step, and the rows that a real one would
have left are written down.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.chaos.history import Attempt, Fault, History, Move, Run, Sent, Task, Worker

W1, W2 = "host:100:aaaaaaaa", "host:200:bbbbbbbb"
C1, C2 = 111, 222  # a child of each


class Tale:
    """One task. Steps are at increasing times; each returns the tale."""

    def __init__(
        self, history: History, key: str, name: str = "patient", *, sent: float = 1.0, **facts: object
    ) -> None:
        self.history = history
        self.key = key
        self.id = f"id-{key}"
        self.facts: dict[str, Any] = {"max_retries": 3, "retried_codes": frozenset({"WORKER_CRASHED"}), **facts}
        self.name = name
        self.last = Move(0, self.id, 0.0, 0.0, None, "", 0, None, None)
        self.task: Task | None = None
        history.sent.append(Sent(key, self.id, sent))
        self.move(sent, "PENDING")

    def move(self, at: float, status: str, **changed: Any) -> Tale:
        """To this state, with what goes along with it. `changed` are fields that shall be otherwise."""
        was = self.last
        keeps = status != "PENDING"
        move = Move(
            number=len(self.history.moves) + 1,
            task_id=self.id,
            at=at,
            stamp=at - 0.001,
            was=was.status or None,
            status=status,
            claim_seq=was.claim_seq + (status == "CLAIMED" or (was.status, status) == ("PENDING", "RUNNING")),
            owner=was.owner if keeps else None,
            pid=was.pid if keeps else None,
            retry_count=was.retry_count,
            was_seq=was.claim_seq,
            was_owner=was.owner,
            was_pid=was.pid,
            was_retry_count=was.retry_count,
        )
        self.last = replace(move, **changed)
        self.history.moves.append(self.last)
        return self._settle()

    def start(self, at: float, owner: str = W1, pid: int = C1) -> Tale:
        """Claimed and started."""
        self.move(at - 0.01, "CLAIMED", owner=owner)
        return self.move(at, "RUNNING", pid=pid)

    def run(self, begin: float, last: float, how: str = "returned", *, token: str = "", pid: int | None = None) -> Tale:
        """The function is called."""
        held = self.last
        token = token or f"{self.key}@{begin:g}"
        claim = (held.claim_seq, held.owner or "")
        self.history.runs.append(Run(token, self.key, self.name, pid or held.pid or 0, begin, last, how, claim))
        return self

    def end(
        self, at: float, status: str, outcome: str | None, code: str | None = None, token: str | None = None,
        charge: int = 0, **changed: Any,
    ) -> Tale:  # fmt: skip
        """The run is over, with an attempt row if it has an outcome."""
        held = self.last
        if outcome is not None:
            number = 1 + sum(attempt.task_id == self.id for attempt in self.history.attempts)
            started = next(move.stamp for move in reversed(self.history.moves) if move.task_id == self.id)
            self.history.attempts.append(
                Attempt(
                    self.id,
                    number,
                    outcome,
                    status == "PENDING",
                    started,
                    at - 0.001,
                    held.owner or "",
                    held.pid,
                    code,
                    token,
                )
            )
        return self.move(at, status, **{"retry_count": held.retry_count + charge, **changed})

    def _settle(self) -> Tale:
        task = Task(
            id=self.id, key=self.key, name=self.name, status=self.last.status, claim_seq=self.last.claim_seq,
            owner=self.last.owner, is_claimed=self.last.status in ("CLAIMED", "RUNNING"),
            retry_count=self.last.retry_count,
            error_code=next(
                (one.error_code for one in reversed(self.history.attempts) if one.task_id == self.id), None
            ) if self.last.status == "FAILED" else None,
            **self.facts,
        )  # fmt: skip
        if self.task is not None:
            self.history.tasks.remove(self.task)
        self.task = task
        self.history.tasks.append(task)
        return self


def empty() -> History:
    """Two workers, told to end at the end."""
    return History(
        workers=[Worker(0, 100, "quick", 0.0, 99.0, 0), Worker(1, 200, "default", 0.0, 99.0, 0)],
        faults=[Fault("term", 98.0, 98.0, slot, pid) for slot, pid in ((0, 100), (1, 200))],
    )


def completed(history: History, key: str = "done") -> Tale:
    tale = Tale(history, key).start(2.0).run(2.01, 3.0, token=f"{key}!")
    return tale.end(3.1, "COMPLETED", "COMPLETED", token=f"{key}!")


def crashed(history: History, key: str = "crashed") -> Tale:
    """Its child was killed at 5.0, and its policy brings it back."""
    history.faults.append(Fault("kill child", 5.0, 5.0, 0, 100, frozenset({C1})))
    tale = Tale(history, key).start(4.0).run(4.01, 4.9, "")
    return tale.end(5.1, "PENDING", "WORKER_FAILURE", "WORKER_CRASHED", charge=1)


def ran_again(history: History, key: str = "again") -> Tale:
    """The same, and the second attempt succeeds elsewhere."""
    tale = crashed(history, key).start(6.2, W2, C2).run(6.3, 7.0, token=f"{key}!")
    return tale.end(7.1, "COMPLETED", "COMPLETED", token=f"{key}!")
