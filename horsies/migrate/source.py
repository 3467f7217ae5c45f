"""A source file as text, tree and edits. Edits replace spans, so everything else stays byte for byte:
comments, quotes, blank lines, line ends, the byte order mark and the encoding."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINE_END = re.compile(r"\r\n|\r|\n")
_BOM = "\ufeff"
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Unreadable(Exception):
    """Not a Python file of this version; `line` is the place, as far as it is known."""

    def __init__(self, why: str, line: int = 1) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True, slots=True)
class Edit:
    start: int
    end: int
    text: str

    def covers(self, start: int, end: int) -> bool:
        """Is the span inside this one, and less than all of it? The ends are no part of it."""
        if start == end:
            return self.start < start < self.end
        return self.start <= start and end <= self.end and (self.start, self.end) != (start, end)


@dataclass
class SourceFile:
    """One file. `module` is the dotted name under which it is imported."""

    path: str
    module: str
    text: str
    encoding: str = "utf-8"
    is_package: bool = False
    has_bom: bool = False
    tree: ast.Module = field(init=False)
    nodes: list[ast.AST] = field(init=False)
    parents: dict[ast.AST, ast.AST] = field(init=False)
    edits: list[Edit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tree = parsed(self.text)
        self.nodes, self.parents = _walk(self.tree)
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(self.text))]
        found = _LINE_END.search(self.text)
        self.line_end = found.group() if found else "\n"

    def offset(self, line: int, column: int) -> int:
        """Where a position of the tree is in the text: the tree counts bytes of UTF-8."""
        start = self._starts[line - 1]
        end = self._starts[line] if line < len(self._starts) else len(self.text)
        return start + len(self.text[start:end].encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def replace(self, start: int, end: int, text: str) -> None:
        """Put a text in place of a span. Edits inside the span are forgotten: take them first. A span inside one that
        was replaced is gone already."""
        if any(edit.covers(start, end) for edit in self.edits):
            return
        self.edits = [edit for edit in self.edits if not (start <= edit.start and edit.end <= end and start < end)]
        self.edits.append(Edit(start, end, text.replace("\n", self.line_end)))

    def replace_node(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword, text: str) -> None:
        self.replace(*self.span(node), text)

    def now(self, node: ast.expr | ast.stmt | ast.arg | ast.keyword) -> str:
        """The text of a node with what was changed inside it."""
        start, end = self.span(node)
        return _applied(self.text, [edit for edit in self.edits if start <= edit.start and edit.end <= end], start, end)

    def indent_of(self, statement: ast.stmt) -> str:
        start = self._starts[statement.lineno - 1]
        return self.text[start : self.offset(statement.lineno, statement.col_offset)]

    def is_placed(self, node: ast.expr) -> bool:
        """Is it where its position says? Before Python 3.12, that of code inside an f-string may be wrong."""
        if not any(isinstance(up, ast.JoinedStr) for up in self.above(node)):
            return True
        try:
            start, end = self.span(node)
            return ast.dump(ast.parse(self.text[start:end], mode="eval").body) == ast.dump(node)
        except (SyntaxError, ValueError, IndexError):
            return False

    def end_of_signature(self, function: Function) -> int:
        """The place before the colon of a `def`, where a return type would be."""
        return self._ends_of_header(function)[-1]

    def name_of_handler(self, handler: ast.ExceptHandler) -> tuple[int, int]:
        """Where the ` as e` of an `except` is, which must have one."""
        *_, start, _as, end = self._ends_of_header(handler)
        return start, end

    def _ends_of_header(self, node: Function | ast.ExceptHandler) -> list[int]:
        """Where each token ends that is before the colon of a `def` or an `except`."""
        depth, ends, first = 0, [], node.lineno - 1
        lines = io.StringIO(self.text[self._starts[first] :], newline="")
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == tokenize.OP:
                if token.string == ":" and not depth:
                    break
                depth += (token.string in "([{") - (token.string in ")]}")
            ends.append(self._starts[first + token.end[0] - 1] + token.end[1])
        return ends

    def has_comment(self, node: ast.stmt | ast.expr) -> bool:
        """Is there a comment between its first and its last letter?"""
        start, end = self.span(node)
        lines = io.StringIO(self.text[start:end], newline="")
        return any(token.type == tokenize.COMMENT for token in tokenize.generate_tokens(lines.readline))

    def stands_alone(self, statement: ast.stmt) -> bool:
        """Is nothing else on its lines? `if x: y()` and `a; b` are no places for further lines."""
        end = self.span(statement)[1]
        rest = _LINE_END.split(self.text[end:], maxsplit=1)[0]
        return not self.indent_of(statement).strip(" \t\f") and not rest.split("#")[0].strip()

    def remove(self, statement: ast.stmt) -> None:
        """Take a statement out with its line; a block that would be empty keeps a `pass`."""
        start, end = self.span(statement)
        siblings = _block(self.parents[statement], statement)
        is_last = len(siblings) == 1 and not isinstance(self.parents[statement], ast.Module)
        if not self.stands_alone(statement) or is_last:
            self.replace(start, end, "pass")
            return
        start = self._starts[statement.lineno - 1]
        line_end = _LINE_END.search(self.text, end)
        self.replace(start, line_end.end() if line_end else len(self.text), "")

    def result(self) -> str:
        return _applied(self.text, self.edits, 0, len(self.text))

    def encoded(self, text: str) -> bytes:
        return (_BOM * self.has_bom + text).encode(self.encoding)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        while (up := self.parents.get(node)) is not None:
            yield up
            node = up

    def statement_of(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function_of(self, node: ast.AST) -> Function | None:
        return next((up for up in self.above(node) if isinstance(up, Function)), None)


def read(path: str, module: str, content: bytes, *, is_package: bool = False) -> SourceFile:
    """A file by its bytes; `Unreadable` if it is no Python."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode("utf-8" if encoding == "utf-8-sig" else encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as problem:
        raise Unreadable(f"its encoding cannot be read: {problem}") from None
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    if text.encode(encoding) != content:
        raise Unreadable(f"it could not be written again as it is in {encoding}")
    return SourceFile(path, module, text.removeprefix(_BOM), encoding, is_package, text.startswith(_BOM))


def parsed(text: str) -> ast.Module:
    """The tree of a source, however strange it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as problem:
        raise Unreadable(f"it is no Python of this version: {problem.msg}", problem.lineno or 1) from None
    except (ValueError, RecursionError, MemoryError) as problem:
        raise Unreadable(f"it cannot be parsed: {problem or type(problem).__name__}") from None


def _walk(tree: ast.Module) -> tuple[list[ast.AST], dict[ast.AST, ast.AST]]:
    """All nodes, each before what is inside it, and their parents; without recursion, because trees may be deep."""
    nodes: list[ast.AST] = []
    parents: dict[ast.AST, ast.AST] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        inside = list(ast.iter_child_nodes(node))
        for child in inside:
            if not isinstance(child, ast.expr_context | ast.operator | ast.boolop | ast.unaryop | ast.cmpop):
                parents[child] = node
        waiting.extend(reversed([child for child in inside if child in parents]))
    return nodes, parents


def _block(parent: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    blocks = (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
    return next((block for block in blocks if isinstance(block, list) and statement in block), [statement])


def _applied(text: str, edits: list[Edit], start: int, end: int) -> str:
    parts = []
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[start : edit.start], edit.text]
        start = edit.end
    return "".join([*parts, text[start:end]])
