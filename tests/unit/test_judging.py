"""When a worker is dead (R-100), and what becomes of its tasks (R-103): the decision, told all it has to know."""

from __future__ import annotations

from typing import Any, NamedTuple

from horsies.core.recovery.dead_workers import UNKNOWN
from horsies.core.recovery.decide import Death, Process, is_gone, judge, share_out
from horsies.core.store.workers import Registered
from horsies.core.tasks.moves import Claim, InFlight
from horsies.core.types.status import TaskStatus
from tests.each import each


class Me(NamedTuple):
    worker_id: str = "me"
    hostname: str = "host"
    boot_id: str | None = "boot"
    pid_namespace: str | None = "ns"


WORKER = Registered("w1", "host", "boot", "ns", 42, 700, 1, False, False)
GONE, THERE, REUSED = Process(False), Process(True, False, 700), Process(True, False, 701)
ZOMBIE, HIDDEN = Process(True, True, 700), Process(True)


@each("process", [GONE, ZOMBIE, REUSED])
def test_r100_a_process_that_is_gone_and_a_free_lock_are_certain(process: Process) -> None:
    assert judge(WORKER, Me(), process, is_lock_held=False) is Death.CERTAIN


@each("process", [THERE, HIDDEN, UNKNOWN])
def test_r100_a_free_lock_alone_proves_nothing(process: Process) -> None:
    assert judge(WORKER, Me(), process, is_lock_held=False) is Death.UNPROVEN


@each("is_silent", [True, False])
def test_r100_whose_session_is_there_is_not_judged(is_silent: bool) -> None:
    worker = WORKER._replace(is_silent=is_silent)
    assert judge(worker, Me(), GONE, is_lock_held=True) is Death.UNPROVEN


@each("column", ["hostname", "boot_id", "pid_namespace"])
@each("value", ["another", None])
def test_r100_a_pid_seen_from_elsewhere_proves_nothing(column: str, value: str | None) -> None:
    worker: Any = WORKER._replace(**{column: value})
    assert judge(worker, Me(), GONE, is_lock_held=False) is Death.UNPROVEN
    if column != "hostname":  # nor if both do not know
        me: Any = Me()._replace(**{column: value})
        assert judge(WORKER, me, GONE, is_lock_held=False) is Death.UNPROVEN
        expected = Death.UNPROVEN if value is None else Death.CERTAIN
        assert judge(worker, me, GONE, is_lock_held=False) is expected


def test_r100_a_silent_worker_with_a_free_lock_is_probably_dead() -> None:
    silent = WORKER._replace(is_silent=True)
    assert judge(silent, Me(), THERE, is_lock_held=False) is Death.PROBABLE
    assert judge(silent._replace(hostname="another"), Me(), UNKNOWN, is_lock_held=False) is Death.PROBABLE
    assert judge(silent, Me(), GONE, is_lock_held=False) is Death.CERTAIN


def test_r46_r100_nobody_judges_himself() -> None:
    mine = WORKER._replace(worker_id="me", is_silent=True)
    assert judge(mine, Me(), GONE, is_lock_held=False) is Death.UNPROVEN


def test_r100_without_a_known_start_only_the_end_counts() -> None:
    assert not is_gone(Process(True, False, 701), None)
    assert not is_gone(Process(True, False, None), 700)
    assert is_gone(GONE, None) and is_gone(ZOMBIE, None)


def task(task_id: str, status: TaskStatus, *, pid: int | None = None, enrolled: bool = False) -> InFlight:
    return InFlight(
        task_id, 1, "w1", status, "t", "default", None, 0, 0, False, None, enrolled,
        None, "host", pid, "child", None, 1.0,
    )  # fmt: skip


def ids(tasks: list[InFlight]) -> list[str]:
    return [one.task_id for one in tasks]


def test_r100_r103_each_task_of_a_dead_worker_gets_what_it_deserves() -> None:
    running, claimed = TaskStatus.RUNNING, TaskStatus.CLAIMED
    tasks = [
        task("claimed", claimed),
        task("noted", running, pid=1),
        task("not noted", running, pid=1),
        task("with its child", running, pid=2),
        task("enrolled claimed", claimed, enrolled=True),
        task("enrolled noted", running, pid=1, enrolled=True),
        task("enrolled not noted", running, pid=1, enrolled=True),
        task("enrolled with its child", running, pid=2, enrolled=True),
    ]
    noted = {Claim("noted", 1), Claim("enrolled noted", 1)}
    shares = share_out(tasks, lambda pid: pid == 1, noted.__contains__)
    assert ids(shares.requeued) == ["claimed", "not noted", "enrolled not noted"]
    assert ids(shares.crashed) == ["noted"]
    assert ids(shares.swept) == ["enrolled claimed", "enrolled noted"]
    assert ids(shares.spared) == ["with its child", "enrolled with its child"]
