"""Every recipe of docs/cookbook.md works alone: its file is written, a real worker serves it, its blocks run in their
order, its commands are typed in a shell, and what it prints is what the comments beside it say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine

from tests.e2e.cli_support import Started, environment
from tests.e2e.page_support import ROOT, defines, imported, run
from tests.e2e.test_getting_started import free_port

pytestmark = pytest.mark.e2e

PAGE = (ROOT / "docs/cookbook.md").read_text()
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PORT = "9464"
# What a page may say and a test need not wait for.
SMALLER = {"100_000": "5_000", "# 100000": "# 5000"}


@dataclass(frozen=True)
class Recipe:
    title: str
    text: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def module(self) -> str:
        """The file of the recipe. It begins with the lines of the page, without their app if it has its own."""
        own = "\n\n".join(code for kind, code in self.blocks if kind == "python" and defines(code))
        beginning = BEGINNING.partition("\napp = ")[0] if "\napp = Horsies(" in own else BEGINNING
        return f"{beginning}\n\n{own}"

    @property
    def steps(self) -> list[tuple[str, str]]:
        """What the reader does with the file. A worker is started first, unless the recipe says when and how."""
        used = [(kind, code) for kind, code in self.blocks if kind == "sh" or not defines(code)]
        says_how = any(code.startswith("horsies worker") for kind, code in used if kind == "sh")
        return used if says_how else [("sh", "horsies worker shop.py"), *used]


def in_short(code: str) -> str:
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    return code


def recipes() -> list[Recipe]:
    parts = re.split(r"^## \d+\. (.*)$", PAGE, flags=re.MULTILINE)[1:]
    found = []
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        blocks = tuple((kind, in_short(code)) for kind, code in BLOCK.findall(text))
        found.append(Recipe(title, text, blocks))
    return found


BEGINNING = BLOCK.findall(PAGE)[0][1]
RECIPES = recipes()


class Kitchen:
    """A directory with the file of one recipe, its worker, and the names of the reader's program."""

    def __init__(self, directory: Path, database_url: str, services: contextlib.ExitStack) -> None:
        self.directory, self.database_url, self.services = directory, database_url, services
        self.port = str(free_port())
        self.worker: Started | None = None
        self.printed: dict[str, str] = {}
        commands = directory / "bin"
        commands.mkdir()
        (commands / "horsies").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m horsies "$@"\n')
        (commands / "horsies").chmod(0o755)

    async def do(self, kind: str, code: str, names: dict[str, Any]) -> None:
        code = code.replace(PORT, self.port)
        if kind == "python":
            await run("cookbook", names, [code])
            return
        for line in code.splitlines():
            self.type(line)

    def type(self, line: str) -> None:
        match shlex.split(line):
            case ["horsies", "worker", *options]:
                command = Started("worker", *options, cwd=self.directory, DATABASE_URL=self.database_url)
                self.worker = self.services.enter_context(command)
                self.worker.until_it_says("worker ready")
            case ["systemctl", "stop", _]:
                self.stop()
            case _:
                self._in_a_shell(line)

    def stop(self) -> None:
        assert self.worker is not None
        assert self.worker.stop() == 0, self.worker.said

    def _in_a_shell(self, line: str) -> None:
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        env = environment(DATABASE_URL=self.database_url, PATH=path)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.directory, env=env, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        self.printed[line] = done.stdout


@pytest.mark.slow("runs the code of a documentation page")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
async def test_the_recipe_works(
    recipe: Recipe, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shop.py"
    file.write_text(recipe.module)
    with contextlib.ExitStack() as services:
        kitchen = Kitchen(tmp_path, database_url, services)
        with imported(file) as module:
            assert module.app.check() == []
            names = dict(vars(module))
            services.callback(put_away, names)
            for kind, code in recipe.steps:
                await kitchen.do(kind, code, names)
            if not recipe.title.startswith("A long task"):
                kitchen.stop()
            if (check := ALSO.get(recipe.title)) is not None:
                check(kitchen, names)


def put_away(names: dict[str, Any]) -> None:
    """The connections that the reader's program would take with it."""
    for value in names.values():
        if isinstance(value, Engine):
            value.dispose()


def whose_lines(kitchen: Kitchen, names: dict[str, Any]) -> None:
    assert kitchen.worker is not None
    lines = [json.loads(line) for line in kitchen.worker.said.splitlines() if line.startswith("{")]
    mine = [line for line in lines if line.get("task_id") == names["handle"].task_id]
    assert {"attempt 1", "only three left of chair"} <= {line["message"] for line in mine}
    assert {(line["task"], line["attempt"]) for line in mine} == {("stock.check", 1)}


def probes_of_the_manifest(kitchen: Kitchen, names: dict[str, Any]) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/worker.yaml").read_text())
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    for name, probe in yaml.safe_load(text).items():
        probe["httpGet"]["port"] = "metrics"
        assert container[name] == probe


def next_runs_are_listed(kitchen: Kitchen, names: dict[str, Any]) -> None:
    [listed] = kitchen.printed.values()
    assert "morning-report" in listed and "06:30" in listed and "Europe/Berlin" in listed


ALSO: dict[str, Callable[[Kitchen, dict[str, Any]], None]] = {
    "Log lines that say whose they are": whose_lines,
    "Health and metrics for Kubernetes": probes_of_the_manifest,
    "Workdays at 6:30 in Berlin": next_runs_are_listed,
}
