"""The long run of a mixed fleet: `make soak DEPLOYS=1 SECONDS=600`."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from horsies.core import embedded
from tests.deploys.fleet import STEP_S, Fleet


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.deploys", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long tasks are sent")
    parser.add_argument("--workers", type=int, default=3, help="places for workers")
    parser.add_argument("--rate", type=float, default=60.0, help="tasks a second, about")
    parser.add_argument("--step", type=float, default=STEP_S, help="seconds between two steps of a deploy")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="horsies-deploys-"))
    url = embedded.ensure_running(home / "server")
    try:
        fleet = Fleet(url, workers=given.workers, rate=given.rate, log=home / "workers.log")
        outcome = asyncio.run(fleet.run(given.seconds, given.step))
    finally:
        embedded.stop(home / "server")
    print(outcome)
    for problem in outcome.problems:
        print(problem)
    print(f"what the workers said: {home / 'workers.log'}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
