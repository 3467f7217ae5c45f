"""The long run: new stories from a new seed, round after round, for `--seconds` (or so many `--stories`)."""

from __future__ import annotations

import argparse
import secrets
import time
from collections import Counter

from tests.proof.machine import CrashingMachine, Machine
from tests.proof.server import own_server
from tests.proof.telling import tell

ROUND = 20  # stories
CRASHING = 3  # each third round the server crashes, too


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="end after the round that is under way then")
    parser.add_argument("--stories", type=int, default=None, help="end after so many stories instead")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; as a former run has printed it")
    parser.add_argument("--as-found", action="store_true", help="tell a finding as it was found, do not shorten it")
    given = parser.parse_args()
    prove(given.seconds, given.stories, secrets.randbits(32) if given.seed is None else given.seed, not given.as_found)


def prove(seconds: float, stories: int | None, first_seed: int, is_shortened: bool) -> None:
    begun, told, number = time.monotonic(), 0, 0
    tally: Counter[str] = Counter()
    with own_server() as server:
        while time.monotonic() - begun < seconds if stories is None else told < stories:
            seed = first_seed + number
            machine = CrashingMachine if seed % CRASHING == 0 else Machine
            print(f"{time.monotonic() - begun:7.0f} s  seed {seed}  {machine.__name__}", end="", flush=True)
            before = tally["steps"]
            tell(machine, server, tally, stories=ROUND, from_seed=seed, is_shortened=is_shortened)
            told, number = told + ROUND, number + 1
            print(f"  {tally['steps'] - before} steps, {tally['steps']} in all", flush=True)
    taken = time.monotonic() - begun
    print(f"{told} stories, {tally.pop('steps')} steps in {taken:.0f} s, all as the model says:")
    for what, count in sorted(tally.items()):
        print(f"  {count:8} {what}")


if __name__ == "__main__":
    main()
