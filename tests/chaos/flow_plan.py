"""Which workflows a round starts, when, and what is done to them: all of it decided by the seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

FLOW_EVERY_S = 2.5
FLOWS = {"chain": 10, "fan": 10, "map": 8, "nested": 8}
STEPS = {"step": 10, "step_nap": 5, "step_flaky": 5, "step_plain": 3}
JOINS = ("all", "allow", "any", "quorum")


@dataclass(frozen=True, slots=True)
class FlowAct:
    """One workflow. `steps` are the tasks of its nodes, in turn, and how long they last. `pause` is after how long, and
    for how long; `cancel` and `deadline_s` after how long."""

    at: float
    kind: str
    key: str
    width: int
    steps: tuple[tuple[str, float], ...]
    join: str = "all"
    max_parallel: int | None = None
    is_deep: bool = False
    pauses_on_error: bool = False
    deadline_s: float | None = None
    pause: tuple[float, float] | None = None
    cancel: float | None = None


def make_flows(random: Random, seconds: float) -> list[FlowAct]:
    found: list[FlowAct] = []
    at = 0.0
    while (at := at + random.expovariate(1 / FLOW_EVERY_S)) < seconds:
        [kind] = random.choices(list(FLOWS), list(FLOWS.values()))
        found.append(_act(random, at, kind, f"{kind}-{len(found)}"))
    return found


def _act(random: Random, at: float, kind: str, key: str) -> FlowAct:
    names = random.choices(list(STEPS), list(STEPS.values()), k=5)
    # Elements may have to wait for each other.
    lengths = ((0.0, 0.05), (0.1, 0.6)) if kind == "map" else ((0.0, 0.05), (0.1, 0.6), (1.0, 4.0))
    steps = tuple((name, round(random.uniform(*random.choice(lengths)), 3)) for name in names)
    return FlowAct(
        at,
        kind,
        key,
        width=random.randint(2, 4) if kind in ("chain", "nested") else random.randint(2, 12),
        steps=steps,
        join=random.choice(JOINS),
        max_parallel=random.choice((None, 1, 3)),
        is_deep=random.random() < 0.4,
        pauses_on_error=random.random() < 0.15,
        deadline_s=random.uniform(0.5, 6.0) if random.random() < 0.12 else None,
        pause=(random.uniform(0.0, 2.0), random.uniform(0.2, 3.0)) if random.random() < 0.25 else None,
        cancel=random.uniform(0.0, 3.0) if random.random() < 0.12 else None,
    )
