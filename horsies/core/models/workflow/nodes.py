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
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeAlias, TypeVar, overload

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


@dataclass(frozen=True, slots=True)
class _NodePlace:
    node_id: str | None
    index: int | None


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
    """What all nodes have in common; `T_co` is the type of its result."""

    kwargs: Mapping[str, Any]
    waits_for: tuple[Node[Any], ...]
    args_from: Mapping[str, Node[Any]]
    workflow_ctx_from: tuple[Node[Any], ...] | None
    allow_failed_deps: bool
    join: Join
    min_success: int | None
    location: SourceLocation | None
    origin: Node[Any]  # the node that this is a copy of, or itself
    _explicit_id: str | None
    _place: _NodePlace | None

    def _set(
        self,
        kwargs: Mapping[str, Any] | None,
        waits_for: Iterable[Node[Any]],
        args_from: Mapping[str, Node[Any]] | None,
        workflow_ctx_from: Iterable[Node[Any]] | None,
        node_id: str | None,
        also: Sequence[Node[Any]] = (),
        **others: Any,
    ) -> None:
        """Set the fields. Keyword arguments that are `from_node(...)` become entries of `args_from` and edges."""
        given = dict(kwargs or {})
        sources = {name: given.pop(name).node for name, value in list(given.items()) if isinstance(value, FromNode)}
        listed = dict(args_from or {})
        location = SourceLocation.of_caller()
        if twice := sorted(sources.keys() & listed.keys()):
            raise WorkflowValidationError(
                f"{', '.join(map(repr, twice))}: given in args_from and by from_node(...)",
                code=ErrorCode.WORKFLOW_KWARGS_ARGS_FROM_OVERLAP,
                location=location,
            )
        fields = {
            "kwargs": MappingProxyType(given),
            "waits_for": _each_once([*waits_for, *sources.values(), *also]),
            "args_from": MappingProxyType({**listed, **sources}),
            "workflow_ctx_from": None if workflow_ctx_from is None else _each_once(workflow_ctx_from),
            "location": location,
            "origin": self,
            "_explicit_id": node_id,
            "_place": None,
            **others,
        }
        self.__dict__.update(fields)

    @property
    def name(self) -> str:
        """The name of the task, or of the child workflow."""
        raise NotImplementedError

    @property
    def node_id(self) -> str | None:
        """The given id, or the id in the workflow that the node is part of; None if it has none yet."""
        if self._explicit_id is not None:
            return self._explicit_id
        return None if self._place is None else self._place.node_id

    @property
    def index(self) -> int | None:
        """Its place in the workflow that it is part of."""
        return None if self._place is None else self._place.index

    @property
    def given_id(self) -> str | None:
        """The id that was given."""
        return self._explicit_id

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
        copy.__dict__.update(self.__dict__, _explicit_id=node_id, _place=_NodePlace(node_id, index))
        return copy

    def relinked(self, others: Mapping[int, Node[Any]]) -> None:
        """Let the edges of a copy lead to the copies, which are found by the `id()` of their originals."""

        def link(node: Node[Any]) -> Node[Any]:
            return others.get(id(getattr(node, "origin", node)), node)

        self.__dict__["waits_for"] = tuple(map(link, self.waits_for))
        if self.args_from:
            linked = {name: link(node) for name, node in self.args_from.items()}
            self.__dict__["args_from"] = MappingProxyType(linked)
        if self.workflow_ctx_from:
            self.__dict__["workflow_ctx_from"] = tuple(map(link, self.workflow_ctx_from))

    def seen_as(self, node_id: str, index: int) -> None:
        """Remember a place; if there are two different ones, the place is unknown."""
        known = self._place or _NodePlace(node_id, index)
        same_id = node_id if known.node_id == node_id else None
        same_index = index if known.index == index else None
        self.__dict__["_place"] = _NodePlace(same_id, same_index)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a node is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a node is immutable")

    def __repr__(self) -> str:
        place = "" if self.node_id is None else f" as {self.node_id!r}"
        return f"<{type(self).__name__} of {self.name!r}{place}>"


class TaskNode(Node[T_co]):
    """A node that runs a task."""

    fn: TaskFunction[Any, Any]
    queue: str | None
    priority: int | None
    good_until: datetime | None
    flags: Flags | None

    def __init__(
        self,
        fn: TaskFunction[Any, T_co],
        kwargs: Mapping[str, Any] | None = None,
        waits_for: Iterable[Node[Any]] = (),
        args_from: Mapping[str, Node[Any]] | None = None,
        workflow_ctx_from: Iterable[Node[Any]] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        allow_failed_deps: bool = False,
        join: Join = "all",
        min_success: int | None = None,
        good_until: datetime | None = None,
        node_id: str | None = None,
        flags: Flags | None = None,
    ) -> None:
        self._set(
            kwargs,
            waits_for,
            args_from,
            workflow_ctx_from,
            node_id,
            fn=fn,
            queue=queue,
            priority=priority,
            allow_failed_deps=allow_failed_deps,
            join=join,
            min_success=min_success,
            good_until=good_until,
            flags=flags,
        )

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "task_name", self.fn))

    def ok_type(self) -> Any:
        return self.fn.codec.ok_type

    def result_codec(self) -> ResultCodec:
        return self.fn.codec.result


class MapNode(TaskNode[list[TaskResult[T, TaskError]]], GivesValues[list[T]]):
    """A node that runs a task for each element of the list that `over` gives (F-95)."""

    over: Node[Any]
    param: str | None
    max_parallel: int | None

    def __init__(
        self,
        fn: TaskFunction[Any, T],
        over: Node[Any],
        param: str | None = None,
        kwargs: Mapping[str, Any] | None = None,
        waits_for: Iterable[Node[Any]] = (),
        args_from: Mapping[str, Node[Any]] | None = None,
        workflow_ctx_from: Iterable[Node[Any]] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        allow_failed_deps: bool = False,
        join: Join = "all",
        min_success: int | None = None,
        good_until: datetime | None = None,
        node_id: str | None = None,
        flags: Flags | None = None,
        max_parallel: int | None = None,
    ) -> None:
        self._set(
            kwargs,
            waits_for,
            args_from,
            workflow_ctx_from,
            node_id,
            [over],
            fn=fn,
            over=over,
            param=param,
            queue=queue,
            priority=priority,
            allow_failed_deps=allow_failed_deps,
            join=join,
            min_success=min_success,
            good_until=good_until,
            flags=flags,
            max_parallel=max_parallel,
        )

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
        self.__dict__["over"] = others.get(id(self.over.origin), self.over)


class SubWorkflowNode(Node[T_co]):
    """A node that is a child workflow."""

    workflow_def: type[WorkflowDefinition[Any]]

    def __init__(
        self,
        workflow_def: type[WorkflowDefinition[T_co]],
        kwargs: Mapping[str, Any] | None = None,
        waits_for: Iterable[Node[Any]] = (),
        args_from: Mapping[str, Node[Any]] | None = None,
        workflow_ctx_from: Iterable[Node[Any]] | None = None,
        join: Join = "all",
        min_success: int | None = None,
        allow_failed_deps: bool = False,
        node_id: str | None = None,
    ) -> None:
        self._set(
            kwargs,
            waits_for,
            args_from,
            workflow_ctx_from,
            node_id,
            workflow_def=workflow_def,
            join=join,
            min_success=min_success,
            allow_failed_deps=allow_failed_deps,
        )

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
