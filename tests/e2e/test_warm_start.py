"""A process that starts warm is the one that a user starts: the same output, the same end, the same signals."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from horsies.core.child.wire import ChildSpec, Kind
from tests import warm_start
from tests.e2e.cli_support import environment
from tests.services.children import Child
from tests.worker_support import warm_launcher

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


CHILD = """
import os, sys
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url("postgresql://localhost/none"))
print(os.getcwd(), os.environ["COLOR"], os.getsid(0) == os.getppid(), repr(sys.stdin.read()), flush=True)
"""


@pytest.mark.parametrize("is_cold", [False, True])
async def test_a_warm_fork_server_is_as_a_cold_one(
    is_cold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(CHILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLOR", "bay")
    if is_cold:
        monkeypatch.setenv(warm_start.COLD_VARIABLE, "1")
    with warm_launcher() as launcher:
        await launcher.start()
        assert psutil.Process(launcher.pid).cwd() == str(tmp_path)
        child = await launcher.spawn(ChildSpec(app_locator="mine.py:app"), "child")
        kind, _, parts = await Child(child).hear()
        assert kind is Kind.READY, parts
        psutil.Process(launcher.pid).kill()
        assert await child.exited == -signal.SIGKILL
        assert child.why_lost is not None and "was killed by SIGKILL" in child.why_lost
        child.sock.close()
        child.close_outbox()
    assert capfd.readouterr().out == f"{tmp_path} bay True ''\n"
