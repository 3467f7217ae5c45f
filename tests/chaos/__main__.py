"""The long run: round after round from a new seed, for `--seconds`; each round breaks everything for a while, comes to
rest and is checked.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import time

from tests.chaos import report, times
from tests.chaos.checks import check
from tests.chaos.history import History
from tests.chaos.plan import make_plan
from tests.chaos.round import Round
from tests.chaos.violation import Violation

ROUND_S = 60.0
SHORTEST_S = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long in all; the last round is checked, too")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; as a former run has printed it")
    parser.add_argument("--round", type=float, default=ROUND_S, help="how long faults happen in one round")
    parser.add_argument("--keep", action="store_true", help="keep the directories of clean rounds, too")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    return stir(given.seconds, seed, given.round, keep=given.keep)


def stir(seconds: float, first_seed: int, round_s: float, *, keep: bool = False) -> int:
    begun, number = time.monotonic(), 0
    histories: list[History] = []
    found: list[Violation] = []
    while (left := seconds - (time.monotonic() - begun)) >= SHORTEST_S or not number:
        seed, length = first_seed + number, max(SHORTEST_S, min(round_s, left))
        print(f"{time.monotonic() - begun:7.0f} s  seed {seed}  ", end="", flush=True)
        history, violations = one_round(seed, length, keep=keep)
        histories.append(history)
        found += violations
        number += 1
    taken = time.monotonic() - begun
    print(f"\n{number} rounds in {taken:.0f} s, seeds {first_seed} to {first_seed + number - 1}")
    print(f"faults: {report.fault_counts(histories)}")
    for line in times.table([one for history in histories for one in times.recoveries(history)]):
        print(line)
    print("clean" if not found else f"{len(found)} violations, see above")
    return 1 if found else 0


def one_round(seed: int, seconds: float, *, keep: bool = False) -> tuple[History, list[Violation]]:
    """Run it, check it, tell it. What was found stays on disk."""
    one = Round(make_plan(seed, seconds))
    history = asyncio.run(one.run())
    violations = check(history)
    print(report.headline(history), flush=True)
    if violations:
        command = f"make chaos SEED={seed} SECONDS={seconds:.0f}"
        text = report.finding(history, violations, one.home, command)
        (one.home / "finding.txt").write_text(f"{text}\n")
        print(text, flush=True)
    elif not keep:
        one.clear()
    return history, violations


if __name__ == "__main__":
    sys.exit(main())
