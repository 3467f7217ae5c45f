"""Where the time of the tests goes, for `make test-times`: a plugin of pytest, in each process that runs tests.

For each file it adds up the seconds from the start of a test to its end, those of them in which fixtures start
databases, servers and apps, the CPU time of the process itself, and that of the processes that the tests started and
that have ended. What is left of the seconds is waiting. After a run of all tests, the longest files are also written to
`longest.txt`: the next runs start with them.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields

import pytest

from tests.conftest import LONGEST

SHOWN, WRITTEN = 30, 60
PROPERTY = "spent"
_started: dict[str, tuple[float, float, float]] = {}


@dataclass
class Spent:
    """Seconds of one file, and its number of tests."""

    tests: int = 0
    wall: float = 0.0
    starting: float = 0.0
    computing: float = 0.0
    in_children: float = 0.0

    @property
    def waiting(self) -> float:
        return max(0.0, self.wall - self.starting - self.computing)

    def add(self, other: Spent) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


_spent: dict[str, Spent] = defaultdict(Spent)


def _now() -> tuple[float, float, float]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _started[item.nodeid] = _now()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[pytest.TestReport]:
    report = yield
    spent = Spent()
    if call.when == "setup":
        spent.tests, spent.starting = 1, call.duration
    if call.when == "teardown":
        spent.wall, spent.computing, spent.in_children = (
            b - a for a, b in zip(_started.pop(item.nodeid), _now(), strict=True)
        )
    report.user_properties.append((PROPERTY, [getattr(spent, field.name) for field in fields(spent)]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, values in report.user_properties:
        if name == PROPERTY:
            _spent[report.nodeid.partition("::")[0]].add(Spent(*values))  # type: ignore[misc]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    total = Spent()
    for spent in _spent.values():
        total.add(spent)
    files = sorted(_spent, key=lambda name: -_spent[name].wall)
    terminalreporter.section("seconds by file")
    head = ("wall", "starting", "waiting", "computing", "in children", "tests")
    terminalreporter.write_line("".join(f"{one:>12}" for one in head))
    for name, spent in [("all files", total), *((name, _spent[name]) for name in files[:SHOWN])]:
        seconds = (spent.wall, spent.starting, spent.waiting, spent.computing, spent.in_children)
        terminalreporter.write_line("".join(f"{one:12.1f}" for one in seconds) + f"{spent.tests:12}  {name}")
    if not config.getoption("file_or_dir"):  # all of them ran
        LONGEST.write_text("".join(f"{name.removeprefix('tests/')}\n" for name in files[:WRITTEN]))
