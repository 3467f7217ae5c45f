"""The static types, as mypy and pyright see them: `send()` checks its arguments, `handle.get()` knows its result (T-22,
T-40, T-60, X-01, X-21); so do the nodes and the handles of workflows (F-11, F-33, F-83).

Each sample has lines that must be accepted, or lines that must be refused, which end in `E:` and the code of mypy.
pyright names its reasons otherwise, so only the lines are compared with what it says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "typing"
PAGE = "workflows_page"
CACHE = ROOT / ".mypy_cache" / "samples"  # kept: without it most of the time goes to the libraries that we import
NAMES = ("good", "bad", "good_plain", "bad_plain", "good_workflows", "bad_workflows")
ERROR = re.compile(r"(?P<file>\w+)\.py:(?P<line>\d+): error: .*\[(?P<code>[\w-]+)\]")

Found: TypeAlias = dict[str, dict[int, str]]  # file -> line -> code


def expected_errors(name: str) -> dict[int, str]:
    lines = (SAMPLES / f"{name}.py").read_text().splitlines()
    return {number: line.split("# E: ")[1] for number, line in enumerate(lines, 1) if "# E: " in line}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The files to check: the samples, and the code of the workflows page."""
    page = tmp_path_factory.mktemp("page") / f"{PAGE}.py"
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/workflows.md").read_text(), re.DOTALL | re.MULTILINE)
    page.write_text("\n\n".join(blocks))
    return [*(SAMPLES / f"{name}.py" for name in NAMES), page]


@pytest.fixture(scope="module")
def by_mypy(samples: list[Path]) -> Found:
    """What mypy says, as a user without plugins would run it."""
    settings = samples[-1].with_name("mypy.ini")
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(CACHE)]
    run = subprocess.run([*command, *map(str, samples)], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: Found = {sample.stem: {} for sample in samples}
    for match in map(ERROR.search, run.stdout.splitlines()):
        if match is not None:
            errors[match["file"]][int(match["line"])] = match["code"]
    return errors


@pytest.fixture(scope="module")
def by_pyright(samples: list[Path]) -> Found:
    """What pyright says in its strict mode."""
    settings = samples[-1].with_name("pyrightconfig.json")
    known = {
        "typeCheckingMode": "strict",
        "include": list(map(str, samples)),
        "extraPaths": [str(ROOT)],
        "pythonVersion": "3.11",
    }
    settings.write_text(json.dumps(known))
    command = [sys.executable, "-m", "basedpyright", "-p", str(settings), "--outputjson"]
    run = subprocess.run([*command, "--pythonpath", sys.executable], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    said = json.loads(run.stdout)
    assert said["summary"]["filesAnalyzed"] == len(samples)
    errors: Found = {sample.stem: {} for sample in samples}
    for one in said["generalDiagnostics"]:
        if one["severity"] == "error":
            place = one["range"]["start"]["line"] + 1
            errors[Path(one["file"]).stem][place] = f"{one.get('rule')}: {one['message']}"
    return errors


@pytest.fixture(params=["by_mypy", "by_pyright"])
def found(request: pytest.FixtureRequest) -> Found:
    """The same questions to both."""
    answers: Found = request.getfixturevalue(request.param)
    return answers


def test_t22_correct_code_is_accepted_with_the_types_it_should_have(found: Found) -> None:
    assert found["good"] == {}


def test_t40_wrong_code_is_refused_line_by_line(found: Found) -> None:
    expected = expected_errors("bad")
    assert len(expected) > 15
    assert found["bad"].keys() == expected.keys()


def test_x01_x02_x03_x21_p01_f33_f95_plain_values_have_their_types_in_handles_and_nodes(found: Found) -> None:
    assert found["good_plain"] == {}


def test_x01_x03_x21_p01_f33_f95_wrong_plain_values_are_refused_line_by_line(found: Found) -> None:
    expected = expected_errors("bad_plain")
    assert len(expected) > 20
    assert found["bad_plain"].keys() == expected.keys()


def test_f03_f04_f11_f83_f95_types_flow_through_workflows(found: Found) -> None:
    assert found["good_workflows"] == {}


def test_f08_f11_f95_wrong_workflows_are_refused_line_by_line(found: Found) -> None:
    expected = expected_errors("bad_workflows")
    assert len(expected) > 25
    assert found["bad_workflows"].keys() == expected.keys()


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("bad")])
def test_t40_f11_mypy_names_the_reason(by_mypy: Found, name: str) -> None:
    assert by_mypy[name] == expected_errors(name)


def test_the_code_of_the_workflows_page_is_well_typed(by_mypy: Found) -> None:
    assert by_mypy[PAGE] == {}
