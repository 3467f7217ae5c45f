"""What the names of a file stand for, as far as its imports and assignments tell, and which names it needs too."""

from __future__ import annotations

import ast
import builtins
from functools import cached_property

from horsies.migrate.source import Edit, Function, SourceFile

_LONGEST = 12  # parts of a name; what has more is no name of a module
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Names:
    """The names of one file."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.imported: dict[str, str] = {}  # anywhere in the file; by the module itself, if others do it too
        self.at_top: dict[str, str] = {}  # by a statement of the module, so that every line below has them
        self._by_scope: dict[ast.AST, dict[str, str]] = {}
        self.starred: list[ast.ImportFrom] = []
        for node in source.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self._note(node, alias.asname or first, alias.name if alias.asname else first)
            elif isinstance(node, ast.ImportFrom):
                self._read_from(node)
        self.needed: dict[tuple[str, str], str] = {}
        self.modules: set[str] = set()
        self.unplaced: list[ast.Name] = []
        self._locals: dict[ast.AST, frozenset[str]] = {}

    def _read_from(self, node: ast.ImportFrom) -> None:
        origin = absolute(self.source, node)
        for alias in node.names:
            if alias.name == "*":
                self.starred.append(node)
            else:
                self._note(node, alias.asname or alias.name, f"{origin}.{alias.name}")

    def _note(self, statement: ast.stmt, name: str, origin: str) -> None:
        scope = next((up for up in self.source.above(statement) if isinstance(up, _SCOPES)), self.source.tree)
        self._by_scope.setdefault(scope, {})[name] = origin
        if scope is self.source.tree or name not in self._by_scope.get(self.source.tree, {}):
            self.imported[name] = origin
        if self.source.parent(statement) is self.source.tree:
            self.at_top[name] = origin

    @cached_property
    def bound(self) -> frozenset[str]:
        """Every name that is bound anywhere in the file."""
        found = set(self.imported)
        for node in self.source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif (name := _named(node)) is not None:
                found.add(name)
        return frozenset(found)

    def dotted(self, node: ast.AST) -> str | None:
        """`celery.shared_task` for whatever name it goes by here; `module.name` for what the file defines itself."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) <= _LONGEST:
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or (first := self._origin(node)) is None:
            return None
        if not self.source.is_placed(node):
            self.unplaced.append(node)
            return None
        return ".".join([first, *reversed(parts)])

    def _origin(self, name: ast.Name) -> str | None:
        """What the nearest scope says that binds it; None if a function around it binds it to something of its own."""
        for scope in self.source.above(name):
            if isinstance(scope, _SCOPES):
                if (found := self._by_scope.get(scope, {}).get(name.id)) is not None:
                    return found
                if name.id in self.bound_in(scope):
                    return None
        return self._by_scope.get(self.source.tree, {}).get(name.id) or f"{self.source.module}.{name.id}"

    def bound_in(self, scope: ast.AST) -> frozenset[str]:
        if scope not in self._locals:
            found: set[str] = set()
            waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
            while waiting:
                node = waiting.pop()
                if isinstance(node, ast.arg):
                    found.add(node.arg)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.add(node.id)
                elif (name := _named(node)) is not None:
                    found.add(name)
                if not isinstance(node, (*_SCOPES, ast.ClassDef)):
                    waiting.extend(ast.iter_child_nodes(node))
            self._locals[scope] = frozenset(found)
        return self._locals[scope]

    def need(self, module: str, name: str) -> str:
        """How to write this name of that module here; it is imported if it is not there yet."""
        for local, origin in self.at_top.items():
            if origin == f"{module}.{name}":
                return local
            if origin == module:
                return f"{local}.{name}"
        if (module, name) not in self.needed:
            taken = self.bound | set(self.needed.values()) | set(dir(builtins))
            self.needed[module, name] = f"horsies_{name}" if name in taken and not self._is_old(name) else name
        return self.needed[module, name]

    def _is_old(self, name: str) -> bool:
        """A name of the old library makes room for ours."""
        return self.imported.get(name, "").partition(".")[0] in ("celery", "procrastinate")

    def need_module(self, module: str) -> str:
        for local, origin in self.at_top.items():
            if origin == module:
                return local
        self.modules.add(module)
        return module

    def imports(self) -> list[str]:
        """The lines that must be added."""
        lines = [f"import {module}" for module in sorted(self.modules)]
        for module in sorted(
            {module for module, _ in self.needed}, key=lambda name: (name.startswith("horsies"), name)
        ):
            names = sorted(
                name if local == name else f"{name} as {local}"
                for (origin, name), local in self.needed.items()
                if origin == module
            )
            line = f"from {module} import {', '.join(names)}"
            if len(line) > 100:
                line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")"
            lines.append(line)
        return lines


