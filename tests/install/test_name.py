"""The distribution `horsies-pg`, whose module is `horsies`: what is refused beside it, what messages and files call it,
and what is said if psycopg finds no libpq."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from horsies import AppConfig, ErrorCode, Horsies, HorsiesError, Worker
from horsies.cli import main
from horsies.core import distribution
from horsies.dev import new
from tests.architecture.source import ROOT, lines_with, texts
from tests.install.pins import project

HERE = ROOT.as_uri()
APP = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none"))
REPAIR = "pip uninstall -y horsies horsies-pg && "


def put(place: Path, name: str, **origin: Any) -> Path:
    """What an installer leaves of a distribution."""
    info = place / f"{re.sub('-', '_', name)}-0.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.9\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return info


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment of its own, from which this source tree runs."""
    place = tmp_path / "site-packages"
    place.mkdir()
    kept = [entry for entry in sys.path if not entry.endswith("site-packages")]
    monkeypatch.setattr(sys, "path", [*kept, str(place)])
    return place


def refusal() -> HorsiesError | None:
    try:
        distribution.refuse_other()
    except HorsiesError as problem:
        return problem
    return None


def test_e01_our_package_alone_or_a_source_tree_is_fine(site: Path) -> None:
    assert refusal() is None and distribution.version() == "unknown"
    put(site, "horsies-pg", url=HERE)
    assert refusal() is None and distribution.version() == "0.9"
    put(site, "horsies-cookbook")  # another name that begins like ours
    (site / "horsies-cookbook-1.egg-info").touch()
    assert refusal() is None


@pytest.mark.parametrize(
    ("origin", "install"),
    [
        ({"url": HERE, "dir_info": {"editable": True}}, f"pip install -e {ROOT}"),
        ({"url": HERE, "dir_info": {}}, f'pip install "horsies-pg @ {HERE}"'),
        ({"url": "file:///gone/horsies_pg-0.9-py3-none-any.whl", "archive_info": {}}, 'pip install "horsies-pg"'),
        ({}, 'pip install "horsies-pg"'),
    ],
)
def test_e01_the_other_package_is_refused_with_the_command_that_repairs_it(
    site: Path, origin: dict[str, Any], install: str
) -> None:
    put(site, "horsies-pg", **origin)
    other = put(site, "horsies")
    problem = refusal()
    assert problem is not None and problem.code is ErrorCode.OTHER_PACKAGE_INSTALLED
    assert "'horsies-pg'" in problem.message and "'horsies'" in problem.message
    assert str(other) in problem.notes[0] and "another project" in problem.notes[0]
    assert problem.help_text == REPAIR + install


@pytest.mark.parametrize("beside", [False, True])
def test_e01_an_installation_under_the_former_name_is_told_from_the_other_package(site: Path, beside: bool) -> None:
    put(site, "horsies", url=HERE, dir_info={"editable": True})
    if beside:
        put(site, "horsies-pg", url=HERE, dir_info={"editable": True})
    problem = refusal()
    assert problem is not None and "former name" in problem.message
    assert problem.notes[0].startswith(f"an earlier installation of {ROOT}")
    assert problem.help_text == f"{REPAIR}pip install -e {ROOT}"


def test_e01_the_other_package_beside_a_source_tree_is_refused(site: Path) -> None:
    put(site, "horsies")
    problem = refusal()
    assert problem is not None and problem.help_text == f'{REPAIR}pip install "horsies-pg @ {HERE}"'


