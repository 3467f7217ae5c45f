"""Projects that `horsies new` writes, as a stranger has them (X-32): a new environment with the package that is built
from here, what the command itself says to install, the project's own tests, and `horsies dev`. A quick form, in the
environment of the tests, is part of every run."""

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
    [found] = place.glob("horsies-*.whl")
    return found


def told_to_install(said: str, wheel: Path) -> list[str]:
    """What the command says to install, with the package that was just built in the place of ours."""
    [words] = re.findall(r"^next: .* && pip install (.*) && horsies dev", said, re.MULTILINE)
    ours, *others = shlex.split(words)
    return [ours.replace("/path/to/horsies", "horsies") + f" @ {wheel.as_uri()}", *others]


@pytest.mark.slow("makes an environment for each template and asks the package index")
@asks_the_index
@pytest.mark.timeout(900)
@pytest.mark.parametrize("template", Template)
def test_x32_a_new_project_in_a_new_environment_passes_its_tests_and_starts(
    tmp_path: Path, wheel: Path, template: Template
) -> None:
    done(os.environ.get("NEW_PYTHON", sys.executable), "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv/bin"
    install = (programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    done(*install, wheel, cwd=tmp_path, timeout=600)
    said = done(programs / "horsies", "new", "shop", "--template", template.value, cwd=tmp_path)
    project = tmp_path / "shop"
    done(*install, *told_to_install(said, wheel), cwd=tmp_path, timeout=600)
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
