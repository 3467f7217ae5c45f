"""What docs/metrics.md shows: its program is loaded as a worker loads it, and traces as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
USE = """
from opentelemetry import trace
import shop
assert shop.app.check() == [] and list(shop.app.tasks) == ["shop.price"]
assert shop.price(2).unwrap() == 200
shop.provider.force_flush()
"""


def test_the_program_of_the_page_is_sound_and_traces(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "shop.py").write_text(code)
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"look up"' in done.stdout and '"service.name": "shop"' in done.stdout
