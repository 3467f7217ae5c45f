"""The part of an application that makes workflows: `app.workflow(...)`, and the builders that `horsies check` calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from horsies.core.errors import SourceLocation, misuse
from horsies.core.text import explains_keywords

if TYPE_CHECKING:
    from typing import TypeAlias

    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.models.app import AppConfig
    from horsies.core.models.tasks import TaskError, TaskResult
    from horsies.core.models.workflow import nodes, results, spec

    # A workflow without an output returns the results of all its nodes by their ids.
    NodeResults: TypeAlias = dict[str, TaskResult[Any, TaskError] | None]

T = TypeVar("T")
F = TypeVar("F", bound="Callable[..., spec.WorkflowSpec[Any]]")
BUILDER_MARK = "__horsies_workflow_builder__"


@dataclass(frozen=True, slots=True)
class WorkflowBuilder:
    """A function that builds a workflow, and the arguments with which a check calls it."""

    fn: Callable[..., Any]
    cases: tuple[Any, ...] | None

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "__qualname__", self.fn))

    @property
    def location(self) -> SourceLocation | None:
        return SourceLocation.from_function(inspect.unwrap(self.fn))


class MakesWorkflows:
    """The methods of `Horsies` for workflows."""

    config: AppConfig

    def __init__(self) -> None:
        self._builders: list[WorkflowBuilder] = []

    def get_broker(self) -> PostgresBroker:
        raise NotImplementedError

    @cached_property
    def workflow_starter(self) -> spec.SpecStarter:
        """The object that starts the workflows of this app."""
        from horsies.core.workflows.start import WorkflowStarter

        return WorkflowStarter(self.get_broker, resend=self.config.resend_on_transient_err)

    @overload
    def workflow(
        self,
        name: str,
        tasks: Iterable[nodes.Node[Any]],
        on_error: results.OnError | str = "fail",
        output: None = None,
        success_policy: nodes.SuccessPolicy | None = None,
        *,
        definition_key: str | None = None,
    ) -> spec.WorkflowSpec[NodeResults]: ...
    @overload
    def workflow(
        self,
        name: str,
        tasks: Iterable[nodes.Node[Any]],
        on_error: results.OnError | str = "fail",
        output: nodes.Node[T] | nodes.NodeKey[T] | None = None,
        success_policy: nodes.SuccessPolicy | None = None,
        *,
        definition_key: str | None = None,
    ) -> spec.WorkflowSpec[T]: ...
    @explains_keywords
    def workflow(
        self,
        name: str,
        tasks: Iterable[nodes.Node[Any]],
        on_error: results.OnError | str = "fail",
        output: nodes.Node[Any] | nodes.NodeKey[Any] | None = None,
        success_policy: nodes.SuccessPolicy | None = None,
        *,
        definition_key: str | None = None,
    ) -> spec.WorkflowSpec[Any]:
        """Make a workflow of these nodes, and check it. Workers find it by its `definition_key`; inside a `build_with`,
        the key is that of the class."""
        from horsies.core.models.workflow import spec

        return spec.WorkflowSpec(name, tasks, on_error, output, success_policy, definition_key=definition_key, app=self)

    @overload
    def workflow_builder(self, fn: F, /) -> F: ...
    @overload
    def workflow_builder(self, /, *, cases: Sequence[Mapping[str, Any]] | None = None) -> Callable[[F], F]: ...
    def workflow_builder(self, fn: Any = None, /, *, cases: Sequence[Mapping[str, Any]] | None = None) -> Any:
        """Mark a function that builds a workflow. `horsies check` calls it once if it needs no arguments, otherwise
        once for each dict of arguments in `cases`."""

        def note(fn: F) -> F:
            if not callable(fn):
                raise misuse(f"a workflow builder is a function, not {type(fn).__name__}")
            setattr(fn, BUILDER_MARK, True)
            self._builders.append(WorkflowBuilder(fn, None if cases is None else tuple(cases)))
            return fn

        return note if fn is None else note(fn)

    def get_workflow_builders(self) -> list[WorkflowBuilder]:
        """The functions marked with `workflow_builder`."""
        return list(self._builders)
