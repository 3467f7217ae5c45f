"""`python -m tests.typing`: the static types, as mypy and pyright see them. `send()` checks its arguments,
`handle.get()` knows its result (T-22, T-40, T-60, X-01, X-21); so do the nodes and the handles of workflows (F-11,
F-33, F-83).

Each sample has lines that must be accepted, or lines that must be refused, which end in `E:` and the code of mypy.
pyright names its reasons otherwise, so only the lines are compared with what it says. Part of `make lint`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "typing"
PAGE = "workflows_page"
CACHE = ROOT / ".mypy_cache" / "samples"  # kept: without it most of the time goes to the libraries that we import
# How many errors a sample has at least; a sample whose name begins with `good` has none.
GOOD = {"good": 0, "good_names": 0, "good_plain": 0, "good_workflows": 0}
NAMES = {**GOOD, "bad": 16, "bad_names": 4, "bad_plain": 21, "bad_workflows": 26}
ERROR = re.compile(r"(?P<file>\w+)\.py:(?P<line>\d+): error: (?P<text>.*) \[(?P<code>[\w-]+)\]")

Found: TypeAlias = dict[str, dict[int, str]]  # file -> line -> what is wrong, or its code


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        page = Path(directory, f"{PAGE}.py")
        page.write_text(code_of_page())
        samples = [*(SAMPLES / f"{name}.py" for name in NAMES), page]
        wrong = problems(by_mypy(samples), by_pyright(samples))
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"types of the samples: {len(wrong)} problems" if wrong else "types of the samples: as expected")
    return 1 if wrong else 0


def code_of_page() -> str:
    text = (ROOT / "docs/workflows.md").read_text()
    return "\n\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def problems(mypy: Found, pyright: Found) -> list[str]:
    wrong = [f"docs/workflows.md: mypy: {text}" for text in mypy[PAGE].values()]
    for name, least in NAMES.items():
        expected = expected_errors(name)
        if len(expected) < least:
            wrong.append(f"{name}.py: only {len(expected)} lines end in # E:")
        wrong += _differences(name, "mypy", mypy[name], expected, with_codes=True)
        wrong += _differences(name, "pyright", pyright[name], expected, with_codes=False)
    return wrong


def _differences(
    name: str, who: str, found: dict[int, str], expected: dict[int, str], *, with_codes: bool
) -> list[str]:
    wrong = []
    for line in sorted(found.keys() | expected.keys()):
        if line not in expected:
            wrong.append(f"{name}.py:{line}: {who} refuses this: {found[line]}")
        elif line not in found:
            wrong.append(f"{name}.py:{line}: {who} accepts this")
        elif with_codes and found[line] != expected[line]:
            wrong.append(f"{name}.py:{line}: {who} says {found[line]}, not {expected[line]}")
    return wrong


def expected_errors(name: str) -> dict[int, str]:
    lines = (SAMPLES / f"{name}.py").read_text().splitlines()
    return {number: line.split("# E: ")[1] for number, line in enumerate(lines, 1) if "# E: " in line}


def by_mypy(samples: list[Path]) -> Found:
    """What mypy says, as a user without plugins would run it."""
    settings = samples[-1].with_name("mypy.ini")
    settings.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(settings), "--cache-dir", str(CACHE)]
    run = subprocess.run([*command, *map(str, samples)], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise SystemExit(run.stdout + run.stderr)
    errors: Found = {sample.stem: {} for sample in samples}
    for match in map(ERROR.search, run.stdout.splitlines()):
        if match is not None:
            errors[match["file"]][int(match["line"])] = match["code"]
    return errors


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
    command += ["--pythonpath", sys.executable]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        raise SystemExit(run.stdout + run.stderr)
    said = json.loads(run.stdout)
    if said["summary"]["filesAnalyzed"] != len(samples):
        raise SystemExit(f"pyright read {said['summary']['filesAnalyzed']} of {len(samples)} files")
    errors: Found = {sample.stem: {} for sample in samples}
    for one in said["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            errors[Path(one["file"]).stem][line] = f"{one.get('rule')}: {one['message']}"
    return errors


if __name__ == "__main__":
    raise SystemExit(main())