def _named(node: ast.AST) -> str | None:
    """The name that a definition, a handler of exceptions or a pattern binds."""
    if isinstance(node, Function | ast.ClassDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        return node.name
    return node.rest if isinstance(node, ast.MatchMapping) else None


def absolute(source: SourceFile, node: ast.ImportFrom) -> str:
    """The module of a `from` import, also of a relative one."""
    if not node.level:
        return node.module or ""
    package = source.module.split(".") if source.is_package else source.module.split(".")[:-1]
    base = package[: len(package) - (node.level - 1)] if node.level > 1 else package
    return ".".join([*base, *([node.module] if node.module else [])])


def finished(source: SourceFile, names: Names, old: str) -> str:
    """The text after all edits, with the imports that it needs now, and without those of the old library that nothing
    uses any more."""
    text = source.result()
    if text == source.text and not names.needed and not names.modules:
        return text
    if not source.text.endswith(source.line_end * 2):  # what was taken out at the end leaves no blank lines
        body = text.rstrip("\r\n")
        text = body + source.line_end if body != text else text
    after = SourceFile(source.path, source.module, text, source.encoding, source.is_package)
    used = {node.id for node in after.nodes if isinstance(node, ast.Name)}
    used |= {name for node in after.nodes if isinstance(node, ast.Assign) for name in _exported(node)}
    place: ast.stmt | None = None
    for statement in after.tree.body:
        if _of(statement, old):
            place = place or statement
            _shorten(after, statement, used, old)
    _insert(after, names.imports(), place)
    return after.result()


def _exported(node: ast.Assign) -> set[str]:
    if not any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
        return set()
    return {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def _of(statement: ast.stmt, old: str) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return not statement.level and (statement.module or "").partition(".")[0] == old
    return isinstance(statement, ast.Import) and any(one.name.partition(".")[0] == old for one in statement.names)


def _shorten(after: SourceFile, statement: ast.stmt, used: set[str], old: str) -> None:
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    whole = isinstance(statement, ast.ImportFrom)
    kept = [
        one
        for one in statement.names
        if (one.asname or one.name.partition(".")[0]) in used
        or one.name == "*"
        or not (whole or one.name.partition(".")[0] == old)
    ]
    if len(kept) == len(statement.names):
        return
    if not kept:
        after.remove(statement)
        return
    listed = ", ".join(one.name + (f" as {one.asname}" if one.asname else "") for one in kept)
    head = f"from {statement.module} import " if isinstance(statement, ast.ImportFrom) else "import "
    after.replace_node(statement, head + listed)


def _insert(after: SourceFile, lines: list[str], place: ast.stmt | None) -> None:
    if not lines:
        return
    body = after.tree.body
    if place is None:
        place = next((one for one in body if not _is_preamble(one)), None)
    if place is None or not after.stands_alone(place):
        place = next((one for one in body if not _is_preamble(one)), place)
    line = place.lineno if place is not None else 1
    if place is not None and isinstance(place, Function | ast.ClassDef) and place.decorator_list:
        line = place.decorator_list[0].lineno
    start = after.offset(line, 0)
    after.edits.insert(0, _insertion(start, "\n".join(lines) + "\n", after.line_end))


def _is_preamble(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _insertion(start: int, text: str, line_end: str) -> Edit:
    return Edit(start, start, text.replace("\n", line_end))
