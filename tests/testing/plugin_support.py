"""A user's project with horsies installed: pytest finds the plugin by its entry point, as `pyproject.toml` has it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SHOP = """
import os
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/none"))

@app.task
def double(value: int) -> int:
    return 2 * value

@app.task
def where() -> int:
    return os.getpid()
"""


def entry_points() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(project["entry-points"]["pytest11"])


def install(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installer would: the entry points in the metadata of the package, and the package on the path."""
    facts = pytester.mkdir("site") / "horsies_pg-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: horsies-pg\nVersion: 0.1.0\n")
    lines = [f"{name} = {module}" for name, module in entry_points().items()]
    (facts / "RECORD").write_text("horsies/__init__.py,,\npytest_horsies.py,,\n")
    (facts / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(facts.parent), str(ROOT)]))
    for name in ("PYTEST_ADDOPTS", "HORSIES_TEST_SERVER", "HORSIES_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def project(pytester: pytest.Pytester, **files: str) -> None:
    pytester.makeini("[pytest]\nhorsies_app = shop:app\nasyncio_mode = auto\n")
    pytester.makepyfile(shop=SHOP, **files)
