"""Reads docs/checks.md: for each code a program that has the mistake, and what the check says about it. Run as a
program it writes anew what the check says.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from horsies.cli.main import run

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
EXAMPLE = re.compile(
    r"^### (?P<code>HRS-\d+)\n\n```python\n(?P<program>.*?)```\n\n"
    r"```text\n(?:\$ horsies (?P<command>[^\n]*)\n)?(?P<said>.*?)```\n",
    re.MULTILINE | re.DOTALL,
)
BEFORE = re.compile(r"^## Examples\n.*?```python\n(.*?)```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """`program` is the whole file."""

    code: str
    program: str
    command: tuple[str, ...]
    said: str


def examples(text: str) -> Iterator[Example]:
    before = BEFORE.search(text)
    assert before is not None, "the lines that every example begins with"
    for found in EXAMPLE.finditer(text):
        command = (found["command"] or "check shop").split()
        yield Example(found["code"], before[1] + found["program"], tuple(command), found["said"])


def answer(example: Example, folder: Path) -> tuple[int, str]:
    """The exit code, and what is said to a user who is in the directory of the file."""
    (folder / "shop.py").write_text(example.program)
    with forgetting_modules(), contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(list(example.command))
    return code, said.getvalue().replace(f"{os.path.realpath(folder)}/", "").replace(f"{folder}/", "")


@contextlib.contextmanager
def forgetting_modules() -> Iterator[None]:
    """What is imported meanwhile is forgotten afterwards: the next program has the same name."""
    modules, path = set(sys.modules), list(sys.path)
    importlib.invalidate_caches()
    gc.freeze()  # what is there already stays, so the collection at the end need not look at it
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if not name.startswith("horsies"):
                del sys.modules[name]
        gc.collect()  # definitions are known by their key as long as they live
        gc.unfreeze()


def write_anew() -> None:
    text = PAGE.read_text()
    for example in examples(text):
        with tempfile.TemporaryDirectory() as folder:
            _, said = answer(example, Path(folder))
        heading, _, rest = text.partition(f"\n### {example.code}\n")
        first, mark, third = rest.partition(f"{example.said}```\n")
        assert mark, example.code
        text = f"{heading}\n### {example.code}\n{first}{said}```\n{third}"
    PAGE.write_text(text)


if __name__ == "__main__":
    write_anew()
