"""Projects that `horsies new` writes, as a stranger has them (X-32): the package that is built from here writes one,
its README says how to install it into a new environment, and there its own tests pass and `horsies dev` starts. A quick
form, in the environment of the tests, is part of every run."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from horsies.core.embedded import stop as stop_server
from horsies.dev.new import Template, create
from tests.install.pins import ROOT
from tests.support import eventually_sync

VARIABLE = "HORSIES_TEST_NEW"
asks_the_index = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"asks the package index: {VARIABLE}=1, or make test-new"
)
# What each says when it serves, beside the worker and the dashboard.
SERVES = {
    Template.MINIMAL: r"runs the scheduler",
    Template.FASTAPI: r"uvicorn +\| .*Application startup complete",
    Template.DJANGO: r"manage.py-2 +\| .*(Starting development server|Quit the server)",
}


def clean(**more: str) -> dict[str, str]:
    """Nothing of the tests' own environment."""
    foreign = ("HORSIES", "PYTHON", "DATABASE_URL", "DJANGO", "PYTEST", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, **more}


def done(*command: str | Path, cwd: Path, timeout: float = 300, **more: str) -> str:
    ended = subprocess.run(
        [*map(str, command)], cwd=cwd, env=clean(**more), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout + ended.stderr


PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


@pytest.mark.slow("pytest within pytest, on a new project")
def test_x32_the_tests_of_a_new_project_pass(tmp_path: Path, server_url: str) -> None:
    """On the server of this run, which is quicker than one of its own."""
    create(tmp_path / "my-shop", Template.MINIMAL)
    said = done(*PYTEST, cwd=tmp_path / "my-shop", timeout=110, HORSIES_TEST_DATABASE_URL=server_url)
    assert re.search(r"[3-9] passed", said), said


@pytest.mark.slow("starts a PostgreSQL server for each template")
@pytest.mark.parametrize("template", Template)
def test_x32_the_tests_of_a_new_project_bring_their_own_server(tmp_path: Path, template: Template) -> None:
    create(tmp_path / "my-shop", template)
    said = done(*PYTEST, cwd=tmp_path / "my-shop", timeout=110)
    assert re.search(r"[3-9] passed", said), said


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    done(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, ROOT, cwd=place)
    [found] = place.glob("horsies_pg-*.whl")
    return found


def new_environment(place: Path) -> Path:
    """Its programs."""
    done(os.environ.get("NEW_PYTHON", sys.executable), "-m", "venv", place, cwd=place.parent)
    return place / "bin"


PIP = ("install", "--quiet", "--disable-pip-version-check", "-c", ROOT / "constraints.txt")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The programs of an environment that has nothing but the package, from the wheel."""
    programs = new_environment(tmp_path_factory.mktemp("installed") / "venv")
    done(programs / "pip", *PIP, wheel, cwd=programs, timeout=600)
    return programs


@pytest.mark.timeout(900)
def test_e01_extras_are_added_as_messages_say_it(installed: Path, wheel: Path, tmp_path: Path) -> None:
    """pip finds the package where it is installed, and asks the index only for what the extras need."""
    said = done(installed / "horsies", "new", "shop", cwd=tmp_path)
    [words] = re.findall(r"^next: .* && pip install (.*) && horsies dev", said, re.MULTILINE)
    assert shlex.split(words) == ["horsies-pg[dev]", "pytest"]
    done(installed / "pip", *PIP, *shlex.split(words), cwd=tmp_path, timeout=600)
    frozen = done(installed / "pip", "freeze", cwd=tmp_path)
    assert f"horsies-pg @ {wheel.as_uri()}" in frozen and "watchfiles==" in frozen and "psycopg-binary==" in frozen


@pytest.mark.slow("makes an environment for each template and asks the package index")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("template", Template)
def test_x32_a_new_project_in_a_new_environment_passes_its_tests_and_starts(
    tmp_path: Path, installed: Path, template: Template
) -> None:
    done(installed / "horsies", "new", "shop", "--template", template.value, cwd=tmp_path)
    project = tmp_path / "shop"
    assert '.venv/bin/pip install -e ".[dev]"\n' in (project / "README.md").read_text()
    programs = new_environment(project / ".venv")
    done(programs / "pip", *PIP, "-e", ".[dev]", cwd=project, timeout=600)
    done(programs / "python", "-m", "pytest", "-q", cwd=project)
    settings = project / "pyproject.toml"
    settings.write_text(re.sub(r"\b8000\b", str(free_port()), settings.read_text()))
    with running(programs / "horsies", project) as lines:
        for pattern in (r"worker ready", r"web +\| dashboard: http://127.0.0.1:\d+", SERVES[template]):
            eventually_sync(lambda pattern=pattern: re.search(pattern, "".join(lines)), 60, what=f"{pattern}: {lines}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class running:
    """`horsies dev` for a while; it ends well."""

    def __init__(self, program: Path, project: Path) -> None:
        self._project = project
        self._process = subprocess.Popen(
            [str(program), "dev"], cwd=project, env=clean(), text=True, stderr=subprocess.PIPE, start_new_session=True
        )
        self._said: list[str] = []
        self._reading = threading.Thread(target=lambda: self._said.extend(self._lines()), daemon=True)

    def _lines(self) -> Iterator[str]:
        assert self._process.stderr is not None
        yield from self._process.stderr

    def __enter__(self) -> list[str]:
        self._reading.start()
        return self._said

    def __exit__(self, *_: object) -> None:
        try:
            self._process.send_signal(signal.SIGINT)
            code = self._process.wait(60)
        finally:
            self._process.kill()
            self._process.wait()
            self._reading.join(10)
            stop_server(self._project / ".horsies/postgres")
        assert code == 0, "".join(self._said)
