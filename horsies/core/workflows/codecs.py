"""The type that decodes the result of a node: that of its task, of its child workflow's output, or the list of a map.
Unknown types give plain JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from horsies.core.codec.results import ResultCodec
from horsies.core.definition import TaskDefinition
from horsies.core.errors import HorsiesError
from horsies.core.models.workflow.nodes import TaskNode
from horsies.core.store.workflow_reads import StoredNode
from horsies.core.workflows import registry

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import KnowsTasks
    from horsies.core.models.workflow.spec import WorkflowSpec


class NodeCodecs:
    """The codecs of the nodes of one workflow, from the tasks of the app and those of its spec."""

    def __init__(self, app: KnowsTasks | None, spec: WorkflowSpec[Any] | None) -> None:
        self._app = app
        self._spec = spec
        self._tasks: Mapping[str, TaskDefinition[..., Any]] | None = None
        self._found: dict[tuple[str, str], ResultCodec | None] = {}

    def of(self, node: StoredNode) -> ResultCodec | None:
        """The codec for the result of this node; None if its type is not known here."""
        key = (node.node_type, node.sub_workflow_key or node.task_name)
        if key not in self._found:
            self._found[key] = self._find(node)
        return self._found[key]

    def _find(self, node: StoredNode) -> ResultCodec | None:
        try:
            if node.node_type == "SUBWORKFLOW":
                definition = registry.find(node.sub_workflow_key or "")
                return None if definition is None else definition.output_codec()
            if (task := self._known().get(node.task_name)) is None:
                return None
            if node.node_type != "MAP":
                return task.codec.result
            of_element: Any = task.codec.signature.returns
            return ResultCodec(list[of_element])
        except (HorsiesError, PydanticUserError, SchemaError):  # a type that cannot be resolved here
            return None

    def _known(self) -> Mapping[str, TaskDefinition[..., Any]]:
        if self._tasks is None:
            nodes = () if self._spec is None else self._spec.tasks
            of_spec = {node.name: node.fn for node in nodes if isinstance(node, TaskNode)}
            self._tasks = {**({} if self._app is None else self._app.tasks), **of_spec}
        return self._tasks
