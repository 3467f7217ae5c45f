"""Workflows as classes: the nodes are attributes, an inner `Meta` has the options (F-04), and `build_with` may take
parameters (F-05).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, ForwardRef, Generic, TypeVar, get_args, get_origin

from horsies.core.codec import arguments
from horsies.core.codec.shapes import ResultCodec
from horsies.core.errors import ErrorCode, SourceLocation, WorkflowValidationError
from horsies.core.models.workflow import input_checks, registry, results
from horsies.core.models.workflow.nodes import Node, placed
from horsies.core.models.workflow.spec import WorkflowSpec

if TYPE_CHECKING:
    from horsies.core.app import Horsies

T_co = TypeVar("T_co", covariant=True)


class WorkflowDefinition(Generic[T_co]):
    """A workflow as a class. `T_co` is the type of its output; without an output it is None."""

    name: ClassVar[str] = ""
    definition_key: ClassVar[str] = ""
    location: ClassVar[SourceLocation | None] = None
    _nodes: ClassVar[dict[str, Node[Any]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.location = SourceLocation.of_caller()
        cls._nodes = _own_copies(cls)
        for attribute, node in cls._nodes.items():
            setattr(cls, attribute, node)
        if "build_with" in cls.__dict__:
            cls.build_with = classmethod(_with_key(cls, cls.__dict__["build_with"]))  # type: ignore[method-assign, assignment]
        if "<locals>" in cls.__qualname__ and cls.takes_parameters():
            registry.prepare(cls, arguments.names_around())
        if isinstance(cls.definition_key, str) and cls.definition_key:
            registry.register(cls)

    @classmethod
    def build(cls, app: Horsies) -> WorkflowSpec[T_co]:
        """The workflow of the nodes of this class."""
        meta = getattr(cls, "Meta", None)
        return WorkflowSpec(
            cls.name,
            list(cls._nodes.values()),
            getattr(meta, "on_error", results.OnError.FAIL),
            getattr(meta, "output", None),
            getattr(meta, "success_policy", None),
            definition_key=cls.definition_key,
            app=app,
            location=cls.location,
            declared=(cls.declared_type(),),
        )

    @classmethod
    def build_with(cls, app: Horsies, *args: Any, **params: Any) -> WorkflowSpec[T_co]:
        """The workflow for some parameters. Override this method to accept parameters. It is called again for each run,
        and must give the same nodes for the same parameters."""
        if args or params:
            raise WorkflowValidationError(
                f"workflow {cls.__qualname__} takes no parameters",
                code=ErrorCode.WORKFLOW_SUBWORKFLOW_PARAMS_REQUIRE_BUILD_WITH,
                location=SourceLocation.of_caller(),
                help_text="override the class method build_with(cls, app, ...) to accept parameters",
            )
        return cls.build(app)

    @classmethod
    def takes_parameters(cls) -> bool:
        """Whether `build_with` is overridden."""
        return cls.build_with.__func__ is not WorkflowDefinition.build_with.__func__  # type: ignore[attr-defined]

    @classmethod
    def nodes(cls) -> tuple[Node[Any], ...]:
        """The nodes in the order of their definition."""
        return tuple(cls._nodes.values())

    @classmethod
    def declared_type(cls) -> Any:
        """The type of the output as the class declares it; `Any` if it is not declared, or not known yet."""
        for kind in cls.__mro__:
            for base in kind.__dict__.get("__orig_bases__", ()):
                origin, given = get_origin(base), get_args(base)
                if isinstance(origin, type) and issubclass(origin, WorkflowDefinition) and len(given) == 1:
                    if isinstance(given[0], TypeVar):
                        continue
                    return Any if isinstance(given[0], str | ForwardRef) else given[0]
        return Any

    @classmethod
    def output_type(cls) -> Any:
        """The type of its result as a node: that of its output node, or else the declared type."""
        output = getattr(getattr(cls, "Meta", None), "output", None)
        if not isinstance(output, Node):
            node_id = getattr(output, "node_id", output)
            output = next((node for node in cls.nodes() if node.node_id == node_id), None)
        return cls.declared_type() if output is None else output.ok_type()

    @classmethod
    def output_codec(cls) -> ResultCodec:
        """The codec that decodes its result as a node."""
        return ResultCodec(cls.output_type())


def _own_copies(cls: type[WorkflowDefinition[Any]]) -> dict[str, Node[Any]]:
    """The nodes among the attributes, inherited ones first, each with the name it has here."""
    found: dict[str, Node[Any]] = {}
    for kind in reversed(cls.__mro__):
        for name, value in vars(kind).items():
            if isinstance(value, Node):
                found[name] = value
            else:
                found.pop(name, None)
    # The class that defined an inherited node has named it; only an id of its origin was given by the user.
    ids = [node.origin.given_id or name for name, node in found.items()]
    return dict(zip(found, placed(list(found.values()), ids), strict=True))


def _with_key(cls: type[WorkflowDefinition[Any]], method: Any) -> Callable[..., Any]:
    """The method, which gives its specs the key of the class and checks what it returns."""
    if not isinstance(method, classmethod):
        raise WorkflowValidationError(
            f"workflow {cls.__qualname__}: build_with must be a class method",
            code=ErrorCode.WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING,
            location=cls.location,
            help_text="@classmethod\ndef build_with(cls, app, ...): ...",
        )
    inner: Callable[..., Any] = method.__func__

    @functools.wraps(inner)
    def build_with(cls: type[WorkflowDefinition[Any]], *args: Any, **params: Any) -> Any:
        with registry.building(cls.definition_key or None):
            spec = inner(cls, *args, **params)
        _check_built(cls, spec, SourceLocation.from_function(inner))
        return spec

    return build_with


def _check_built(cls: type[WorkflowDefinition[Any]], spec: Any, location: SourceLocation | None) -> None:
    if inspect.iscoroutine(spec):
        spec.close()  # nobody will await it
    if not isinstance(spec, WorkflowSpec):
        raise WorkflowValidationError(
            f"workflow {cls.__qualname__}: build_with returned {type(spec).__name__}, not a WorkflowSpec",
            code=ErrorCode.WORKFLOW_SUBWORKFLOW_BUILD_WITH_BINDING,
            location=location,
        )
    if problem := input_checks.output_problem(spec.output, cls.declared_type()):
        raise WorkflowValidationError(
            f"workflow {spec.name!r}: {problem}", code=ErrorCode.WORKFLOW_OUTPUT_TYPE_MISMATCH, location=location
        )
