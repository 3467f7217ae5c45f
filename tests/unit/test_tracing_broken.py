"""An OpenTelemetry that is there and does not work: nothing that this library does depends on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What each of the entrances does, in a program that has imported `opentelemetry.trace` or has kept it from that.
PROGRAM = """
import logging, sys
logging.basicConfig(format="%(message)s")
from types import SimpleNamespace
{imports}
from horsies.core import tracing

payload = SimpleNamespace(task_name="add", queue_name="default")
for make in (
    lambda: tracing.sending(payload, "id"), lambda: tracing.sending(payload, None, 2),
    lambda: tracing.starting("flow", "id"), lambda: tracing.getting("task", "id"),
    lambda: tracing.running("add", b"[]"),
):
    with make() as span:
        span.failed("CODE")
    assert span.trace is None
assert tracing.supervisor("w1") is None
tracing.flush(0.1)
print("on" if tracing.is_on() else "off")
"""


def run(imports: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{imports}", imports)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("how", ["half an installation", "a propagator that is not there"])
def test_sends_go_on_with_an_opentelemetry_that_does_not_import(tmp_path: Path, how: str) -> None:
    environment = {"OTEL_PROPAGATORS": "no-such-propagator"}
    if how == "half an installation":
        package = tmp_path / "opentelemetry"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "trace.py").touch()
        (package / "context.py").write_text("raise RuntimeError('half an installation')")
        environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = run("import opentelemetry.trace", **environment)
    assert (done.returncode, done.stdout) == (0, "on\n"), done.stderr
    assert done.stderr.count("OpenTelemetry does not import") == 1, "said once, not with each send"


def test_an_opentelemetry_that_is_kept_from_being_imported_is_off() -> None:
    done = run("sys.modules['opentelemetry.trace'] = None")
    assert (done.returncode, done.stdout, done.stderr) == (0, "off\n", "")
