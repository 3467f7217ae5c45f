"""Retries by exception, as Celery and Procrastinate have them: a policy by error codes, and a mapper of exceptions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from horsies.core.exception_mapper import code_problems

MOST_RETRIES = 20
DEFAULT_RETRIES = 3  # of Celery
DEFAULT_DELAY_S = 180  # of Celery
LONGEST_S = 86_400
CRASHED = "WORKER_CRASHED"
ANY_EXCEPTION = "UNHANDLED_EXCEPTION"


@dataclass
class Retries:
    """What is retried, as written in the source, how often, and after how many seconds."""

    classes: list[str] = field(default_factory=list)
    max_retries: int | None = None
    delay: float | None = None
    doubles: bool = False
    longest: float = math.inf
    jitter: bool = False
    after_crash: bool = False
    called: tuple[float, bool] | None = None  # what the calls of `self.retry` say, which is the same in all of them
    delays: list[float] | None = None  # all of them, if they are neither equal nor doubling

    @property
    def is_none(self) -> bool:
        return self.most < 1 or not (self.classes or self.after_crash)

    @property
    def most(self) -> int:
        return min(DEFAULT_RETRIES if self.max_retries is None else self.max_retries, MOST_RETRIES)

    def codes(self) -> dict[str, str]:
        """The code of each exception class that needs one."""
        return {name: code_of(name) for name in self.classes if name not in ("Exception", "BaseException")}

    def mapper(self) -> str | None:
        codes = self.codes()
        return "{" + ", ".join(f'{name}: "{code}"' for name, code in codes.items()) + "}" if codes else None

    def wanted(self) -> list[float]:
        """The seconds before each retry, as the source says them."""
        first = DEFAULT_DELAY_S if self.delay is None else self.delay
        steps = self.delays or [min(self.longest, first * (2**i if self.doubles else 1)) for i in range(self.most)]
        return steps[: self.most]

    def unkept(self) -> list[float]:
        """Those of them that a policy cannot have: it counts in whole seconds, from one to a day."""
        return [wanted for wanted in self.wanted() if _seconds(wanted) != wanted]

    def policy(self, policy_name: str) -> str:
        """The policy as an expression."""
        listed = list(dict.fromkeys(self.codes().values()))
        if len(self.codes()) < len(set(self.classes)):
            listed.append(ANY_EXCEPTION)
        if self.after_crash:
            listed.append(CRASHED)
        codes = ", ".join(f'"{code}"' for code in listed)
        steady = "" if self.jitter else ", jitter=False"
        count, delays = self.most, [_seconds(wanted) for wanted in self.wanted()]
        if self.doubles and all(delay == delays[0] * 2**i for i, delay in enumerate(delays)):
            return f"{policy_name}.exponential({delays[0]}, max_retries={count}, auto_retry_for=[{codes}]{steady})"
        return f"{policy_name}.fixed({delays}, auto_retry_for=[{codes}]{steady})"


def code_of(class_name: str) -> str:
    """`requests.ConnectionError` is CONNECTION_ERROR; a word that is a built-in code gets an end of its own."""
    last = class_name.rpartition(".")[2]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", last)
    code = re.sub(r"[^A-Z0-9_]", "", words.upper()).lstrip("_0123456789") or "ERROR"
    return f"{code}_RAISED" if any(code_problems(code, field_name="code")) else code


def _seconds(delay: float) -> int:
    return max(1, min(LONGEST_S, round(delay)))
