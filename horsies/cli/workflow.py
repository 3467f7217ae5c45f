"""`horsies workflow list|show|pause|resume|cancel|retry`: find, show and control workflows. `horsies recover-workflows`
repairs stuck ones (M-10, R-37). A workflow is shown as a tree for people and as JSON for programs: its nodes, with the
elements of maps and the nodes of child workflows below them.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from horsies.cli import options, output, session
from horsies.core import locate
from horsies.core.app import Horsies
from horsies.core.codec.serde import task_result_from_json
from horsies.core.errors import ConfigurationError, HorsiesError
from horsies.core.models.base import A_YEAR_MS
from horsies.core.models.monitoring.tasks import to_jsonable
from horsies.core.models.workflow.results import HandleErrorCode, HandleResult
from horsies.core.recovery.reconcile import recover_stuck_workflows_sync
from horsies.core.store.workflow_reads import NodeRow, WorkflowRow
from horsies.core.text import visible
from horsies.core.types import Err, Ok, WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows import control, read
from horsies.core.workflows.handle import WorkflowHandle
from horsies.core.workflows.read import WorkflowFamily
from horsies.monitoring import list_workflow_runs

T = TypeVar("T")
MOST_ELEMENTS = 20
LONGEST_ERROR = 160

STYLES = {
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CANCELLED": "red",
    "RUNNING": "yellow",
    "PAUSED": "bold yellow",
    "ENQUEUED": "cyan",
    "READY": "cyan",
    "PENDING": "dim",
    "SKIPPED": "dim",
}

# If a map has many elements, those in the first of these states are shown.
_URGENCY = (
    WorkflowTaskStatus.FAILED,
    WorkflowTaskStatus.RUNNING,
    WorkflowTaskStatus.ENQUEUED,
    WorkflowTaskStatus.READY,
    WorkflowTaskStatus.PENDING,
    WorkflowTaskStatus.SKIPPED,
    WorkflowTaskStatus.COMPLETED,
)

What: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="[MODULE] ID", help="The app, unless --database-url or DATABASE_URL is used, and the id."),
]

workflow = typer.Typer(
    help="List and show workflows; pause, resume, cancel or retry one.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@workflow.command("list", epilog=options.epilog("workflow list"))
def list_them(
    module: options.OptionalModule = None,
    name: Annotated[str | None, typer.Option(help="Only workflows with this name.")] = None,
    status: Annotated[
        WorkflowStatus | None,
        typer.Option("--status", "-s", case_sensitive=False, help="Only workflows in this state."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List workflows: active ones first, newest first; then ended ones, last ended first. Times are UTC."""
    with session.open_read_only(module, database_url) as app:
        asked = list_workflow_runs(app.get_broker(), name=name, status=status, limit=limit)
        found = session.answer_of(asyncio.run(asked), app)
    if as_json:
        output.print_json({"workflows": to_jsonable(found)})
        return 0
    titles = ["workflow", "name", "status", "open nodes", "started", "ended", "error"]
    rows = [
        [run.workflow_id, run.name, run.status.value, run.open_nodes, run.started_at, run.completed_at, run.error_code]
        for run in found
    ]
    output.print_table(titles, rows)
    return 0


