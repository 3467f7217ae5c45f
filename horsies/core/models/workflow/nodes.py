"""The nodes of a workflow: a task, a child workflow, or a task for each element of a list. `SuccessPolicy` says when a
workflow counts as a success although a node failed (F-42).

Nodes are immutable. A node may be used in several workflows: each workflow makes its own copies, which know their id
and index there. A node with a single place knows that place too, so that `handle.result_for(node)` finds it. A success
policy names nodes as objects, by their key, or by their id, because the body of an inner `class Meta` does not see the
names of the class around it. Mistakes are found when a workflow is built (`checks.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, overload

from horsies.core.codec.shapes import ResultCodec
from horsies.core.errors import ErrorCode, SourceLocation, WorkflowContextMissingIdError, WorkflowValidationError
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.models.workflow.results import Join

if TYPE_CHECKING:
    from horsies.core.models.workflow.definition import WorkflowDefinition
    from horsies.core.task_decorator import TaskFunction
    from horsies.core.tasks.definition import Flags


T = TypeVar("T")

R = TypeVar("R")

T_co = TypeVar("T_co", covariant=True)

MAX_ID_LENGTH = 128

_OUTSIDE = re.compile(r"[^A-Za-z0-9_\-:.]+")


def slugify(name: str) -> str:
    """A name as part of a node id: spaces become `_`, and other characters that are not allowed in an id are
    dropped."""
    return _OUTSIDE.sub("", name.replace(" ", "_"))


def automatic_id(name: str, index: int) -> str:
    """The id of a node without a given id, made from the name of its task and its place."""
    end = f":{index}"
    return slugify(name)[: MAX_ID_LENGTH - len(end)] + end


@dataclass(frozen=True)  # no slots: with both, `NodeKey[int]("a")` is a TypeError in Python 3.11
class NodeKey(Generic[T_co]):
    """A typed name of a node, for lookups where the node itself is not available."""

    node_id: str
    _node: Any = field(default=None, repr=False, compare=False)

    def result_codec(self) -> ResultCodec | None:
        """The codec that decodes its result; None if the key was not made by a node."""
        return None if self._node is None else self._node.result_codec()


class GivesValue(Generic[T_co]):
    """Something that can be the source of a parameter that takes a `T_co` (F-33). It exists for type checkers, which
    find out from the parameter in which of its forms `from_node(...)` gives the result of a node."""


class GivesResult(Generic[T_co]):
    """The same for a parameter that takes the whole `TaskResult`."""


class GivesValues(Generic[T_co]):
    """The same for a parameter that takes the list of the values of a map."""


class Node(GivesValue[T_co], GivesResult[TaskResult[T_co, TaskError]]):
    """What all nodes have in common; `T_co` is the type of its result. Each kind of node is a dataclass that has these
    options in its own order."""

    kwargs: Mapping[str, Any]
    waits_for: Iterable[Node[Any]]
    args_from: Mapping[str, Node[Any]]
    workflow_ctx_from: Iterable[Node[Any]] | None
    allow_failed_deps: bool
    join: Join
    min_success: int | None
    node_id: str | None  # the given id, or the id in the workflow that the node is part of; None if it has none yet

    given_id: str | None
    index: int | None = None  # its place in the workflow that it is part of
    location: SourceLocation | None
    origin: Node[Any]  # the node that this is a copy of, or itself
    _is_seen: bool = False

    def __post_init__(self) -> None:
        """Keyword arguments that are `from_node(...)` become entries of `args_from` and edges."""
        given, listed = dict(self.kwargs or {}), dict(self.args_from or {})
        sources = {name: given.pop(name).node for name, value in list(given.items()) if isinstance(value, FromNode)}
        location = SourceLocation.of_caller()
        if twice := sorted(sources.keys() & listed.keys()):
            raise WorkflowValidationError(
                f"{', '.join(map(repr, twice))}: given in args_from and by from_node(...)",
                code=ErrorCode.WORKFLOW_KWARGS_ARGS_FROM_OVERLAP,
                location=location,
            )
        self._set(
            kwargs=MappingProxyType(given),
            waits_for=_each_once([*self.waits_for, *sources.values()]),
            args_from=MappingProxyType({**listed, **sources}),
            workflow_ctx_from=None if self.workflow_ctx_from is None else _each_once(self.workflow_ctx_from),
            given_id=self.node_id,
            location=location,
            origin=self,
        )

    def _set(self, **fields: Any) -> None:
        self.__dict__.update(fields)  # a frozen dataclass lets nothing else through

    @property
    def name(self) -> str:
        """The name of the task, or of the child workflow."""
        raise NotImplementedError

    def key(self) -> NodeKey[T_co]:
        """The name of this node for lookups. `WorkflowContextMissingIdError` if it has no id, or several."""
        if self.node_id is None:
            raise WorkflowContextMissingIdError(
                f"{self!r} has no id: it is in no workflow, or in several with different ids; give it a node_id, or "
                "take the node from spec.tasks"
            )
        return NodeKey(self.node_id, self)

    def ok_type(self) -> Any:
        """The type of the value of its result."""
        raise NotImplementedError

    def result_codec(self) -> ResultCodec:
        """The codec that decodes its result."""
        raise NotImplementedError

    def copied(self, node_id: str, index: int) -> Self:
        """The same node at one place; its edges still lead to the original nodes."""
        copy = object.__new__(type(self))
        copy._set(**{**self.__dict__, "node_id": node_id, "given_id": node_id, "index": index})
        return copy

    def relinked(self, others: Mapping[int, Node[Any]]) -> None:
        """Let the edges of a copy lead to the copies, which are found by the `id()` of their originals."""

        def link(node: Node[Any]) -> Node[Any]:
            return others.get(id(getattr(node, "origin", node)), node)

        self._set(waits_for=tuple(map(link, self.waits_for)))
        if self.args_from:
            self._set(args_from=MappingProxyType({name: link(node) for name, node in self.args_from.items()}))
        if self.workflow_ctx_from:
            self._set(workflow_ctx_from=tuple(map(link, self.workflow_ctx_from)))

    def seen_as(self, node_id: str, index: int) -> None:
        """Remember a place; if there are two different ones, the place is unknown."""
        if self.given_id is None:
            self._set(node_id=node_id if not self._is_seen or self.node_id == node_id else None)
        self._set(index=index if not self._is_seen or self.index == index else None, _is_seen=True)

    def __repr__(self) -> str:
        place = "" if self.node_id is None else f" as {self.node_id!r}"
        return f"<{type(self).__name__} of {self.name!r}{place}>"


@dataclass(frozen=True, eq=False, repr=False)
class TaskNode(Node[T_co]):
    """A node that runs a task."""

    fn: TaskFunction[Any, T_co]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    waits_for: Iterable[Node[Any]] = ()
    args_from: Mapping[str, Node[Any]] = field(default_factory=dict)
    workflow_ctx_from: Iterable[Node[Any]] | None = None
    queue: str | None = None
    priority: int | None = None
    allow_failed_deps: bool = False
    join: Join = "all"
    min_success: int | None = None
    good_until: datetime | None = None
    node_id: str | None = None
    flags: Flags | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "task_name", self.fn))

    def ok_type(self) -> Any:
        return self.fn.codec.ok_type

    def result_codec(self) -> ResultCodec:
        return self.fn.codec.result


@dataclass(frozen=True, eq=False, repr=False)
class MapNode(TaskNode[list[TaskResult[T, TaskError]]], GivesValues[list[T]]):
    """A node that runs a task for each element of the list that `over` gives (F-95)."""

    fn: TaskFunction[Any, T]  # type: ignore[assignment]
    _: KW_ONLY
    over: Node[Any]
    param: str | None = None
    max_parallel: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(waits_for=_each_once([*self.waits_for, self.over]))

    def ok_type(self) -> Any:
        return list[TaskResult[super().ok_type(), TaskError]]  # type: ignore[misc]

    @property
    def needs_all(self) -> bool:
        """Whether every element has succeeded when the node has."""
        return self.join == "all" and self.min_success is None

    def result_codec(self) -> ResultCodec:
        return ResultCodec(self.ok_type())

    def relinked(self, others: Mapping[int, Node[Any]]) -> None:
        super().relinked(others)
        self._set(over=others.get(id(self.over.origin), self.over))


@dataclass(frozen=True, eq=False, repr=False)
class SubWorkflowNode(Node[T_co]):
    """A node that is a child workflow."""

    workflow_def: type[WorkflowDefinition[T_co]]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    waits_for: Iterable[Node[Any]] = ()
    args_from: Mapping[str, Node[Any]] = field(default_factory=dict)
    workflow_ctx_from: Iterable[Node[Any]] | None = None
    join: Join = "all"
    min_success: int | None = None
    allow_failed_deps: bool = False
    node_id: str | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.workflow_def, "name", None) or getattr(self.workflow_def, "__name__", "?"))

    def ok_type(self) -> Any:
        return self.workflow_def.output_type()

    def result_codec(self) -> ResultCodec:
        return self.workflow_def.output_codec()


AnyNode: TypeAlias = TaskNode[Any] | SubWorkflowNode[Any] | MapNode[Any]


@dataclass(frozen=True, slots=True)
class FromNode:
    """A placeholder for a value that will be the result of a node."""

    node: Node[Any]


# The parameter decides which form of the result it takes, so a type checker must find `R` by the place of the call.
# mypy does that only if the return type is more than a type variable; `| Any` accepts nothing that `R` does not. The
# second signature is for calls that stand in no such place.
@overload
def from_node(node: GivesValue[R] | GivesResult[R] | GivesValues[R]) -> R | Any: ...
@overload
def from_node(node: GivesResult[R]) -> R | Any: ...  # type: ignore[overload-cannot-match]
def from_node(node: Any) -> Any:
    """The result of another node as an argument: `task.node()(x=from_node(a))`. A parameter that is annotated with a
    `TaskResult` gets the whole result, any other parameter its value (F-33)."""
    if not isinstance(node, Node):
        raise WorkflowValidationError(
            f"from_node takes a node, not {type(node).__name__}",
            code=ErrorCode.WORKFLOW_INVALID_ARGS_FROM,
            location=SourceLocation.of_caller(),
            help_text="make a node from a task with task.node(...)(...)",
        )
    return FromNode(node)


def placed(nodes: Sequence[Node[Any]], ids: Sequence[str]) -> tuple[Node[Any], ...]:
    """Copies of the nodes that know their ids and places, with edges that lead to each other."""
    copies = [node.copied(node_id, index) for index, (node, node_id) in enumerate(zip(nodes, ids, strict=True))]
    by_origin: dict[int, Node[Any]] = {id(copy.origin): copy for copy in copies}
    for copy in copies:
        copy.relinked(by_origin)
        copy.origin.seen_as(str(copy.node_id), copy.index or 0)
    return tuple(copies)


def _each_once(nodes: Iterable[Node[Any]]) -> tuple[Node[Any], ...]:
    return tuple({id(getattr(node, "origin", node)): node for node in nodes}.values())


if TYPE_CHECKING:
    NodeRef: TypeAlias = Node[Any] | NodeKey[Any] | str


@dataclass(frozen=True, slots=True)
class SuccessCase:
    """One way to succeed: all of these nodes have completed."""

    required: Iterable[NodeRef]

    def __post_init__(self) -> None:
        object.__setattr__(self, "required", _listed(self.required))


@dataclass(frozen=True, slots=True)
class SuccessPolicy:
    """The workflow is COMPLETED if one of the cases holds, checked in order; optional nodes may fail."""

    cases: Iterable[SuccessCase]
    optional: Iterable[NodeRef] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", tuple(self.cases))
        object.__setattr__(self, "optional", _listed(self.optional))


def _listed(nodes: Iterable[NodeRef]) -> tuple[NodeRef, ...]:
    # A text is iterable too, but here it is one id and not its letters.
    return (nodes,) if isinstance(nodes, str) else tuple(nodes)
