"""Reads the package's own source (its modules, what they import and where, the SQL files) and every text file of the
repository."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from horsies.core.sql import load

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "horsies"
SQL = PACKAGE / "core" / "sql"

PARAMETER = re.compile(r"%\((\w+)\)s")
# psycopg tells the server that a timedelta is an interval; what else it sends is left to the server to infer.
INTERVALS = {"lease", "max_age", "until"}
VENDORED = "vendor"  # a directory of files that others wrote, kept as they are
IGNORED = {
    ".git",
    ".venv",
    ".venv-peers",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "__pycache__",
    ".horsies",
}


@dataclass(frozen=True)
class Import:
    """One imported module; `inside` a function, or only `for_types`."""

    module: str
    names: tuple[str, ...]
    line: int
    inside: bool
    for_types: bool


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path
    text: str
    imports: tuple[Import, ...]

    @property
    def lines(self) -> int:
        return self.text.count("\n")


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    return {module.name: module for module in map(_read, sorted(PACKAGE.rglob("*.py")))}


@cache
def statements() -> dict[str, str]:
    """Every SQL file below ``core/sql`` by the name that ``load`` takes."""
    return {
        path.relative_to(SQL).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SQL.rglob("*.sql"))
    }


@cache
def forms(name: str) -> list[str]:
    """Every text that `load` makes of a file, with each choice of its parts. A claim that starts tasks has no other
    parts (W-21b)."""
    parts = sorted(set(re.findall(r"^\s*--\{ !?(\w+)$", statements()[name], re.MULTILINE)))
    choices = [chosen for count in range(len(parts) + 1) for chosen in combinations(parts, count)]
    return [load(name, *chosen) for chosen in choices if "starting" not in chosen or len(chosen) == 1]


@cache
def texts() -> dict[str, str]:
    """Every text file of ours that belongs to the repository, also what is not committed yet."""
    found = {}
    for path in _files():
        if VENDORED in path.parent.parts:
            continue
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
    return found


def _files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        return [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and not IGNORED & set(path.parts)]


def lines_with(pattern: re.Pattern[str]) -> list[tuple[str, int, re.Match[str]]]:
    return [
        (name, number, match)
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def is_copy(statement: str) -> bool:
    """Whether it reads what the client sends; such a statement cannot be prepared."""
    return statement.lstrip().startswith("COPY ")


def prepared(statement: str) -> tuple[str, list[str]]:
    """``PREPARE checked AS`` the statement, and the names of its parameters in order."""
    names: dict[str, str] = {}
    text = PARAMETER.sub(lambda found: names.setdefault(found[1], f"${len(names) + 1}"), statement)
    assert "%(" not in text, "a placeholder is written %(name)s"
    types = ", ".join("interval" if name in INTERVALS else "unknown" for name in names)
    return f"PREPARE checked {f'({types})' if types else ''} AS {text.replace('%%', '%')}", list(names)


def imported_modules(module: Module) -> Iterator[tuple[Import, str]]:
    """Each import of our own modules, with the module meant: ``from package import x`` may mean ``package.x``."""
    for one in module.imports:
        if one.module.partition(".")[0] != "horsies":
            continue
        deeper = [f"{one.module}.{name}" for name in one.names if f"{one.module}.{name}" in modules()]
        for target in deeper or [one.module]:
            yield one, target


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return Module(name, path, text, tuple(_imports(ast.parse(text), package, inside=False, for_types=False)))


def _imports(node: ast.AST, package: str, *, inside: bool, for_types: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for target, names in _imported(node, package):
            yield Import(target, names, node.lineno, inside, for_types)
        return
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for_types = for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from _imports(below, package, inside=inside, for_types=for_types)


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, ()
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
        yield ".".join([*above, *([node.module] if node.module else [])]), tuple(alias.name for alias in node.names)
