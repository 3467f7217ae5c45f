"""What the nodes of a workflow are called with: the names and types of their arguments, where those come from, and what
child workflows take and give (HRS-008 to HRS-010, HRS-013 for F-35, HRS-016 of a child, HRS-019 to HRS-026, HRS-031).

`fits` says whether a value of one annotation fits where another is declared. It accepts what it cannot judge; the task
that decodes the value decides. `checks.py` has the checks of the workflow as a whole.
"""

import collections.abc
import re
import types
import typing
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, NewType, TypeVar, get_args, get_origin

from horsies.core.codec import arguments, shapes
from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.tasks import TaskResult
from horsies.core.models.workflow import plan, registry
from horsies.core.models.workflow.nodes import FromNode, MapNode, Node, SubWorkflowNode, TaskNode
from horsies.core.tasks.definition import TaskDefinition

_ARRAYS = (list, tuple, set, frozenset)
_MODULES = re.compile(r"\btyping\.|\bhorsies\.(?:\w+\.)*")  # users write the names without these prefixes

_ABSTRACT_ARRAYS = (
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Set,
    collections.abc.Collection,
    collections.abc.Iterable,
)
_PROMOTED = {(int, float), (int, complex), (float, complex)}
_WAIT = "waits_for=[...] lists every node whose result is used; from_node(...) adds its node automatically"


def child_problems(draft: plan.Draft) -> Iterator[HorsiesError]:
    """Checks child workflows, and the declared output of a definition (HRS-016 of a child, HRS-025)."""
    for index, node in enumerate(draft.nodes):
        if not isinstance(node, SubWorkflowNode):
            continue
        if not _is_sound(node):
            text = f"workflow_def must be a subclass of WorkflowDefinition, not {node.workflow_def!r:.100}"
            yield draft.node_error(index, ErrorCode.CONFIG_INVALID, text)
        elif not isinstance(node.workflow_def.definition_key, str) or not node.workflow_def.definition_key:
            text = f"{node.workflow_def.__qualname__} has no definition_key, so workers could not find it"
            yield draft.node_error(index, ErrorCode.WORKFLOW_NO_DEFINITION_KEY, text)
    place = draft.output_index
    is_unknown = draft.output is not None and place is None  # HRS-011 reports that
    if draft.declared and not is_unknown:
        output = None if place is None else draft.nodes[place]
        if problem := output_problem(output, draft.declared[0]):
            yield draft.error(ErrorCode.WORKFLOW_OUTPUT_TYPE_MISMATCH, problem)


def input_problems(draft: plan.Draft) -> Iterator[HorsiesError]:
    """What is wrong with the arguments of the nodes. What can be written of the arguments is written, for the plan."""
    for index, node in enumerate(draft.nodes):
        draft.kwargs_json[index], draft.forms[index] = None, {}
        if node.args_from or node.workflow_ctx_from:
            yield from _sources(draft, index, node)
        if not _is_sound(node):
            continue
        if isinstance(node, SubWorkflowNode) and not node.workflow_def.takes_parameters():
            yield from _without_parameters(draft, index, node)
            continue
        try:
            codec = _codec_of(node)
        except HorsiesError as error:
            yield error
        except Exception as problem:  # whatever annotations of the user's can raise
            text = f"the parameters of build_with of {node.name!r} cannot be used: {problem}"
            yield draft.node_error(index, ErrorCode.WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING, text)
        else:
            yield from _Inputs(draft, index, node, codec).problems()


def output_problem(output: Node[Any] | None, declared: Any) -> str | None:
    """Why a definition that declares this type cannot have this output; None if it can."""
    if output is None:
        if declared is Any or declared is None or declared is type(None):
            return None
        return f"WorkflowDefinition[{shown(declared)}] without an output: name one in Meta.output, or declare None"
    gives = plan.type_of(output)
    if fits(gives, declared):
        return None
    return f"it is declared to give {shown(declared)}, but its output {output!r} gives {shown(gives)}"


def _is_sound(node: Node[Any]) -> bool:
    """Whether the node runs something valid, so that more can be checked."""
    if isinstance(node, SubWorkflowNode):
        return isinstance(node.workflow_def, type) and hasattr(node.workflow_def, "takes_parameters")
    return isinstance(node, TaskNode) and isinstance(node.fn, TaskDefinition)


def _codec_of(node: Node[Any]) -> arguments.ArgumentsCodec:
    if isinstance(node, TaskNode):
        return node.fn.codec.arguments
    assert isinstance(node, SubWorkflowNode)
    return registry.parameters_of(node.workflow_def)


