"""All files of a conversion together: which names are tasks and which are apps, wherever they are imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from horsies.migrate.findings import Finding, FindingKind
from horsies.migrate.names import Names
from horsies.migrate.source import Function, SourceFile

_HOPS = 10  # how often a name is followed from module to module


@dataclass(frozen=True, slots=True)
class OldTask:
    """A task as the old library knows it. `options` are the keywords of its decorator."""

    home: File
    function: Function
    decorator: ast.expr
    options: dict[str, ast.expr]
    is_bound: bool

    @property
    def place(self) -> str:
        return f"{self.home.source.module}.{self.function.name}"

    @property
    def name(self) -> str:
        given = literal(self.options.get("name"))
        return given if isinstance(given, str) else self.place

    @property
    def parameters(self) -> list[str]:
        """Those that a caller gives by position."""
        spec = self.function.args
        return [one.arg for one in (*spec.posonlyargs, *spec.args)][int(self.is_bound) :]


@dataclass
class File:
    """A source, its names, and what is found in it."""

    source: SourceFile
    names: Names = field(init=False)
    tasks: dict[str, OldTask] = field(default_factory=dict)
    apps: dict[str, ast.Call] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names(self.source)

    def by_hand(self, node: ast.AST | int, what: str, instead: str, topic: str) -> None:
        self._find(FindingKind.BY_HAND, node, what, instead, topic)

    def differs(self, node: ast.AST | int, what: str, instead: str, topic: str) -> None:
        self._find(FindingKind.DIFFERS, node, what, instead, topic)

    def _find(self, kind: FindingKind, node: ast.AST | int, what: str, instead: str, topic: str) -> None:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        found = Finding(self.source.path, line, kind, what, instead, topic)
        if found not in self.findings:
            self.findings.append(found)


@dataclass
class Project:
    """The files by the names of their modules. `app` is `module:name` of the app, if it is not among them."""

    files: dict[str, File]
    app: str | None = None

    @property
    def tasks(self) -> Iterable[OldTask]:
        return (task for file in self.files.values() for task in file.tasks.values())

    @property
    def has_app(self) -> bool:
        """Is an app among the files, so that its queues and schedules can be written?"""
        return any(file.apps for file in self.files.values())

    def the_app(self) -> tuple[str, str] | None:
        """Module and name of the only app."""
        if self.app is not None:
            module, _, name = self.app.partition(":")
            return module, name or "app"
        found = [(module, name) for module, file in self.files.items() for name in file.apps]
        return found[0] if len(found) == 1 else None

    def followed(self, dotted: str | None) -> str | None:
        """The place where a name is defined, if modules of the project only pass it on."""
        for _ in range(_HOPS):
            if dotted is None:
                return None
            onward = self._onward(dotted)
            if onward is None or onward == dotted:
                return dotted
            dotted = onward
        return dotted

    def _onward(self, dotted: str) -> str | None:
        parts = dotted.split(".")
        for length in range(len(parts) - 1, 0, -1):
            file = self.files.get(".".join(parts[:length]))
            if file is not None:
                origin = file.names.imported.get(parts[length])
                return None if origin is None else ".".join([origin, *parts[length + 1 :]])
        return None

    def task_at(self, file: File, node: ast.AST) -> OldTask | None:
        """The task that an expression names."""
        dotted = self.followed(file.names.dotted(node))
        module, _, name = (dotted or "").rpartition(".")
        home = self.files.get(module)
        return home.tasks.get(name) if home is not None else None

    def is_app(self, file: File, node: ast.AST) -> bool:
        dotted = self.followed(file.names.dotted(node))
        module, _, name = (dotted or "").rpartition(".")
        home = self.files.get(module)
        return f"{module}:{name}" == self.app or (home is not None and name in home.apps)


def literal(node: ast.AST | None) -> object:
    """The value of a literal, also of a tuple, list or dict of literals; None for anything else."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def is_none(node: ast.expr) -> bool:
    """Is it the word None?"""
    return isinstance(node, ast.Constant) and node.value is None


def is_written(node: ast.expr) -> bool:
    """Is its value written here, as a literal or a product of numbers?"""
    return is_none(node) or literal(node) is not None or number(node) is not None


def number(node: ast.AST | None) -> int | float | None:
    """A literal number, also as `60 * 5`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = number(node.left), number(node.right)
        return None if left is None or right is None else left * right
    value = literal(node)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def options_of(call: ast.expr) -> dict[str, ast.expr] | None:
    """The keywords of a decorator; None if it has `**`."""
    if not isinstance(call, ast.Call):
        return {}
    if any(one.arg is None for one in call.keywords):
        return None
    return {one.arg: one.value for one in call.keywords if one.arg is not None}
