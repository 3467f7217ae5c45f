"""`make test` and its siblings: run pytest with some processes, and with `--retry` run the few that failed once more.

A test that fails only next to others on a busy machine must not hide that everything else passed. It is run once more,
alone, and listed under FLAKY: a defect that someone should fix, but no reason to stop. More failures than `--retry`
allows, or one that fails again, are failures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest


class Failures:
    """A plugin of pytest: the tests that failed, also by the end of their process. What fails while something is torn
    down may be another test's fault, so running this one again shows nothing."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}
        self.at_teardown = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None
            self.at_teardown |= report.when == "teardown"


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, usage="python -m tests.run [options] [arguments of pytest]")
    parser.add_argument("--jobs", type=int, default=6, help="processes that run tests")
    parser.add_argument("--retry", type=int, default=0, help="if at most so many tests fail, run them again")
    chosen, given = parser.parse_known_args()
    failures = Failures()
    code = pytest.main(["-q", "-n", str(chosen.jobs), "--dist", "loadscope", *given], plugins=[failures])
    failed = list(failures.tests)
    if code != pytest.ExitCode.TESTS_FAILED or failures.at_teardown or not 1 <= len(failed) <= chosen.retry:
        return int(code)
    slow = ["--slow"] if "--slow" in given else []
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *slow, *failed], check=False).returncode
    if again == 0:
        print("\nFLAKY: failed, and passed when run again alone\n  " + "\n  ".join(failed), flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main())
