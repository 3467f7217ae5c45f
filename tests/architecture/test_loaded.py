"""Each kind of process loads what it uses. A module that creeps in costs every start time, and every process memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = """
import os
from horsies import AppConfig, Horsies
app = Horsies(AppConfig.for_database_url(os.environ["DATABASE_URL"]))

@app.task("double")
def double(number: int) -> int:
    return 2 * number
"""
SHOW = "\nimport json, os, sys; os.write(1, b'\\n@@' + json.dumps(list(sys.modules)).encode())"
# What the package index brings, apart from parts of these that nobody imports by name.
TYPES = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"}
DATABASE = {"psycopg", "psycopg_binary"}
COMMAND = {"annotated_doc", "shellingham", "typer"}
WEB = {"anyio", "click", "h11", "jinja2", "markupsafe", "python_multipart", "starlette", "uvicorn", "watchfiles"}
ACCIDENTS = {"cython_runtime", "shop"}  # parts of these, and the app

SENDS = {
    "core.app", "core.app_workflows", "core.brokers", "core.codec", "core.db", "core.errors", "core.exception_mapper",
    "core.hooks", "core.libpq", "core.models", "core.node_factory", "core.producer", "core.schema", "core.sql",
    "core.store", "core.task_decorator", "core.tasks", "core.text", "core.tracing", "core.types",
}  # fmt: skip
RUNS = SENDS - {"core.brokers"} | {
    "core.checks", "core.child", "core.discovery", "core.locate", "core.logs", "core.recovery", "core.scheduler",
}  # fmt: skip
HELPS = {
    "cli.main",
    "cli.options",
    "cli.output",
    "core.distribution",
    "core.errors",
    "core.logs",
    "core.text",
    "core.tracing",
}
SERVES = RUNS | {
    "cli.database", "cli.options", "cli.output", "cli.reloading", "cli.worker", "core.distribution", "core.events",
    "core.loop", "core.worker", "core.workflows", "dev.program", "dev.reports",
}  # fmt: skip
SHOWS = SENDS | {
    "cli.database", "cli.options", "cli.output", "cli.web", "cli.web_server", "core.checks", "core.discovery",
    "core.distribution", "core.events", "core.locate", "core.logs", "core.monitoring", "core.recovery",
    "core.scheduler", "core.workflows", "dev.program", "web",
}  # fmt: skip
CHECKS = SENDS - {"core.brokers"} | HELPS | {
    "cli.check", "cli.database", "core.checks", "core.discovery", "core.locate", "core.scheduler",
}  # fmt: skip
DEVELOPS = {
    "cli.dev", "cli.options", "cli.output", "cli.reloading", "core.child", "core.discovery", "core.distribution",
    "core.errors", "core.logs", "core.text", "dev.database", "dev.generations", "dev.leash", "dev.lines", "dev.ports",
    "dev.programs", "dev.project", "dev.reports", "dev.tree", "dev.watch",
}  # fmt: skip
PREPARE = "from horsies.core.child.forkserver import prepare; prepare()"

# What the process does, what it may load of horsies, and what of other packages.
KINDS = {
    "import horsies": ("import horsies", set(), set()),
    "a producer": ("from shop import double; double.send(2).unwrap()", SENDS, TYPES | DATABASE),
    "horsies --help": ("from horsies.cli.main import run; run(['--help'])", HELPS, COMMAND),
    "horsies check": (
        "from horsies.cli.main import run; run(['check', 'shop:app'])",
        CHECKS,
        TYPES | DATABASE | COMMAND,
    ),
    "horsies worker": (f"import horsies.cli.worker; {PREPARE}", SERVES, TYPES | DATABASE | COMMAND | {"psutil"}),
    "a fork server, and so each child": (PREPARE, RUNS, TYPES | DATABASE | {"psutil"}),
    "horsies dev": (
        "import horsies.cli.dev; from horsies.dev import database, lines, tree, watch",
        DEVELOPS,
        COMMAND | {"anyio", "psutil", "watchfiles"},
    ),
    "horsies web": ("import horsies.cli.web_server", SHOWS, TYPES | DATABASE | COMMAND | WEB),
}


def room(name: str) -> str:
    """`core.models` of `horsies.core.models.tasks`; the dashboard is one room."""
    _, *parts = name.split(".")
    return "web" if parts[0] == "web" else ".".join(parts[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_loads_only_what_it_uses(kind: str, tmp_path: Path, database_url: str) -> None:
    code, rooms, packages = KINDS[kind]
    (tmp_path / "shop.py").write_text(APP)
    done = subprocess.run(
        [sys.executable, "-c", code + SHOW],
        cwd=tmp_path,
        env={**os.environ, "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout.split("@@")[1])
    ours = {room(name) for name in loaded if name.count(".") >= 2 and name.startswith("horsies.")}
    theirs = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"horsies"} - ACCIDENTS
    assert ours == rooms
    assert {name for name in theirs if not name.startswith(("_", "sitecustomize"))} == packages