def _without_parameters(draft: plan.Draft, index: int, node: SubWorkflowNode[Any]) -> Iterator[HorsiesError]:
    if given := sorted({*node.kwargs, *node.args_from}):
        yield draft.node_error(
            index,
            ErrorCode.WORKFLOW_SUBWORKFLOW_PARAMS_REQUIRE_BUILD_WITH,
            f"{', '.join(map(repr, given))}: {node.workflow_def.__qualname__} takes no parameters",
            "override its class method build_with(cls, app, ...) to accept parameters",
        )
    if node.workflow_ctx_from is not None:
        text = f"build_with of {node.workflow_def.__qualname__} has no parameter workflow_ctx: WorkflowContext | None"
        yield draft.node_error(index, ErrorCode.WORKFLOW_CTX_PARAM_MISSING, text)


def _sources(draft: plan.Draft, index: int, node: Node[Any]) -> Iterator[HorsiesError]:
    waits_for = {id(getattr(other, "origin", other)) for other in node.waits_for}

    def is_known(source: Any) -> bool:
        return isinstance(source, Node) and id(source.origin) in waits_for

    for name, source in node.args_from.items():
        if not is_known(source):
            text = f"args_from[{name!r}] is {_named(source)}, which is not in waits_for"
            yield draft.node_error(index, ErrorCode.WORKFLOW_INVALID_ARGS_FROM, text, _WAIT)
    for source in node.workflow_ctx_from or ():
        if not is_known(source):
            text = f"workflow_ctx_from has {_named(source)}, which is not in waits_for"
            yield draft.node_error(index, ErrorCode.WORKFLOW_INVALID_CTX_FROM, text, _WAIT)


def _named(source: Any) -> str:
    return repr(source) if isinstance(source, Node) else f"not a node but {type(source).__name__}"


