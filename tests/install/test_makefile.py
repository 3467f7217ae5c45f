"""`make` as a stranger types it: it lists its targets, says what is missing, shows why an installation fails, and
everything that files of the project tell somebody to type is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.install.pins import ROOT, project

MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def targets() -> set[str]:
    return set(TARGET.findall(MAKEFILE))


def make(*words: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | variables
    return subprocess.run(["make", *words], cwd=cwd, capture_output=True, text=True, env=environment, check=False)


def called(command: str) -> set[str]:
    """The targets of a command line such as `make JOBS=2 lint test`."""
    words = [word for word in command.split() if "=" not in word and not word.startswith("-")]
    return set(words[1:]) if words[:1] == ["make"] else set()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A directory where nothing is installed yet."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def interpreter_that(does: str, directory: Path) -> Path:
    """This interpreter, but for a few words of its command lines: `does` is branches of a shell's `case`."""
    script = directory / "python-of-another-machine"
    script.write_text(f'#!/bin/sh\ncase "$*" in\n{does}\nesac\nexec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return script


@needs_make
def test_make_alone_lists_every_target_with_a_line() -> None:
    done = make()
    listed = re.findall(r"^  ([a-z-]+) +\S.*$", done.stdout, re.MULTILINE)
    assert done.returncode == 0
    assert sorted(listed) == sorted(targets())
    assert make("help").stdout == done.stdout


@needs_make
def test_a_python_that_is_missing_is_named(copy: Path) -> None:
    done = make("demo", "PYTHON=no-such-python", cwd=copy)
    assert done.returncode != 0
    assert "no-such-python was not found" in done.stderr and "make PYTHON=python3.12 demo" in done.stderr


@needs_make
def test_a_python_that_is_too_old_is_named(copy: Path) -> None:
    old = interpreter_that("*version_info*) exit 1;;", copy)
    done = make("demo", f"PYTHON={old}", cwd=copy)
    assert done.returncode != 0
    assert "older than Python 3.11" in done.stderr and "make PYTHON=python3.12 demo" in done.stderr
    assert not (copy / ".venv").exists()


@needs_make
def test_a_python_without_venv_says_what_to_install(copy: Path) -> None:
    """Stock Debian: `ensurepip` is in a package of its own."""
    bare = interpreter_that("*ensurepip*) echo No module named ensurepip >&2; exit 1;;", copy)
    done = make("test", f"PYTHON={bare}", cwd=copy)
    assert done.returncode != 0
    assert "apt install python3-venv" in done.stderr and "make PYTHON=python3.12 test" in done.stderr
    assert not (copy / ".venv").exists()


BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_editable(directory, config_settings=None):
    info = Path(directory) / "sample-1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\\nName: sample\\nVersion: 1\\nRequires-Dist: part>=7\\nProvides-Extra: embedded\\n"
    )
    return info.name

def build_editable(directory, config_settings=None, metadata_directory=None):
    raise SystemExit("this is never built")
"""


@needs_make
def test_an_installation_that_fails_shows_the_reason_of_pip_and_leaves_no_stamp(copy: Path) -> None:
    """A package needs another version than the pinned one: pip tells who wants what, unless it is told to be quiet."""
    (copy / "backend.py").write_text(BACKEND)
    (copy / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (copy / "constraints.txt").write_text("part==2\n")
    with zipfile.ZipFile(copy / "part-2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("part-2.dist-info/METADATA", "Metadata-Version: 2.1\nName: part\nVersion: 2\n")
        wheel.writestr("part-2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("part-2.dist-info/RECORD", "")
    (copy / ".venv/bin").mkdir(parents=True)  # as if it had been made, with the pip of this environment
    (copy / ".venv/bin/python").symlink_to(interpreter_that("", copy))
    (copy / ".venv/.made").touch()
    done = make("demo", cwd=copy, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(copy))
    assert done.returncode != 0
    assert "depends on part>=7" in done.stdout + done.stderr
    assert "The user requested (constraint) part==2" in done.stdout + done.stderr
    assert not (copy / ".venv/.installed-embedded").exists()


def test_each_target_installs_an_extra_that_exists_and_the_demo_only_one() -> None:
    wanted = dict(re.findall(r"^([a-z-]+): \$\(call with,([a-z ]+)\)", MAKEFILE, re.MULTILINE))
    assert {name for names in wanted.values() for name in names.split()} <= set(project()["optional-dependencies"])
    assert wanted["demo"] == "embedded" and wanted["test"] == "test"
    assert "--quiet" not in MAKEFILE.partition(".installed-%:")[2]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", ".github/pull_request_template.md"])
def test_the_targets_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    lines = [*re.findall(r"`(make [^`…]+)`", text), *re.findall(r"^(make [^#\n]*)", text, re.MULTILINE)]
    assert lines
    assert {name for line in lines for name in called(line)} <= targets()


def test_every_target_is_in_the_table_of_contributing() -> None:
    table = set(re.findall(r"^\| `make (?:[A-Z]\S+ )?([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    assert targets() - table == set()


def steps(workflow: dict[Any, Any]) -> list[str]:
    return [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_a_workflow_is_yaml_and_calls_targets_that_exist(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text())
    lines = [line.strip() for run in steps(workflow) for line in run.splitlines()]
    names = [name for line in lines for name in called(line)]
    assert names and set(names) <= targets()
    assert all({"runs-on", "steps", "timeout-minutes"} <= set(job) for job in workflow["jobs"].values())
    assert workflow["permissions"] == {"contents": "read"}


def test_the_pipeline_tries_every_python_that_the_package_names_and_what_the_readme_promises() -> None:
    [file] = [file for file in WORKFLOWS if file.name == "ci.yml"]
    workflow = yaml.safe_load(file.read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    series = [text.rpartition(" ")[2] for text in project()["classifiers"] if "Python :: 3." in text]
    assert pythons == series, "as texts: 3.10 is not 3.1"
    names = {name for run in steps(workflow) for line in run.splitlines() for name in called(line.strip())}
    assert {"demo", "test", "test-install", "lint"} <= names
    local = {name for line in (ROOT / ".ci/run").read_text().splitlines() for name in called(line)}
    assert local <= targets() and {"lint", "test"} <= local


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml", "config.yml"])
def test_the_forms_for_issues_can_be_read(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / name).read_text())
    if name == "config.yml":
        assert form["blank_issues_enabled"] is True
        return
    assert {"name", "description", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert asked and len({part["id"] for part in asked}) == len(asked)
    assert all(part["attributes"]["label"] for part in asked)
