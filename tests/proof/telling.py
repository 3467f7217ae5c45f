"""Has hypothesis tell stories from a seed: the same seed, the same stories."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from tests.proof.machine import Machine
from tests.proof.server import Server

RULES = 30  # in a story, each of a few steps


def tell(
    machine: type[Machine],
    server: Server,
    tally: Counter[str],
    *,
    stories: int,
    from_seed: int,
    is_shortened: bool = True,
) -> None:
    """Raises AssertionError with a story, the shortest one found, that ends otherwise than the model says. What happens
    in all of them is counted in the tally."""
    chosen = settings(
        max_examples=stories,
        stateful_step_count=RULES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate, *([Phase.shrink] if is_shortened else [])),
    )
    told = type(machine.__name__, (machine,), {"server": server, "tally": tally})
    seed(from_seed)(get_state_machine_test(told, settings=chosen))()