class _Inputs:
    """The arguments of one node, by its signature."""

    def __init__(self, draft: plan.Draft, index: int, node: Node[Any], codec: arguments.ArgumentsCodec) -> None:
        self.draft, self.index, self.node, self.codec = draft, index, node, codec
        self.signature = codec.signature
        self.what = f"task {node.name!r}" if isinstance(node, TaskNode) else f"build_with of {node.name!r}"

    def problems(self) -> Iterator[HorsiesError]:
        node, signature = self.node, self.signature
        given: set[str] = {*node.kwargs, *node.args_from}
        if isinstance(node, MapNode):
            yield from self._map(node, given)
        if len(node.kwargs) + len(node.args_from) != len({*node.kwargs, *node.args_from}):
            twice = ", ".join(map(repr, sorted(node.kwargs.keys() & node.args_from.keys())))
            yield self._error(ErrorCode.WORKFLOW_KWARGS_ARGS_FROM_OVERLAP, f"{twice}: in kwargs and in args_from")
        unknown = [name for name in given if not self._is_parameter(name)]
        for name in sorted(unknown):
            yield self._error(ErrorCode.WORKFLOW_INVALID_KWARG_KEY, self._why_not(name))
        yield from self._missing(given)
        if node.workflow_ctx_from is not None and "workflow_ctx" not in signature.injected:
            text = f"{self.what} has no parameter workflow_ctx: WorkflowContext | None"
            yield self._error(ErrorCode.WORKFLOW_CTX_PARAM_MISSING, text)
        yield from self._args_from(unknown)
        yield from self._values(unknown)

    def _missing(self, given: Collection[str]) -> Iterator[HorsiesError]:
        signature = self.signature
        by_position = signature.positional[: signature.positional_only]
        missing = [name for name in signature.kinds if name in signature.required and name not in given]
        if stuck := [name for name in missing if name in by_position]:
            text = f"{', '.join(map(repr, stuck))} of {self.what} can only be given by position, which a node cannot do"
            is_task = isinstance(self.node, TaskNode)
            code = (
                ErrorCode.WORKFLOW_POSITIONAL_ARGS_NOT_SUPPORTED
                if is_task
                else ErrorCode.WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING
            )
            yield self._error(code, text)
        if lacking := [name for name in missing if name not in by_position]:
            text = f"{self.what} needs {', '.join(map(repr, lacking))}"
            yield self._error(ErrorCode.WORKFLOW_MISSING_REQUIRED_PARAMS, text)

    def _args_from(self, unknown: Collection[str]) -> Iterator[HorsiesError]:
        """Each parameter accepts what its source gives, and has a default if the source may have nothing for it."""
        for name, source in self.node.args_from.items():
            if name in unknown or not isinstance(source, Node):
                continue
            form = form_of(self._annotation(name), source)
            if problem := self._type_problem(name, source, form):
                yield self._error(ErrorCode.WORKFLOW_ARGS_FROM_TYPE_MISMATCH, problem)
            elif form is not None:
                self.draft.forms[self.index][name] = form
            if name in self.signature.required and (problem := self._why_lacking(name, source, form)):
                yield self._error(ErrorCode.WORKFLOW_INVALID_JOIN, problem)

    def _type_problem(self, name: str, source: Node[Any], form: plan.Form | None) -> str | None:
        annotation = self._annotation(name)
        if form is None:
            return f"{name!r} is {shown(annotation)}, but {source!r} gives {shown(plan.type_of(source))}"
        return self._why_not_values(name, annotation, source) if form == "values" else None

    def _why_not_values(self, name: str, annotation: Any, source: Node[Any]) -> str | None:
        """Why a parameter cannot take the values of a map: an element that failed has none."""
        if not isinstance(source, MapNode) or source.needs_all:
            return None
        proper = shown(plan.type_of(source))
        return f"{name!r} is {shown(annotation)}, but elements of {source!r} may have failed: annotate it {proper}"

    def _why_lacking(self, name: str, source: Node[Any], form: plan.Form | None) -> str | None:
        """Why a parameter may get nothing from its source, if it may."""
        if self.node.join != "all" and not isinstance(self.node, MapNode):
            return f"with join={self.node.join!r} {name!r} may get no value: give the parameter a default"
        if self.node.allow_failed_deps and form in ("value", "values"):
            proper = f"TaskResult[{shown(plan.type_of(source))}, TaskError]"
            return (
                f"with allow_failed_deps {name!r} gets no value from a source that failed: give the parameter a "
                f"default, or annotate it {proper} to get the error"
            )
        return None

    def _map(self, node: MapNode[Any], given: set[str]) -> Iterator[HorsiesError]:
        """The parameter of the elements; it is added to the given ones."""
        param = plan.map_param(node)
        if param is None:
            text = f"{self.what} has no parameter left for the elements; name it with param=..."
            yield self._error(ErrorCode.WORKFLOW_MISSING_REQUIRED_PARAMS, text)
            return
        if param in given:
            text = f"param={param!r} takes the elements and is given in kwargs or args_from too"
            yield self._error(ErrorCode.WORKFLOW_KWARGS_ARGS_FROM_OVERLAP, text)
        given.add(param)
        gives = plan.type_of(node.over)
        element = element_of(gives)
        if element is None:
            text = f"it maps over {node.over!r}, which gives {shown(gives)}, not a list"
            yield self._error(ErrorCode.WORKFLOW_ARGS_FROM_TYPE_MISMATCH, text)
        elif self._is_parameter(param) and (problem := self._element_problem(param, node.over, element[0])):
            yield self._error(ErrorCode.WORKFLOW_ARGS_FROM_TYPE_MISMATCH, problem)

    def _element_problem(self, param: str, over: Node[Any], element: Any) -> str | None:
        """Why the parameter cannot take the elements. Those of another map are results, or their values."""
        annotation = self._annotation(param)
        if isinstance(over, MapNode) and not results_in(annotation) and fits(_value_in(element), annotation):
            self.draft.forms[self.index][param] = "values"
            return self._why_not_values(param, annotation, over)
        if fits(element, annotation):
            return None
        return f"{param!r} is {shown(annotation)}, but the elements are {shown(element)}"

    def _values(self, unknown: Collection[str]) -> Iterator[HorsiesError]:
        known = {name: value for name, value in self.node.kwargs.items() if name not in unknown}
        try:
            self.draft.kwargs_json[self.index] = self.codec.encode_named(known)
        except shapes.CodecError as problem:
            yield self._unwritable(str(problem), known)

    def _unwritable(self, problem: str, values: dict[str, Any]) -> HorsiesError:
        hidden = any(isinstance(part, FromNode) for value in values.values() for part in _parts(value))
        help_text = "from_node(...) can only be an argument by itself, not a part of one" if hidden else None
        return self._error(ErrorCode.WORKFLOW_KWARGS_NOT_SERIALIZABLE, problem, help_text)

    def _annotation(self, name: str) -> Any:
        signature = self.signature
        return signature.kinds.get(name, signature.kinds.get(signature.var_keyword or "", Any))

    def _is_parameter(self, name: str) -> bool:
        if name in arguments.INJECTED:
            return False
        return name in self.signature.keyword or self.signature.var_keyword is not None

    def _why_not(self, name: str) -> str:
        if name in arguments.INJECTED:
            return f"{name!r} is filled in by the workflow engine"
        return f"{self.what} has no parameter {name!r} that can be given by name"

    def _error(self, code: ErrorCode, text: str, help_text: str | None = None) -> HorsiesError:
        return self.draft.node_error(self.index, code, text, help_text)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value