@workflow.command(epilog=options.epilog("workflow show"))
def show(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Print the nodes of a workflow and of its child workflows, with their states, durations and errors."""
    with _found(what, database_url, looks=True) as found:
        family = found.family()
    if as_json:
        output.print_json(as_json_tree(family))
    else:
        output.write_styled(*as_lines(family))
    return 0


@workflow.command(epilog=options.epilog("workflow pause"))
def pause(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Start no more nodes of a workflow and its child workflows until it is resumed. Running tasks may finish."""
    with _found(what, database_url) as found:
        return _say(found, found.value(found.handle.pause()), "paused", as_json)


@workflow.command(epilog=options.epilog("workflow resume"))
def resume(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Let a paused workflow continue."""
    with _found(what, database_url, with_code=True) as found:
        found.refuse_without_app(WorkflowTaskStatus.PENDING, WorkflowTaskStatus.READY)
        return _say(found, found.value(found.handle.resume()), "resumed", as_json)


@workflow.command(epilog=options.epilog("workflow cancel"))
def cancel(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Cancel a workflow and its child workflows: nodes that have not started never will; running tasks may finish."""
    with _found(what, database_url, with_code=True) as found:
        was = found.value(found.handle.status())
        found.value(found.handle.cancel())
        return _say(found, not was.is_terminal, "cancelled", as_json)


@workflow.command(epilog=options.epilog("workflow retry"))
def retry(
    what: What,
    node: Annotated[
        list[str] | None, typer.Option("--node", metavar="NODE_ID", help="Only this node; can be given several times.")
    ] = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Run the failed nodes of a workflow again, and then the nodes that were skipped because of them."""
    with _found(what, database_url, with_code=True) as found:
        found.refuse_without_app(WorkflowTaskStatus.FAILED, WorkflowTaskStatus.SKIPPED)
        again = partial(control.ask_retry, node_ids=node or None)
        retried = found.value(read.run(found.app.get_broker(), found.workflow_id, again))
        return _say(found, retried, "retried", as_json)


def recover_workflows(
    module: options.OptionalModule = None,
    grace: Annotated[
        int,
        typer.Option("--grace-ms", min=0, max=A_YEAR_MS, help="Ignore everything that ended less than this time ago."),
    ] = 10_000,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """Make the missing steps of workflows that are stuck because a process died at the wrong moment. Workers do this
    automatically; use this command if no worker is running."""
    with session.open_app(module, database_url, with_hooks=True) as app:
        moved = session.value_of(recover_stuck_workflows_sync(app.get_broker(), grace), app)
    if as_json:
        output.print_json({"recovered_count": moved})
    elif moved:
        output.write(f"{output.count(moved, 'step')} taken for nodes and workflows that were stuck")
    else:
        output.write("no workflow is stuck")
    return 0


@dataclass(frozen=True, slots=True)
class _Found:
    """The workflow a command is about."""

    app: Horsies
    workflow_id: str
    has_module: bool

    @property
    def handle(self) -> WorkflowHandle[object]:
        return WorkflowHandle(self.workflow_id, self.app.get_broker())

    def value(self, result: HandleResult[T]) -> T:
        """The value of a result; a failure ends the command."""
        if isinstance(result, Err) and result.err_value.code is HandleErrorCode.WORKFLOW_NOT_FOUND:
            raise HorsiesError(visible(result.err_value.message))
        return session.value_of(result, self.app)

    def family(self) -> WorkflowFamily:
        return self.value(read.run(self.app.get_broker(), self.workflow_id, read.ask_family))

    def refuse_without_app(self, *states: WorkflowTaskStatus) -> None:
        """Refuse to continue without an app if child workflows may have to be built, because only the app's code can
        build them."""
        if self.has_module:
            return
        stopped = [node for node in self.family().nodes if node.node_type == "SUBWORKFLOW" and node.status in states]
        if stopped:
            raise output.usage_error(
                f"node {stopped[0].node_id!r} is a child workflow, which only the app can build",
                f"name the app: MODULE {self.workflow_id}",
            )


@contextmanager
def _found(
    what: list[str], database_url: str | None, *, with_code: bool = False, looks: bool = False
) -> Iterator[_Found]:
    """Open the workflow, to read it or to control it; the modules of the app are imported if child workflows may have
    to be built."""
    if len(what) > 2:
        raise output.usage_error(
            visible(f"one workflow at a time: {' '.join(what)}"), "horsies workflow show [MODULE] ID"
        )
    module = what[0] if len(what) == 2 else None
    try:
        opening = (
            session.open_read_only(module, database_url)
            if looks
            else session.open_app(module, database_url, with_hooks=with_code)
        )
        with opening as app:
            yield _Found(app, what[-1], module is not None)
    except ConfigurationError as problem:
        if locate.is_not_found(problem):
            problem.with_note(f"the first word, {module!r}, was read as the app")
        raise


def _say(found: _Found, changed: bool, done: str, as_json: bool) -> int:
    status = found.value(found.handle.status())
    if as_json:
        output.print_json({"workflow_id": found.workflow_id, "changed": changed, "status": status})
    elif changed:
        output.write(f"workflow {found.workflow_id} was {done}; it is {status}")
    else:
        output.say(f"workflow {found.workflow_id} was not {done}: it is {status}")
    return 0 if changed else 1


def as_lines(family: WorkflowFamily) -> "list[output.Line]":
    """The tree, a line for each node."""
    lines = list(_Tree(family).lines())
    width = max(len(line.lead) + len(line.name) for line in lines)
    times = [_time(line.seconds) for line in lines]
    longest = max(map(len, times))
    found = []
    for line, time in zip(lines, times, strict=True):
        text = output.styled(
            (line.lead, "dim"),
            (line.name.ljust(width - len(line.lead)), "default"),
            (f"  {line.status:<9}", STYLES.get(line.status, "default")),
            (f"  {time:>{longest}}", "default"),
            *((f"  {remark}", style) for remark, style in line.remarks),
        )
        text.rstrip()
        found.append(text)
    return found


def as_json_tree(family: WorkflowFamily) -> dict[str, Any]:
    """The same as plain values, complete."""
    tree = _Tree(family)
    return tree.workflow_values(family.workflows[0])


def error_text(result: str | None) -> str | None:
    """The text of a stored error result, on one line; None if the result is not an error."""
    if result is None:
        return None
    read = task_result_from_json(result)
    if not isinstance(read, Ok) or read.value.err is None:
        return None
    error = read.value.err
    return " ".join(": ".join(part for part in (error.code, error.message) if part).split()) or None


@dataclass(frozen=True, slots=True)
class _Line:
    """One row of the tree, before its columns are aligned."""

    lead: str  # the branches to the left of the name
    name: str
    status: str
    seconds: float | None
    remarks: Sequence[tuple[str, str]]  # text and style


class _Tree:
    def __init__(self, family: WorkflowFamily) -> None:
        self._top = family.workflows[0]
        self._workflows = {workflow.id: workflow for workflow in family.workflows}
        self._nodes: dict[str, list[NodeRow]] = {}
        self._elements: dict[tuple[str, int], list[NodeRow]] = {}
        for node in family.nodes:
            if node.map_index is None:
                self._nodes.setdefault(node.workflow_id, []).append(node)
            else:
                self._elements.setdefault((node.workflow_id, node.map_index), []).append(node)

    def lines(self) -> Iterator[_Line]:
        top = self._top
        remarks = [(top.id, "dim")]
        if top.error_code is not None and top.status is WorkflowStatus.FAILED:
            remarks.append((_cut(error_text(top.error and f'{{"err":{top.error}}}') or top.error_code), "red"))
        yield _Line("", visible(top.name), top.status, top.seconds, remarks)
        yield from self._branches(top.id, "")

    def _branches(self, workflow_id: str, lead: str) -> Iterator[_Line]:
        nodes = self._nodes.get(workflow_id, [])
        ids = {node.task_index: node.node_id for node in nodes}
        for node in nodes:
            is_last = node is nodes[-1]
            yield self._line(node, lead + ("└─ " if is_last else "├─ "), ids)
            yield from self._below(node, lead + ("   " if is_last else "│  "))

    def _below(self, node: NodeRow, lead: str) -> Iterator[_Line]:
        if node.sub_workflow_id is not None:
            yield from self._branches(node.sub_workflow_id, lead)
        elements = self._elements.get((node.workflow_id, node.task_index), [])
        shown = sorted(elements, key=lambda element: (_URGENCY.index(element.status), element.task_index))
        shown, rest = shown[:MOST_ELEMENTS], shown[MOST_ELEMENTS:]
        shown.sort(key=lambda element: element.task_index)
        for element in shown:
            is_last = element is shown[-1] and not rest
            yield self._line(element, lead + ("└─ " if is_last else "├─ "), {})
        if rest:
            counts = Counter(element.status.value for element in rest)
            told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
            yield _Line(lead + "└─ ", f"… {len(rest)} more", "", None, [(told, "dim")])

    def _line(self, node: NodeRow, lead: str, ids: dict[int, str]) -> _Line:
        remarks = []
        if node.node_type == "SUBWORKFLOW":
            remarks.append((f"workflow {node.sub_workflow_id or node.task_name}", "dim"))
        elif node.node_type == "MAP":
            elements = self._elements.get((node.workflow_id, node.task_index), [])
            done = sum(element.status is WorkflowTaskStatus.COMPLETED for element in elements)
            remarks.append((f"map {done}/{len(elements)}", "dim"))
        if node.status is WorkflowTaskStatus.FAILED:
            remarks.append((_cut(error_text(node.result) or node.error_code or "no result"), "red"))
        if node.previous_task_ids:
            remarks.append((f"run {len(node.previous_task_ids) + 1}", "yellow"))
        if node.dependencies:
            remarks.append(("← " + ", ".join(ids.get(index, str(index)) for index in node.dependencies), "dim"))
        return _Line(lead, visible(node.node_id), node.status, node.seconds, remarks)

    def workflow_values(self, workflow: WorkflowRow) -> dict[str, Any]:
        nodes = self._nodes.get(workflow.id, [])
        ids = {node.task_index: node.node_id for node in nodes}
        return {
            "id": workflow.id,
            "name": workflow.name,
            "definition_key": workflow.definition_key,
            "status": workflow.status,
            "error_code": workflow.error_code,
            "error": error_text(workflow.error and f'{{"err":{workflow.error}}}'),
            "sent_at": workflow.sent_at,
            "started_at": workflow.started_at,
            "paused_at": workflow.paused_at,
            "completed_at": workflow.completed_at,
            "good_until": workflow.good_until,
            "seconds": workflow.seconds,
            "nodes": [self._node_values(node, ids) for node in nodes],
        }

    def _node_values(self, node: NodeRow, ids: dict[int, str]) -> dict[str, Any]:
        values: dict[str, Any] = {
            "node_id": node.node_id,
            "index": node.task_index,
            "type": node.node_type,
            "name": node.task_name,
            "status": node.status,
            "error_code": node.error_code,
            "error": error_text(node.result),
            "waits_for": [ids.get(index, str(index)) for index in node.dependencies],
            "task_id": node.task_id,
            "previous_task_ids": list(node.previous_task_ids),
            "started_at": node.started_at,
            "completed_at": node.completed_at,
            "seconds": node.seconds,
        }
        if node.node_type == "MAP":
            elements = self._elements.get((node.workflow_id, node.task_index), [])
            values["elements"] = [self._node_values(element, {}) for element in elements]
        if node.node_type == "SUBWORKFLOW":
            child = self._workflows.get(node.sub_workflow_id or "")
            values["workflow"] = None if child is None else self.workflow_values(child)
        return values


def _cut(text: str) -> str:
    text = visible(text)
    return text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else output.duration(seconds)
