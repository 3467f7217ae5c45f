"""Chains, groups and chords of Celery: a chain is nodes that wait for each other, a chord is a map and the node after
it, and a group alone is many sends.

Only what is started where it is written can be changed: a workflow here is a few statements and not an expression.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from horsies.migrate.functions import report_comments
from horsies.migrate.project import File, OldTask, Project

TOPIC = "chains-groups-and-chords"
HELPER = "pass_on_elements"
_HAND = "build a workflow: nodes with task.node(...)(...), app.workflow(name, nodes, output=last).start()"


@dataclass(frozen=True)
class OldSignature:
    """`task.s(1)`; an immutable one (`si`) does not get the result of the task before it."""

    task: OldTask
    call: ast.Call
    is_immutable: bool


@dataclass(frozen=True)
class Group:
    """Signatures that are written one by one, or one for each element of something."""

    members: tuple[ast.expr, ...] = ()
    each: ast.GeneratorExp | ast.ListComp | None = None


@dataclass(frozen=True)
class Chain:
    parts: tuple[ast.expr, ...]


@dataclass(frozen=True)
class Chord:
    header: Group
    body: ast.expr


Canvas = Group | Chain | Chord


def launched(project: Project, file: File, call: ast.Call) -> Canvas | None:
    """What a call starts, if it starts a chain, a group or a chord."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("delay", "apply_async"):
        return None if call.args or call.keywords else canvas(project, file, call.func.value)
    if isinstance(call.func, ast.Call) and _called(file, call.func) == "chord" and len(call.func.args) == 1:
        header = _group_of(file, call.func.args)
        return Chord(header, call.args[0]) if header is not None and len(call.args) == 1 else None
    return None if call.args or call.keywords else canvas(project, file, call.func)


def canvas(project: Project, file: File, node: ast.expr) -> Canvas | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _chain(file, _piped(node), project)
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    match _called(file, node):
        case "chain":
            return _chain(file, node.args, project)
        case "group":
            return _group_of(file, node.args)
        case "chord" if len(node.args) == 2:
            header = _group_of(file, node.args[:1])
            return None if header is None else Chord(header, node.args[1])
    return None


def _chain(file: File, parts: Sequence[ast.expr], project: Project) -> Canvas | None:
    """A group with a task after it is a chord."""
    if len(parts) == 2 and isinstance(parts[0], ast.Call) and _called(file, parts[0]) == "group":
        header = _group_of(file, parts[0].args)
        return None if header is None else Chord(header, parts[1])
    is_known = parts and all(signature(project, file, part) is not None for part in parts)
    return Chain(tuple(parts)) if is_known else None


def _piped(node: ast.expr) -> list[ast.expr]:
    parts: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        parts.append(node.right)
        node = node.left
    return [node, *reversed(parts)]


def _called(file: File, call: ast.Call) -> str | None:
    dotted = file.names.dotted(call.func) or ""
    module, _, name = dotted.rpartition(".")
    return name if module in ("celery", "celery.canvas") and name in ("chain", "group", "chord") else None


def _group_of(file: File, args: Sequence[ast.expr]) -> Group | None:
    if len(args) == 1:
        [only] = args
        if isinstance(only, ast.Call) and _called(file, only) == "group":
            return _group_of(file, only.args)
        if isinstance(only, ast.GeneratorExp | ast.ListComp):
            return Group(each=only)
        if isinstance(only, ast.List | ast.Tuple):
            return Group(members=tuple(only.elts))
    return Group(members=tuple(args)) if args else None


def signature(project: Project, file: File, node: ast.expr) -> OldSignature | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("s", "si"):
        task = project.task_at(file, node.func.value)
        if task is not None:
            return OldSignature(task, node, node.func.attr == "si")
    return None


def bound(signature: OldSignature, *, gets_result: bool) -> dict[str, ast.expr] | None:
    """The arguments of a signature by name; None if they cannot be told."""
    call = signature.call
    names = signature.task.parameters[int(gets_result and not signature.is_immutable) :]
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return None
    if len(call.args) > len(names):
        return None
    return dict(zip(names, call.args, strict=False)) | {str(one.arg): one.value for one in call.keywords}


class Unclear(Exception):
    """It cannot be changed; the text says why."""


def why_left(project: Project, file: File, call: ast.Call, what: Canvas) -> str | None:
    """Why a chain, group or chord that is started stays as it is; None if it is changed."""
    needed = dict(file.names.needed)
    try:
        Launch(project, file, call).text(what, "")
    except Unclear as problem:
        return str(problem)
    finally:
        file.names.needed = needed  # it was only tried
    return None


