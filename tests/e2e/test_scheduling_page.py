"""The code in docs/scheduling.md does what the page says: its blocks are one program, run against a real database, and
what they print is what the comments beside them say."""

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

pytestmark = [pytest.mark.e2e, pytest.mark.slow("runs the code of a documentation page")]

PAGE = (Path(__file__).parents[2] / "docs/scheduling.md").read_text()
MODULE = "scheduling_page"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def said_beside(block: str) -> list[str]:
    return re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE)


@pytest.fixture
def page(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An empty module for the program of the page."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_loader(MODULE, loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        yield module
    finally:
        del sys.modules[MODULE]
        if hasattr(module, "app"):
            module.app.get_broker().close()


def test_the_page_does_what_it_says(page: ModuleType) -> None:
    assert len(BLOCKS) >= 10
    for number, block in enumerate(BLOCKS):
        expected = said_beside(block)
        assert len(expected) == block.count("print("), f"a print without its output in:\n{block}"
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block, f"<block {number} of scheduling.md>", "exec"), vars(page))
        assert said.getvalue().splitlines() == expected, block
    page.app.check()
