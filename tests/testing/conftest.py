"""Fixtures of the tests of the testing kit."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from horsies.dev import program
from horsies.testing import worker_process
from tests import warm_start


class _Warm:
    """The module `subprocess`, by which the worker of a test starts without the import of the library."""

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)

    def Popen(self, words: tuple[str, ...], **given: Any) -> subprocess.Popen[Any]:
        if words != worker_process.MAIN:
            return subprocess.Popen(words, **given)
        path = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
        env = {name: value for name, value in given.pop("env").items() if name != "PYTHONPATH"}  # the order has it
        return warm_start.start((), program=warm_start.DOOMED, text=False, env={**env, **path}, **given)


@pytest.fixture(autouse=True)
def _workers_start_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a test costs its run, and not the import of the library. `test_plugin` starts workers cold."""
    monkeypatch.setattr(program, "subprocess", _Warm())
