"""Pages of the documentation as programs: the blocks that define an app are one module, which a real worker serves; the
others run after it, in order and in one namespace, and what they print is what the comments beside them say."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.e2e.cli_support import Started

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with its title."""
    return [(title, code) for title, code in _BLOCK.findall((ROOT / f"docs/{page}.md").read_text())]


def ours(page: str) -> list[str]:
    """Those without a title: one with a title is a file, or shows what another product does."""
    return [code for title, code in blocks(page) if not title]


def defines(code: str) -> bool:
    """Is it part of the app's module?"""
    return re.search(r"^@app\.|^app = Horsies\(", code, re.MULTILINE) is not None


def said_beside(code: str) -> list[str]:
    return re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)


@contextlib.contextmanager
def served(name: str, source: str, url: str, directory: Path) -> Iterator[ModuleType]:
    """The source as a module, imported here, and served by a worker. DATABASE_URL must name the same database."""
    file = directory / f"{name}.py"
    file.write_text(source)
    with Started("worker", str(file), cwd=directory, DATABASE_URL=url) as worker:
        with imported(file) as module:
            worker.until_it_says("worker ready")
            yield module
        assert worker.stop() == 0, worker.said


@contextlib.contextmanager
def imported(file: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[file.stem]
        if hasattr(module, "app"):
            module.app.get_broker().close()


async def run(page: str, names: dict[str, Any], codes: list[str]) -> None:
    """Run blocks as a notebook would, `await` allowed. What comments say must be printed, in their order."""
    for number, code in enumerate(codes):
        said = io.StringIO()
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        with contextlib.redirect_stdout(said):
            outcome = eval(compile(code, f"<block {number} of {page}.md>", "exec", flags=flags), names)
            if inspect.isawaitable(outcome):
                await outcome
        lines = iter(said.getvalue().splitlines())
        missing = [line for line in said_beside(code) if line not in lines]
        assert missing == [], f"{page}.md does not print what it says:\n{code}\nbut\n{said.getvalue()}"
