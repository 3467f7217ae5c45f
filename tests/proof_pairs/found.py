"""Examples that failed once, each with the play that showed it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from horsies.core.models.tasks import TaskSendPayload
from horsies.core.store.holds import Beat
from horsies.core.store.sends import Send
from horsies.core.store.tasks import Claimant
from horsies.core.tasks.moves import Claim, Complete, Fail, Requeue
from horsies.core.types import TaskStatus
from tests.proof_pairs.kinds import Operation
from tests.proof_pairs.operations import KINDS
from tests.proof_pairs.plays import PERSONAS, Ending, Example, Pause, Play, Role
from tests.proof_pairs.rows import Row, Start
from tests.proof_pairs.stage import T0

ONE_AFTER_THE_OTHER = (0, 1, 0, 1, 2)
WITHOUT_INDEX = len(PERSONAS) - 1


def of(kind: str, **arguments: Any) -> Operation:
    return Operation(KINDS[kind], arguments)


def letter(task_id: str) -> Send:
    payload = TaskSendPayload("plain", "default", 100, "[1]", None, T0, None, None, None, "sha [1]")
    return Send(task_id, payload)


def example(start: Start, one: Operation, other: Operation, play: Play) -> Example:
    return Example(start, (one, other), (0, 0), (play,))


RUNNING = Start((Row("b", "running", "alpha"), Row("a", "running", "alpha")))
CLAIMS = [Claim("b", 1), Claim("a", 1)]
WORDS = Start((), (("task:b", "client", 50.0), ("task:a", "client", 50.0)))

FOUND = {
    # The task came between the attempt and the look for the reason: "cannot be cancelled, it is PENDING".
    "a cancel that finds nothing, and a send": example(
        Start(()),
        of("cancel", task_id="n3", include_running=False),
        of("send", sends=[letter("n3")]),
        Play((Role(pause=Pause(statement=2)), Role()), ONE_AFTER_THE_OTHER),
    ),
    # The same with a task that came back.
    "a cancel of a running task, and its return": example(
        RUNNING,
        of("cancel", task_id="a", include_running=False),
        of("requeue", worker_id="alpha", moves=[Requeue(claim) for claim in CLAIMS]),
        Play((Role(pause=Pause(statement=2)), Role()), ONE_AFTER_THE_OTHER),
    ),
    # Each had left one word for each queue, and waited for the other's.
    "two that announce idleness": example(
        Start(()),
        of("announce_idle", worker_id="alpha", wake_key=7, queues=["other"], until=timedelta(seconds=30)),
        of("announce_idle", worker_id="beta", wake_key=8, queues=["default"], until=timedelta(seconds=30)),
        Play((Role(pause=Pause(reading=2)), Role()), ONE_AFTER_THE_OTHER),
    ),
    # The delete took its rows as they lay in the table.
    "an announcement and its withdrawal": example(
        WORDS,
        of("withdraw", ids=["a", "b"], holder="client"),
        of("announce", ids=["a", "b"], holder="client", seconds=5.0),
        Play((Role(persona=WITHOUT_INDEX), Role()), (1, 0, 2, 1, 0), obstacle="task:a of client"),
    ),
    # The rows that it had locked were elsewhere when it updated them, and others that were lapsed had no turn.
    "a takeover of claims that are being mended": Example(
        Start((Row("c", "lapsing", "alpha", 2), Row("f", "lapsed", "alpha"), Row("b", "lapsing", "alpha", 2))),
        (
            of("claim_expired", who=Claimant("beta", timedelta(seconds=30), True), queues=["default"], budget=2),
            of("mend", owner="alpha", claims=[Claim("b", 2), Claim("f", 1)]),
        ),
        (1, 1),
        (Play((Role(pause=Pause(reading=4), persona=5), Role(ending=Ending.COMMIT)), (1, 0, 1, 0)),),
    ),
    # A bitmap brought the rows of `complete` in the order of the table.
    "two ends of the same tasks": example(
        RUNNING,
        of("complete", worker_id="alpha", moves=[Complete(claim, "{}") for claim in CLAIMS]),
        of("fail", worker_id="alpha", moves=[Fail(claim, "{}", "BROKEN") for claim in CLAIMS]),
        Play((Role(pause=Pause(reading=2)), Role(ending=Ending.COMMIT)), ONE_AFTER_THE_OTHER),
    ),
    # The heartbeat came after the mending, and while the recovery could not see it: it is unseen, and not the first.
    "a recovery beside a heartbeat that follows another": Example(
        Start((Row("b", "claimed", "alpha", seq=2),)),
        (
            of("recover", status=TaskStatus.CLAIMED, silence=timedelta(seconds=3), most=500),
            of("mend", owner="alpha", claims=[Claim("b", 2)]),
            of("heartbeat", worker_id="alpha", hostname="host", beats=[Beat(Claim("b", 2), True, "alpha", 7)]),
        ),
        (0, 0, 1),
        (Play((Role(pause=Pause(statement=3)), Role(), Role(Ending.COMMIT)), (1, 2, 0, 0, 2)),),
    ),
}
