"""`make test VERSIONS=all`: the tests of what meets the server, on each PostgreSQL that can be had, and a table.
Every version is a temporary server of its own, which the tests are pointed at with `HORSIES_TEST_DATABASE_URL`. If that
is set already, the tests are run on that server alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import psycopg

from tests.given_server import VARIABLE
from tests.versions.binaries import ROOT, NotHere, pin_newest, versions
from tests.versions.server import temporary_server

# Store and schema, recovery, workflows: one folder or file for each place where their statements are run.
TESTS = (
    "tests/store",
    "tests/services",
    "tests/proof_pairs",
    "tests/proof_workflows",
    "tests/e2e/workflows",
    "tests/e2e/test_bad_database.py",
    "tests/e2e/test_recovery_crowd.py",
    "tests/e2e/test_sweep_dead_worker.py",
    "tests/e2e/test_worker_runs_tasks.py",
)
OWN_SERVER = ("tests/services/test_embedded.py", "tests/services/test_embedded_places.py")
HEAD = ("PostgreSQL", "from", "passed", "failed", "skipped", "seconds")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table. `why` is set if the version could not be had."""

    version: str
    origin: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    is_clean: bool = False
    why: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        if self.why:
            return (self.version, f"not had: {self.why}", "", "", "", "")
        return (self.version, self.origin, *map(str, (self.passed, self.failed, self.skipped, self.seconds)))


def main() -> int:
    given = _arguments()
    if given.pin:
        print("\n".join(pin_newest()) or "nothing newer")
        return 0
    tests = given.tests or list(TESTS)
    if url := os.environ.get(VARIABLE):
        outcomes = [_run(url, "given", tests, given.jobs)]
    else:
        outcomes = [_run_version(major, tests, given.jobs) for major in given.versions or versions()]
    print(f"\n{table(outcomes)}")
    return verdict(outcomes, is_chosen=bool(given.versions))


def table(outcomes: list[Outcome]) -> str:
    rows = [HEAD, *(outcome.cells for outcome in outcomes)]
    # What could not be had has a sentence instead of figures, which must not make the columns wide.
    widths = [max(len(row[at]) for row in rows if row[2]) for at in range(len(HEAD))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    figures = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*names, *figures]).rstrip()


def verdict(outcomes: list[Outcome], *, is_chosen: bool) -> int:
    """0 if all that were run are clean. What cannot be had is a failure if it was asked for, or if nothing else was."""
    ran = [outcome for outcome in outcomes if not outcome.why]
    is_missing = len(ran) < len(outcomes)
    return int(not ran or (is_chosen and is_missing) or not all(outcome.is_clean for outcome in ran))


def read_report(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped of a JUnit file."""
    [suite] = ElementTree.parse(report).getroot().iter("testsuite")
    total, failed, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    return total - failed - errors - skipped, failed + errors, skipped


def _run_version(major: int, tests: list[str], jobs: str) -> Outcome:
    print(f"\n== PostgreSQL {major} ==", flush=True)
    try:
        with temporary_server(major) as (url, install):
            return _run(url, install.origin, tests, jobs)
    except NotHere as reason:
        return Outcome(str(major), why=str(reason))


def _run(url: str, origin: str, tests: list[str], jobs: str) -> Outcome:
    begun = time.monotonic()
    with psycopg.connect(url) as conn:
        version = str(conn.info.parameter_status("server_version")).split()[0]
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        code = _pytest(url, tests, jobs, report)
        counts = read_report(report) if report.exists() else (0, 0, 0)
    return Outcome(version, origin, *counts, round(time.monotonic() - begun), is_clean=code == 0)


def _pytest(url: str, tests: list[str], jobs: str, report: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-n", jobs, "--dist", "loadscope", f"--junitxml={report}"]
    command += [f"--ignore={name}" for name in OWN_SERVER]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HORSIES_TEST_")}
    return subprocess.run([*command, *tests], cwd=ROOT, env=environment | {VARIABLE: url}, check=False).returncode


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("tests", nargs="*", help="other tests than the usual ones")
    parser.add_argument("--versions", type=_majors, help="some of them: 15,16")
    parser.add_argument("--jobs", default="2", help="processes of pytest")
    parser.add_argument("--pin", action="store_true", help="pin the newest archive of each version, and run nothing")
    return parser.parse_args()


def _majors(text: str) -> list[int]:
    majors = sorted({int(part) for part in text.split(",") if part.strip().isdigit()})
    if not majors or not set(majors) <= set(versions()):
        raise argparse.ArgumentTypeError(f"some of {', '.join(map(str, versions()))}, not {text!r}")
    return majors


if __name__ == "__main__":
    sys.exit(main())