class Launch:
    """One chain, group or chord that is started, and the code that does the same."""

    def __init__(self, project: Project, file: File, call: ast.Call) -> None:
        self.project, self.file, self.call = project, file, call
        self.lines: list[str] = []
        self._header_task: OldTask | None = None
        self._taken: set[str] = set()

    def change(self, what: Canvas, key: str) -> OldTask | None:
        """Write it anew. The task beside which a helper is needed, if one is."""
        if (problem := why_left(self.project, self.file, self.call, what)) is not None:
            self.file.by_hand(self.call, f"a {type(what).__name__.lower()}: {problem}", _HAND, TOPIC)
            return None
        report_comments(self.file, self.call)
        self.file.source.replace_node(self.call, self.text(what, key))
        if isinstance(what, Group):
            self.file.differs(self.call, "a group is a list of handles", "handle.result() of each", TOPIC)
            return None
        statement = self._statement()
        indent = self.file.source.indent_of(statement)
        start = self.file.source.span(statement)[0]
        self.file.source.replace(start, start, "".join(f"{line}\n{indent}" for line in self.lines))
        if isinstance(what, Chord):
            text = "if a task of the header fails, the callback is skipped and the workflow is FAILED"
            self.file.differs(self.call, text, "min_success= of the map node, if some may fail", TOPIC)
        return self._header_task

    def text(self, what: Canvas, key: str) -> str:
        """What takes the place of the call; `lines` come before its statement."""
        if isinstance(what, Group):
            return self._sends(what)
        self._statement()
        return self._start(self._chain(what) if isinstance(what, Chain) else self._chord(what), key)

    def _statement(self) -> ast.stmt:
        """The statement in front of which lines can be put: nothing that it does may come before them."""
        node: ast.AST = self.call
        while isinstance(up := self.file.source.parent(node), ast.Attribute | ast.Call) and _leads_to(up, node):
            node = up
        statement = self.file.source.parent(node)
        if not isinstance(statement, ast.Expr | ast.Assign | ast.Return) or not self.file.source.stands_alone(
            statement
        ):
            raise Unclear("it is inside of another expression")
        if self.file.source.function_of(self.call) is None:
            raise Unclear("it is started when the module is imported")
        return statement

    def _sends(self, group: Group) -> str:
        now = self.file.source.now
        if group.each is None:
            return f"[{', '.join(self._send(one, 'send_or_raise') for one in group.members)}]"
        found = signature(self.project, self.file, group.each.elt)
        if found is None or not isinstance(found.call.func, ast.Attribute):
            raise Unclear("its members are no signatures of known tasks")
        loops = " ".join(_loop(self.file, one) for one in group.each.generators)
        prepared = self._send(group.each.elt, "prepare")
        return f"{now(found.call.func.value)}.send_many([{prepared} {loops}]).unwrap()"

    def _send(self, member: ast.expr, method: str) -> str:
        found = signature(self.project, self.file, member)
        if found is None or not isinstance(found.call.func, ast.Attribute):
            raise Unclear("its members are no signatures of known tasks")
        now = self.file.source.now
        arguments = ", ".join([*map(now, found.call.args), *map(now, found.call.keywords)])
        return f"{now(found.call.func.value)}.{method}({arguments})"

    def _chain(self, chain: Chain) -> list[str]:
        """The names of its nodes."""
        before: str | None = None
        nodes: list[str] = []
        for part in chain.parts:
            before = self._node(part, before)
            nodes.append(before)
        return nodes

    def _chord(self, chord: Chord) -> list[str]:
        task, call, parameter, elements, others = self._header(chord.header)
        if signature(self.project, self.file, chord.body) is None:
            raise Unclear("its callback is no signature of a known task")
        helper = HELPER
        if task.home is not self.file:
            helper = self.file.names.need(task.home.source.module, HELPER)
        source = self.file.names.need("horsies", "from_node")
        items = self._name("elements")
        self.lines.append(f'{items} = {helper}.node(node_id="elements")(elements={elements})')
        each = self._name(f"each_{task.function.name}")
        arguments = ", ".join(f"{name}={self.file.source.now(value)}" for name, value in others.items())
        options = f'node_id="{task.function.name}", over={source}({items}), param="{parameter}"'
        assert isinstance(call.func, ast.Attribute)
        self.lines.append(f"{each} = {self.file.source.now(call.func.value)}.map_node({options})({arguments})")
        last = self._node(chord.body, each)
        self._header_task = task
        return [items, each, last]

    def _header(self, group: Group) -> tuple[OldTask, ast.Call, str, str, dict[str, ast.expr]]:
        """The task of a header, the parameter that is another one in each call, its values, and the other arguments."""
        members = [group.each.elt] if group.each is not None else list(group.members)
        found = [signature(self.project, self.file, one) for one in members]
        first = found[0] if found else None
        if first is None or any(one is None or one.task is not first.task for one in found):
            raise Unclear("its header is not one known task with several arguments")
        calls = [bound(one, gets_result=False) for one in found if one is not None]
        if any(one is None or one.keys() != (calls[0] or {}).keys() for one in calls) or not calls[0]:
            raise Unclear("the arguments of its header cannot be told")
        given = [one for one in calls if one is not None]
        if group.each is not None:
            varying = _depending(given[0], group.each)
        else:
            varying = [name for name in given[0] if len({ast.dump(one[name]) for one in given}) > 1]
        varying = varying or list(given[0])[:1]
        if len(varying) > 1:
            raise Unclear("more than one argument of its header changes from task to task")
        [name] = varying
        others = {one: value for one, value in given[0].items() if one != name}
        now = self.file.source.now
        if group.each is None:
            elements = f"[{', '.join(now(one[name]) for one in given)}]"
        else:
            elements = self._elements(given[0][name], group.each.generators)
        return first.task, first.call, name, elements, others

    def _elements(self, value: ast.expr, loops: list[ast.comprehension]) -> str:
        now, first = self.file.source.now, loops[0]
        if len(loops) == 1 and not first.ifs and not first.is_async and ast.dump(value) == _loaded(first.target):
            return f"list({now(first.iter)})"
        return f"[{now(value)} {' '.join(_loop(self.file, one) for one in loops)}]"

    def _node(self, part: ast.expr, before: str | None) -> str:
        """A line that makes a node; the name of the node."""
        found = signature(self.project, self.file, part)
        assert found is not None and isinstance(found.call.func, ast.Attribute)
        arguments = bound(found, gets_result=before is not None)
        takes = before is not None and not found.is_immutable
        if arguments is None or (takes and not found.task.parameters):
            raise Unclear(f"the arguments of {found.task.function.name} cannot be told")
        given = [f"{name}={self.file.source.now(value)}" for name, value in arguments.items()]
        if takes:
            source = self.file.names.need("horsies", "from_node")
            given.insert(0, f"{found.task.parameters[0]}={source}({before})")
        name = self._name(f"{found.task.function.name}_node")
        waits = f", waits_for=[{before}]" if before is not None and not takes else ""
        node_id = name.removesuffix("_node") if name.endswith("_node") else name
        task = self.file.source.now(found.call.func.value)
        self.lines.append(f'{name} = {task}.node(node_id="{node_id}"{waits})({", ".join(given)})')
        return name

    def _start(self, nodes: list[str], key: str) -> str:
        found = self.project.the_app()
        if found is None:
            raise Unclear("its app is not known")
        module, app = found
        local = app if module == self.file.source.module else self.file.names.need(module, app)
        name = key.rpartition(".")[2]
        listed = f'"{name}", [{", ".join(nodes)}], output={nodes[-1]}, definition_key="{key}"'
        return f"{local}.workflow({listed}).start().unwrap()"

    def _name(self, wanted: str) -> str:
        taken, name, number = self._taken | self.file.names.bound, wanted, 2
        while name in taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name


def _leads_to(up: ast.AST, node: ast.AST) -> bool:
    """`node.get(...)`: the node comes first in it."""
    return (isinstance(up, ast.Attribute) and up.value is node) or (isinstance(up, ast.Call) and up.func is node)


def _loaded(target: ast.expr) -> str:
    """The name of a loop as it is read."""
    return ast.dump(ast.Name(target.id, ast.Load())) if isinstance(target, ast.Name) else ""


def _loop(file: File, one: ast.comprehension) -> str:
    now = file.source.now
    conditions = "".join(f" if {now(condition)}" for condition in one.ifs)
    return f"{'async ' if one.is_async else ''}for {now(one.target)} in {now(one.iter)}{conditions}"


def _depending(arguments: dict[str, ast.expr], each: ast.GeneratorExp | ast.ListComp) -> list[str]:
    """The arguments that use a name of the loop."""
    targets = {
        one.id for loop in each.generators for one in ast.walk(loop.target) if isinstance(one, ast.Name)
    }  # fmt: skip
    return [
        name
        for name, value in arguments.items()
        if any(isinstance(one, ast.Name) and one.id in targets for one in ast.walk(value))
    ]
