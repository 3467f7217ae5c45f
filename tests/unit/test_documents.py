"""The written word keeps step: the generated reference is current, links lead somewhere, names and defaults hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from horsies import (
    AppConfig,
    RecoveryConfig,
    WorkerRecoveryConfig,
    WorkerResilienceConfig,
    WorkflowHandle,
    WorkflowStatus,
    WorkflowTaskStatus,
)
from horsies.cli.main import app as command_line
from horsies.core.models.app import DEFAULT_LEASE_MS
from horsies.core.models.base import ConfigModel
from horsies.core.worker.config import WorkerConfig
from tests.architecture.test_layers import LAYERS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_the_pages_written_from_code_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_pages_written_from_code_have_every_settings_object_and_every_command() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    models = [model.__name__ for model in _all_below(ConfigModel) if _is_for_users(model)]
    assert len(models) >= 8
    assert [name for name in models if f"\n## {name}\n" not in page] == []
    group: Any = typer.main.get_command(command_line)
    reference = (ROOT / "docs/cli.md").read_text()
    assert [name for name in _commands(group) if f"\n## `horsies {name}`\n" not in reference] == []


def _commands(group: Any, before: str = "") -> list[str]:
    return [
        full
        for name, command in group.commands.items()
        for full in (_commands(command, f"{before}{name} ") if hasattr(command, "commands") else [before + name])
    ]


def _is_for_users(model: type[ConfigModel]) -> bool:
    """Not what others are built on, and not the forms that a generic one takes."""
    is_generic_form = bool(model.__pydantic_generic_metadata__["args"])
    return (
        model.__module__.startswith("horsies.")
        and bool(model.model_fields)
        and not (is_generic_form or model.__name__.startswith("_"))
    )


def _all_below(model: type[ConfigModel]) -> list[type[ConfigModel]]:
    return [below for child in model.__subclasses__() for below in (child, *_all_below(child))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)  # x[int](y) is no link
    prose = re.sub(r"`[^`\n]+`", "code", prose)  # nor is one in the middle of a line
    broken = [target for target in LINK.findall(prose) if not _exists(page, target)]
    assert broken == []


def _exists(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path) if path else page
    return file.exists() and (not anchor or anchor in _anchors(file))


def _anchors(file: Path) -> set[str]:
    """Those of the headings, and those that are written out, as rules have them."""
    text = file.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    of_headings = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return of_headings | set(re.findall(r'<a id="([^"]+)"></a>', text))


# A file of the package, the tests or the examples, and the names that a page says are in it: `core/app.py`, `Horsies`.
FILE = re.compile(r"`([\w/-]+\.(?:py|sql))`((?:,\s+`[A-Za-z_][\w.]*`(?!\())*)")
NAME = re.compile(r"`([A-Za-z_][\w.]*)`")
OF_THE_READER = {
    "asgi.py",
    "path/file.py",
    "jobs/mail.py",
    "shop.py",
    "horsies/core/schema/migrations/NNNN_what_it_does.sql",
}
CODE = [ROOT / folder for folder in ("horsies", "tests", "examples", "docs", "benchmarks")]


def test_the_architecture_page_names_its_files_and_what_is_in_them() -> None:
    """So that the next test has something to check."""
    files = FILE.findall((ROOT / "docs/architecture.md").read_text())
    assert len(files) >= 60
    assert sum(len(NAME.findall(names)) for _, names in files) >= 35


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_a_page_names_exist_and_have_what_it_says(page: Path) -> None:
    wrong = []
    for file, names in FILE.findall(page.read_text()):
        if file in OF_THE_READER:
            continue
        found = _files(file)
        known = {name for path in found for name in _defined_in(path)}
        wrong += [] if found else [file]
        wrong += [
            f"{file}, {name}" for name in NAME.findall(names) if found and _is_no_file(name) and name not in known
        ]
    assert wrong == []


def _is_no_file(name: str) -> bool:
    return not name.endswith((".py", ".sql"))


def _files(name: str) -> list[Path]:
    """Where it may be: `core/app.py` is in the package; a name without a folder is that of a file anywhere."""
    if "/" not in name:
        return sorted(
            {path for folder in CODE for path in folder.rglob(name)}
            | {path for path in [ROOT / name] if path.is_file()}
        )
    return [path for start in (ROOT, ROOT / "horsies", ROOT / "horsies/core") if (path := start / name).is_file()]


def _defined_in(path: Path) -> set[str]:
    """Classes, functions and constants, and `Class.member`."""
    if path.suffix != ".py":
        return set()
    names = set()
    for node in ast.parse(path.read_text()).body:
        own = _names_of(node)
        names |= own
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for member in node.body for name in _names_of(member)}
    return names


def _names_of(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.target.id} if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else set()


def test_the_architecture_page_has_the_layers_of_the_code() -> None:
    section = (ROOT / "docs/architecture.md").read_text().partition("## The layers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", section, re.MULTILINE)
    assert [(name, re.findall(r"`([^`]+)`", where)) for name, where in rows] == [
        (name, [_place_of(prefix) for prefix in prefixes]) for name, prefixes in LAYERS
    ]


def _place_of(prefix: str) -> str:
    path = prefix.replace(".", "/")
    return f"{path}/" if (ROOT / "horsies" / path).is_dir() else f"{path}.py"


RECOVERY = (ROOT / "docs/recovery.md").read_text()
UNITS = {"": None, "s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1)}
SETTINGS = {
    name
    for model in (AppConfig, RecoveryConfig, WorkerRecoveryConfig, WorkerResilienceConfig, WorkerConfig)
    for name in model.model_fields
}


def default_of(name: str) -> object:
    """As the page would write it: a number, or a time."""
    for model in (RecoveryConfig(), WorkerRecoveryConfig(), WorkerResilienceConfig()):
        if name in type(model).model_fields:
            value = getattr(model, name)
            unit = {"ms": timedelta(milliseconds=1), "hours": timedelta(hours=1)}.get(name.rpartition("_")[2])
            return value if unit is None or value is None else value * unit
    assert name == "claim_lease_ms", name
    return timedelta(milliseconds=DEFAULT_LEASE_MS)


def test_the_defaults_that_the_recovery_page_names_are_those_of_the_models() -> None:
    named = re.findall(r"`(\w+)`(?: of the app)?(?: \(|, )(\d+)(?: (s|min|h)\b)?", RECOVERY)
    assert len({name for name, _, _ in named}) >= 7
    wrong = {name: number + unit for name, number, unit in named if _time(number, unit) != default_of(name)}
    assert wrong == {}


def _time(number: str, unit: str) -> object:
    length = UNITS[unit]
    return int(number) if length is None else int(number) * length


def test_the_recovery_page_names_only_settings_that_exist() -> None:
    named = set(
        re.findall(r"`(?:\w+\.)?(\w+_(?:ms|hours|interval|threshold|delay|flags|multiplier|per_task))\b", RECOVERY)
    )
    assert len(named) >= 15
    assert named <= SETTINGS | {"timeout_ms", "tcp_keepalives_interval"}  # of a task, of the server


def test_the_commands_of_the_recovery_page_exist_with_their_options() -> None:
    group: Any = typer.main.get_command(command_line)
    lines = [line.partition("#")[0].split() for line in re.findall(r"^horsies (.*)$", RECOVERY, re.MULTILINE)]
    inline = [words.split() for words in re.findall(r"`horsies ([a-z-]+ [^`]*)`", RECOVERY)]
    assert {words[0] for words in lines} == {"workers", "stale-tasks", "sweep-stale-workers", "force-unlock"}
    for command, *words in [*lines, *inline]:
        known = {name for param in group.commands[command].params for name in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, command


WORKFLOWS = (ROOT / "docs/workflows.md").read_text()


def test_the_commands_of_the_workflows_page_exist() -> None:
    known = _commands(typer.main.get_command(command_line))
    lines = re.findall(r"^horsies ([a-z -]+) shop\.tasks:app", WORKFLOWS, re.MULTILINE)
    assert len(lines) >= 4
    assert set(lines) <= set(known)


def test_the_workflows_page_has_every_state_and_every_method() -> None:
    states = WORKFLOWS.partition("## States")[2].partition("## When")[0]
    for status in (*WorkflowStatus, *WorkflowTaskStatus):
        assert status.value in states or status is WorkflowStatus.PENDING, status  # nobody sees a workflow in it
    handles = WORKFLOWS.partition("## Handles")[2].partition("## Pause")[0]
    methods = [name for name in vars(WorkflowHandle) if not name.startswith("_") and not name.endswith("_async")]
    assert len(methods) >= 10
    assert [name for name in methods if f"`{name}" not in handles] == []


def test_r22_the_documentation_asks_for_idempotent_tasks() -> None:
    for page in ("docs/recovery.md", "docs/tasks.md", "README.md"):
        text = (ROOT / page).read_text()
        assert re.search(r"idempotent|may run more than once", text), page
    assert "must be idempotent" in " ".join(RECOVERY.split())


def test_r98_the_guidance_is_there_and_valid() -> None:
    tuning = RECOVERY.partition("## Tuning")[2].partition("## By hand")[0]
    assert "CPU-heavy" in tuning and "300 000 to 600 000" in tuning and "10 000 and 30 000" in tuning
    for place in ("### False positives", "### When nothing recovers"):
        assert place in tuning
    for cause in ("blocking code", "network", "contention"):
        assert cause in tuning.partition("### False positives")[2].partition("###")[0]
    for thing in ("auto_requeue_stale_claimed", "auto_fail_stale_running", "log", "database"):
        assert thing in tuning.partition("### When nothing recovers")[2]


CAUSES = "crashes, aborts, machine that is lost, network partition, database that cannot be reached, orchestrator"


@pytest.mark.parametrize("cause", CAUSES.split(", "))
def test_r99_the_causes_of_stale_tasks_are_named(cause: str) -> None:
    assert cause in " ".join(RECOVERY.partition("Causes you will meet")[2].partition("\n\n")[0].split())
