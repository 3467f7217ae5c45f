"""A command that starts warm is the command that a user starts: the same output, the same end, the same signals."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm_start
from tests.e2e.cli_support import environment

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "args", [("--version",), ("--help",), ("no-such-command",), ("check", "nowhere.py:app"), ("tasks", "--limit", "x")]
)
def test_warm_and_cold_say_and_return_the_same(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = warm_start.run(args, cwd=tmp_path, env=environment(), timeout=60)
    monkeypatch.setenv(warm_start.COLD_VARIABLE, "1")
    cold = warm_start.run(args, cwd=tmp_path, env=environment(), timeout=60)
    assert (warm.returncode, warm.stdout, warm.stderr) == (cold.returncode, cold.stdout, cold.stderr)


def test_it_gets_its_own_directory_and_variables_and_its_end_is_known(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os, sys, time\n"
        "print(os.getcwd(), os.environ['COLOUR'], 'HOME' in os.environ, os.getpid() == os.getsid(0), flush=True)\n"
        "time.sleep(600)\n"
    )
    process = warm_start.start(
        ("check", "mine"), cwd=tmp_path, env={"COLOUR": "bay", **_of_the_interpreter()}, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{tmp_path} bay False True\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL and process.poll() == -signal.SIGKILL


def _of_the_interpreter() -> dict[str, str]:
    return warm_start._for_the_interpreter(environment())
