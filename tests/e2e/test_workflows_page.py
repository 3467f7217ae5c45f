"""The code in docs/workflows.md does what the page says: its definitions are one module that a real worker serves, its
other blocks run against it, and what they print is what the comments beside them say."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.e2e.cli_support import Started

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs/workflows.md").read_text()
MODULE = "workflows_page"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def prints(block: str) -> bool:
    """Blocks that only define are the module; those that print are what its reader does with it."""
    return "print(" in block


def said_beside(block: str) -> list[str]:
    return re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)


@pytest.fixture
def page(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The page as a module, imported here, and served by a worker."""
    source = tmp_path / f"{MODULE}.py"
    source.write_text("\n\n".join(block for block in BLOCKS if not prints(block)))
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    options = ["worker", str(source), "--processes", "2"]
    with Started(*options, cwd=tmp_path, DATABASE_URL=database_url) as worker:
        module = imported(source)
        try:
            worker.until_it_says("worker ready")
            yield module
        finally:
            module.app.get_broker().close()
            del sys.modules[MODULE]
        assert worker.stop() == 0, worker.said


def imported(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow("runs the code of a documentation page")
def test_the_page_does_what_it_says(page: ModuleType) -> None:
    used = [block for block in BLOCKS if prints(block)]
    assert len(used) >= 10
    for number, block in enumerate(used):
        expected = said_beside(block)
        assert len(expected) == block.count("print("), f"a print without its output in:\n{block}"
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block, f"<block {number} of workflows.md>", "exec"), vars(page))
        assert said.getvalue().splitlines() == expected, block