def fits(source: Any, target: Any) -> bool:
    """Whether a `source` fits a `target`."""
    source, target = _bare(source), _bare(target)
    if _is_open(source) or _is_open(target) or source == target:
        return True
    if _is_union(source):
        return all(fits(part, target) for part in get_args(source))
    if _is_union(target):
        return any(fits(source, part) for part in get_args(target))
    if get_origin(source) is Literal:
        return all(fits(type(value), target) for value in get_args(source))
    if get_origin(target) is Literal:
        return fits(source, type(get_args(target)[0]))
    return _classes_fit(source, target)


def form_of(annotation: Any, source: Node[Any]) -> plan.Form | None:
    """What a parameter with this annotation takes of a source: the whole result if it accepts that, else the value. The
    value of a map is a list of results; a list of anything else takes the values in them. None if nothing fits."""
    gives = plan.type_of(source)
    if any(fits(gives, each) for each in results_in(annotation)):
        return "result"
    element = element_of(annotation)
    if isinstance(source, MapNode) and not (element and results_in(element[0])):
        values = _value_in((element_of(gives) or (Any,))[0])
        return "values" if fits(list[values], annotation) else None  # type: ignore[valid-type]
    return "value" if fits(gives, annotation) else None


def results_in(annotation: Any) -> list[Any]:
    """The types `T` of every `TaskResult[T, ...]` that the annotation accepts; none if it accepts no result."""
    annotation = _bare(annotation)
    if _is_union(annotation):
        return [found for part in get_args(annotation) for found in results_in(part)]
    if annotation is TaskResult:
        return [Any]
    return [get_args(annotation)[0]] if get_origin(annotation) is TaskResult else []


def _value_in(result: Any) -> Any:
    """`T` of a `TaskResult[T, TaskError]`."""
    return (results_in(result) or [Any])[0]


def element_of(annotation: Any) -> tuple[Any] | None:
    """The type of the elements if its values are lists in JSON; None if they are not."""
    annotation = _bare(annotation)
    if _is_open(annotation):
        return (Any,)
    if _is_union(annotation):
        found = [element_of(part) for part in get_args(annotation) if part is not type(None)]
        return found[0] if found and None not in found else None
    origin, given = get_origin(annotation) or annotation, get_args(annotation)
    # Some iterable types are not lists: a model, for example, or a text.
    if not isinstance(origin, type) or not (_is_subclass(origin, _ARRAYS) or origin in _ABSTRACT_ARRAYS):
        return None
    if not given:
        return (Any,)
    if origin is tuple and not (len(given) == 2 and given[1] is Ellipsis):
        return (typing.Union[given],)  # noqa: UP007  the members are only known here
    return (given[0],)


def shown(annotation: Any) -> str:
    """An annotation as one would write it."""
    if annotation is type(None):
        return "None"
    plain = isinstance(annotation, type) and not get_args(annotation)
    return annotation.__qualname__ if plain else _MODULES.sub("", str(annotation))


def _classes_fit(source: Any, target: Any) -> bool:
    ours, theirs = get_origin(source) or source, get_origin(target) or target
    if not isinstance(ours, type) or not isinstance(theirs, type):
        return True
    if not _is_subclass(ours, theirs):
        return (ours, theirs) in _PROMOTED
    mine, wanted = get_args(source), get_args(target)
    if not mine or not wanted:
        return True
    if ours is tuple or theirs is tuple:
        return _tuples_fit(mine, wanted) if ours is theirs else True
    if ours is TaskResult:
        return fits(mine[0], wanted[0])
    return len(mine) != len(wanted) or all(map(fits, mine, wanted))


def _tuples_fit(mine: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    if Ellipsis in wanted:
        return all(fits(part, wanted[0]) for part in mine if part is not Ellipsis)
    return Ellipsis in mine or (len(mine) == len(wanted) and all(map(fits, mine, wanted)))


def _bare(annotation: Any) -> Any:
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return type(None) if annotation is None else annotation


def _is_open(annotation: Any) -> bool:
    return annotation is Any or annotation is object or isinstance(annotation, TypeVar | str)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (typing.Union, types.UnionType)


def _is_subclass(kind: type, other: Any) -> bool:
    try:
        return issubclass(kind, other)
    except TypeError:  # a protocol with attributes, or something that only looks like a class
        return True
