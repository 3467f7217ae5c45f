"""Has hypothesis tell stories: always the same few for the test suite, or new ones from a seed."""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from tests.proof.machine import Machine, told_by
from tests.proof.server import Server

RULES = 30  # in a story, each of a few steps


def tell(
    machine: type[Machine],
    server: Server,
    tally: Counter[str],
    *,
    stories: int,
    from_seed: int | None = None,
    is_shortened: bool = True,
) -> None:
    """Raises AssertionError with a story, the shortest one found, that ends otherwise than the model says."""
    chosen = settings(
        max_examples=stories,
        stateful_step_count=RULES,
        derandomize=from_seed is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.generate, *([Phase.shrink] if is_shortened else [])),
    )
    test = get_state_machine_test(told_by(machine, server, tally), settings=chosen)
    (test if from_seed is None else seed(from_seed)(test))()