async def test_e01_commands_and_workers_stop_and_imports_do_not(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(site, "horsies")
    assert main.run(["--version"]) == 1
    assert capsys.readouterr().err.startswith("error[HRS-221]: the packages 'horsies-pg' and 'horsies' cannot be used")
    with pytest.raises(HorsiesError, match="HRS-221"):
        await Worker(APP).run()


def test_e01_the_check_of_the_command_is_that_of_a_fresh_process(tmp_path: Path) -> None:
    """Installed as a wheel is: the code and both metadata in one directory."""
    place = tmp_path / "site-packages"
    put(place, "horsies-pg")
    put(place, "horsies")
    (place / "horsies").symlink_to(ROOT / "horsies")
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "horsies", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "error[HRS-221]" in done.stderr and "Traceback" not in done.stderr
    shutil.rmtree(place / "horsies-0.9.dist-info")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_e01_the_distribution_and_its_extras_have_one_name() -> None:
    assert project()["name"] == distribution.NAME and metadata.version("horsies-pg") == project()["version"]
    wanted = [Requirement(one) for extra in project()["optional-dependencies"].values() for one in extra]
    own = [one for one in wanted if one.name.startswith("horsies")]
    assert own and {one.name for one in own} == {"horsies-pg"}
    assert distribution.pip_install("web") == 'pip install "horsies-pg[web]"'
    extras = {extra for one in own for extra in one.extras}
    named = re.compile(r"horsies-pg\[([a-z,]+)\]")
    extras |= {extra for _, _, found in lines_with(named) for extra in found[1].split(",")}
    assert {"binary", "dev", "web"} < extras <= {*project()["optional-dependencies"], "bench"}


def test_e01_no_install_line_names_the_other_package() -> None:
    """Neither as `horsies[web]`, nor as what pip, uv or poetry shall install, nor as a requirement."""
    extras = "|".join(project()["optional-dependencies"])
    wrong = re.compile(
        rf"\bhorsies\[(?:{extras})[\],]"
        r"|\b(?:pip3? install|uv add|uv pip install|poetry add)(?: -\S+)* [\"']?horsies(?![-_\w/])"
        r"|(?<![\w./-])horsies *[=<>~]=\s*\d"
    )
    allowed = {"tests/install/test_name.py", "tests/unit/test_bench_peers.py", "docs/decisions/0030-name.md"}
    assert [f"{name}:{line} {match[0]}" for name, line, match in lines_with(wrong) if name not in allowed] == []


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_e01_the_first_page_says_what_the_relation_is(page: str) -> None:
    text = " ".join(texts()[page].split())
    assert "The distribution is named `horsies-pg`, because the name `horsies`" in text
    assert "This is an independent implementation of what the public documentation of horsies describes" in text
    assert "not affiliated with that package" in text and "compatible with its documented API and schema" in text


COMMIT = "0123456789abcdef"


@pytest.mark.parametrize(
    ("origin", "asked"),
    [
        ({"url": HERE, "dir_info": {"editable": True}}, f" @ {HERE}"),
        ({"url": "file:///gone.whl", "archive_info": {}}, ""),
        ({"url": "https://example.com/a.whl", "archive_info": {}}, " @ https://example.com/a.whl"),
        (
            {"url": "https://example.com/a", "vcs_info": {"vcs": "git", "commit_id": COMMIT}, "subdirectory": "b"},
            f" @ git+https://example.com/a@{COMMIT}#subdirectory=b",
        ),
        ({}, ""),
    ],
)
def test_e01_a_new_project_asks_for_the_place_that_this_installation_came_from(
    tmp_path: Path, site: Path, origin: dict[str, Any], asked: str
) -> None:
    put(site, "horsies-pg", **origin)
    for template in new.Template:
        new.create(tmp_path / template / "shop", template)
        lines = (tmp_path / template / "shop" / "pyproject.toml").read_text()
        found = re.findall(r'"(horsies[^"]*)"', lines)
        assert [re.sub(r"\[.*?\]", "", one) for one in found] == [f"horsies-pg{asked}"] * 2
        assert "binary" in Requirement(found[0]).extras, "it also runs where the system has no libpq"


@pytest.mark.parametrize("name", ["a place", "ä"])
def test_e01_a_path_with_blanks_is_found(tmp_path: Path, site: Path, name: str) -> None:
    wheel = tmp_path / name / "horsies_pg-0.9-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    put(site, "horsies-pg", url=wheel.as_uri(), archive_info={})
    assert distribution.origin() == wheel.as_uri()


def without_libpq(*words: str) -> subprocess.CompletedProcess[str]:
    """psycopg is told to use an implementation that is not installed."""
    environment = {**os.environ, "PSYCOPG_IMPL": "c"}
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", ["worker shop:app", "tasks", "web", "tui"])
def test_e01_commands_say_what_to_install_if_there_is_no_libpq(words: str) -> None:
    done = without_libpq("-m", "horsies", *words.split())
    assert done.returncode == 1 and done.stderr.startswith("error[HRS-222]: psycopg cannot load libpq")
    assert 'pip install "horsies-pg[binary]"' in done.stderr and "libpq5" in done.stderr
    assert "Traceback" not in done.stderr
    assert without_libpq("-m", "horsies", "--help").returncode == 0


@pytest.mark.parametrize(
    "statement",
    [
        "from horsies import Horsies",
        "from horsies import TaskHandle",
        "from horsies import Worker",
        "import horsies.monitoring",
        "import horsies.web",
        "import horsies.testing",
        "import horsies.core.brokers.postgres",
        "import horsies.core.models.broker",
        "import horsies.core.task_decorator",
    ],
)
def test_e01_an_import_without_libpq_is_an_import_error_that_says_what_to_install(statement: str) -> None:
    program = f"try:\n    {statement}\nexcept ImportError as problem:\n    print(type(problem).__name__, problem)"
    done = without_libpq("-c", program)
    assert done.stdout.startswith("LibpqMissing error[HRS-222]"), done.stderr
    assert 'pip install "horsies-pg[binary]"' in done.stdout and "PSYCOPG_IMPL" in done.stdout


def test_e01_without_any_implementation_the_attempts_of_psycopg_are_shown() -> None:
    """As in an image without libpq: no wheel of psycopg with its own, and none of the system."""
    block = (
        "import ctypes.util, sys; sys.modules |= {'psycopg_c': None, 'psycopg_binary': None}; "
        "ctypes.util.find_library = lambda name: None; from horsies import Horsies"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PSYCOPG_IMPL"}
    done = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, check=False)
    assert "error[HRS-222]" in done.stderr and "no pq wrapper available" in done.stderr
    assert "unset PSYCOPG_IMPL" not in done.stderr


def test_e01_another_import_error_of_a_name_is_shown_as_it_is() -> None:
    program = "import sys; sys.modules['pydantic'] = None\nfrom horsies import Horsies"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: import of pydantic halted" in done.stderr.splitlines()[-1]
    assert "HRS-222" not in done.stderr


def test_e01_the_extras_that_need_a_server_bring_libpq() -> None:
    extras = project()["optional-dependencies"]
    assert extras["binary"] == ["psycopg[binary]>=3.2"] and "psycopg>=3.2" in project()["dependencies"]
    assert "horsies-pg[binary]" in extras["embedded"]
    assert any("embedded" in Requirement(one).extras for one in extras["dev"])
