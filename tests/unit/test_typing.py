"""The static types: `send()` checks its arguments, `handle.get()` knows its result (T-22, T-40, T-60); so do the nodes
and the handles of workflows (F-11, F-83).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "typing"
PAGE = "workflows_page"
CACHE = ROOT / ".mypy_cache" / "samples"  # kept: without it most of the time goes to the libraries that we import
NAMES = ("good", "bad", "good_workflows", "bad_workflows")
ERROR = re.compile(r"(?P<file>\w+)\.py:(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]")


def expected_errors(file: Path) -> dict[int, str]:
    lines = file.read_text().splitlines()
    return {number: line.split("# E: ")[1] for number, line in enumerate(lines, 1) if "# E: " in line}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """What mypy says about the samples, as a user without plugins would run it: file -> line -> code."""
    settings = tmp_path_factory.mktemp("mypy") / "mypy.ini"
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(CACHE)]
    page = settings.parent / f"{PAGE}.py"
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/workflows.md").read_text(), re.DOTALL | re.MULTILINE)
    page.write_text("\n\n".join(blocks))
    samples = [*(str(SAMPLES / f"{name}.py") for name in NAMES), str(page)]
    run = subprocess.run([*command, *samples], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: dict[str, dict[int, str]] = {name: {} for name in (*NAMES, PAGE)}
    for match in map(ERROR.search, run.stdout.splitlines()):
        if match is not None:
            errors[match["file"]][int(match["line"])] = match["code"]
    return errors


def test_t22_correct_code_is_accepted_with_the_types_it_should_have(found: dict[str, dict[int, str]]) -> None:
    assert found["good"] == {}


def test_t40_wrong_code_is_refused_line_by_line(found: dict[str, dict[int, str]]) -> None:
    expected = expected_errors(SAMPLES / "bad.py")
    assert len(expected) > 15
    assert found["bad"] == expected


def test_f03_f04_f11_f83_f95_types_flow_through_workflows(found: dict[str, dict[int, str]]) -> None:
    assert found["good_workflows"] == {}


def test_f08_f11_f95_wrong_workflows_are_refused_line_by_line(found: dict[str, dict[int, str]]) -> None:
    expected = expected_errors(SAMPLES / "bad_workflows.py")
    assert len(expected) > 25
    assert found["bad_workflows"] == expected


def test_the_code_of_the_workflows_page_is_well_typed(found: dict[str, dict[int, str]]) -> None:
    assert found[PAGE] == {}
