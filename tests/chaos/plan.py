"""What will be done in a round, all of it decided by the seed: which workers, which faults when, which tasks when. What
comes of it is up to the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chaos.flow_plan import FlowAct, make_flows
from tests.chaos.profiles import WITH_EVIDENCE, WITHOUT_EVIDENCE, Profile

FAULT_EVERY_S = 1.2
ACT_EVERY_S = 0.4
WARM_UP_S = 3.0  # workers are starting
BLIND_ROUNDS = 0.25
FAULTS = {
    "kill worker": 10,
    "kill supervisor": 8,
    "kill child": 14,
    "kill fork server": 3,
    "term": 4,
    "stop worker": 10,
    "stop supervisor": 10,
    "stop child": 12,
    "cut sessions": 10,
    "refuse": 5,
    "freeze": 6,
    "deaf": 4,
    "server fast": 2,
    "server immediate": 2,
    "server crash": 2,
}
ACTS = {
    "short": 18,
    "many": 10,
    "few": 5,
    "long": 12,
    "patient": 14,
    "grind": 2,
    "nap": 10,
    "patient_nap": 8,
    "flaky": 8,
    "boom": 3,
    "slow": 3,
    "slow_nap": 2,
    "crash": 3,
    "crash_again": 3,
    "poison": 0.5,
    "relay": 4,
}
LASTING = {"long", "patient", "nap", "patient_nap"}


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """`nth` chooses among what is there when the time comes; `seconds` is how long it lasts."""

    at: float
    kind: str
    slot: int
    nth: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Act:
    """One thing a producer does. `cancel` is after how long, and whether running ones too."""

    at: float
    task: str
    key: str
    values: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    deadline_s: float | None = None
    delay_s: int | None = None
    is_resilient: bool = False
    cancel: tuple[float, bool] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """`choices` are for each start of a worker in a place, in order, as often as needed."""

    seed: int
    seconds: float
    has_evidence: bool
    slots: tuple[tuple[Profile, ...], ...]
    faults: list[PlannedFault]
    acts: list[Act]
    flows: list[FlowAct]

    def profile(self, slot: int, start: int) -> Profile:
        return Random(f"{self.seed} {slot} {start}").choice(self.slots[slot])

    def pause(self, slot: int, start: int) -> float:
        """How long a place stays empty before this start."""
        return Random(f"{self.seed} {slot} {start} pause").choice((0.0, 0.3, 1.0, 3.0)) if start else 0.0


def make_plan(seed: int, seconds: float, workers: int = 3) -> Plan:
    random = Random(seed)
    has_evidence = random.random() >= BLIND_ROUNDS
    slots = (WITH_EVIDENCE if has_evidence else WITHOUT_EVIDENCE)[:workers]
    faults = _faults(Random(f"{seed} faults"), seconds, len(slots))
    acts, flows = _acts(Random(f"{seed} acts"), seconds), make_flows(Random(f"{seed} flows"), seconds)
    return Plan(seed, seconds, has_evidence, slots, faults, acts, flows)


def _faults(random: Random, seconds: float, slots: int) -> list[PlannedFault]:
    found, at = [], WARM_UP_S
    while (at := at + random.expovariate(1 / FAULT_EVERY_S)) < seconds:
        [kind] = random.choices(list(FAULTS), list(FAULTS.values()))
        found.append(PlannedFault(at, kind, random.randrange(slots), random.randrange(1000), _duration(random, kind)))
    return found


def _duration(random: Random, kind: str) -> float:
    """Short, or longer than every small threshold."""
    if kind.startswith("stop") or kind in ("refuse", "freeze", "deaf"):
        return random.uniform(0.05, 1.0) if random.random() < 0.55 else random.uniform(4.0, 9.0)
    if kind == "server fast":
        return random.choice((0.0, 0.5, 3.0))
    return 0.0


def _acts(random: Random, seconds: float) -> list[Act]:
    found: list[Act] = []
    at = 0.0
    while (at := at + random.expovariate(1 / ACT_EVERY_S)) < seconds:
        [task] = random.choices(list(ACTS), list(ACTS.values()))
        found.append(_act(random, at, task, f"{task}-{len(found)}"))
    return found


def _act(random: Random, at: float, task: str, key: str) -> Act:
    if task == "many":
        return Act(at, "short", key, count=random.randint(2, 30))
    return Act(
        at,
        task,
        key,
        values=_values(random, task),
        deadline_s=random.uniform(0.3, 5.0) if task in LASTING | {"short"} and random.random() < 0.1 else None,
        delay_s=random.randint(1, 2) if task in ("short", "long") and random.random() < 0.1 else None,
        is_resilient=task in LASTING and random.random() < 0.1,
        cancel=(random.uniform(0.0, 2.0), random.random() < 0.5) if task in LASTING and random.random() < 0.1 else None,
    )


def _values(random: Random, task: str) -> dict[str, Any]:
    if task in LASTING or task == "few":
        lengths = ((0.05, 0.5), (0.5, 3.0), (0.5, 3.0), (4.0, 9.0), (4.0, 9.0))  # some outlive every small threshold
        return {"seconds": round(random.uniform(*random.choice(lengths)), 3)}
    if task == "grind":
        return {"seconds": round(random.uniform(0.5, 4.0), 3)}
    if task == "slow":
        return {"is_stubborn": random.random() < 0.3}
    if task in ("crash", "crash_again"):
        return {"how": random.choice(("exit", "segv", "kill"))}
    return {}
