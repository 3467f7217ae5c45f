"""How long to wait before the next try. The same rule applies everywhere (W-60): doubling, capped, with some jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """`delay(n)` is the delay in seconds before try *n* (1-based): min(maximum, initial * 2^(n-1)), ± `jitter`."""

    initial: float = 0.5
    maximum: float = 30.0
    jitter: float = 0.25

    def delay(self, attempt: int) -> float:
        # The exponent is bounded so that a thousandth try does not overflow a float.
        pause = min(self.maximum, self.initial * 2.0 ** min(attempt - 1, 60))
        return pause * random.uniform(1 - self.jitter, 1 + self.jitter)
