"""The files for platforms: they can be read, their command lines are understood, and they leave time for tasks."""

from __future__ import annotations

import re
import shlex
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.command_lines import parsed
from tests.each import each

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy/paas"
FLY: dict[str, Any] = tomllib.loads((DIRECTORY / "fly.toml").read_text())
RENDER: dict[str, Any] = yaml.safe_load((DIRECTORY / "render.yaml").read_text())
PROCFILE = dict(line.split(": ", 1) for line in (DIRECTORY / "Procfile").read_text().splitlines())
HEROKU_S = 30  # from SIGTERM to SIGKILL
MOST_S = 300  # on the others
SPARE = timedelta(seconds=10)  # for writing results


def commands() -> list[str]:
    keys = ("preDeployCommand", "startCommand")
    render = [service[key] for service in RENDER["services"] for key in keys if key in service]
    return [*PROCFILE.values(), FLY["deploy"]["release_command"], *FLY["processes"].values(), *render]


@each("line", [part for line in commands() for part in line.split(" && ")])
def test_the_commands_are_understood(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "horsies"
    name, values = parsed(words)
    assert name in ("worker", "scheduler", "init-db", "check") and values["module"] == "shop:app"


def test_each_platform_makes_the_tables_before_it_starts_workers() -> None:
    for line in (PROCFILE["release"], FLY["deploy"]["release_command"], RENDER["services"][0]["preDeployCommand"]):
        assert line.startswith("horsies init-db ")


@each(
    ("line", "seconds"),
    [
        (PROCFILE["worker"], HEROKU_S),
        (FLY["processes"]["worker"], int(FLY["kill_timeout"].removesuffix("s"))),
        (RENDER["services"][0]["startCommand"], RENDER["services"][0]["maxShutdownDelaySeconds"]),
    ],
    ids=["Procfile", "fly.toml", "render.yaml"],
)
def test_a_worker_has_time_to_end_before_it_is_killed(line: str, seconds: int) -> None:
    _, values = parsed(shlex.split(line)[1:])
    assert values["shutdown_grace"] + SPARE <= timedelta(seconds=seconds) <= timedelta(seconds=MOST_S)


def test_fly_asks_the_port_that_the_processes_serve() -> None:
    assert FLY["kill_signal"] == "SIGTERM"
    for name, line in FLY["processes"].items():
        _, values = parsed(shlex.split(line)[1:])
        assert (values["metrics_port"], values["metrics_host"]) == (FLY["checks"]["alive"]["port"], "0.0.0.0")
        assert name in FLY["checks"]["alive"]["processes"]
    assert FLY["checks"]["alive"]["path"] == "/healthz", "a worker whose database is away must not be restarted"


def test_render_gives_every_process_the_database() -> None:
    names = {database["name"] for database in RENDER["databases"]}
    for service in RENDER["services"]:
        assert service["type"] == "worker"
        [variable] = service["envVars"]
        assert variable["key"] == "DATABASE_URL" and variable["fromDatabase"]["name"] in names


def test_the_page_shows_the_procfile_as_it_is() -> None:
    blocks = re.findall(r"^```text\n(.*?)^```$", (ROOT / "docs/paas.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks == [(DIRECTORY / "Procfile").read_text()]
