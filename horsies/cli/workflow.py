"""`horsies workflow list|show|pause|resume|cancel|retry`: find, show and control workflows. `horsies recover-workflows`
repairs stuck ones (M-10, R-37). `workflow_tree.py` says how a workflow is shown.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias, TypeVar

import typer

from horsies.cli import options, output, project, session, tables
from horsies.cli.tables import Column
from horsies.cli.workflow_tree import STYLES, as_json_tree, as_lines
from horsies.core import locate
from horsies.core.app import Horsies
from horsies.core.errors import ConfigurationError, HorsiesError
from horsies.core.models.base import A_YEAR_MS
from horsies.core.models.monitoring.tasks import to_jsonable
from horsies.core.models.workflow.results import HandleErrorCode, HandleResult
from horsies.core.recovery.reconcile import recover_stuck_workflows_sync
from horsies.core.text import visible
from horsies.core.types import Err, WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows import control, read
from horsies.core.workflows.handle import WorkflowHandle
from horsies.core.workflows.read import WorkflowFamily
from horsies.monitoring import list_workflow_runs

T = TypeVar("T")

What: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="[MODULE] ID", help="The app, unless --database-url or DATABASE_URL is used, and the id."),
]

_COLUMNS = (
    Column("workflow", lambda run: run.workflow_id),
    Column("name", lambda run: run.name, folds=True),
    Column("status", lambda run: output.styled((run.status.value, STYLES.get(run.status.value, "default")))),
    Column("open nodes", lambda run: run.open_nodes, leaves=1),
    Column("started", lambda run: run.started_at, leaves=2),
    Column("ended", lambda run: run.completed_at, leaves=3),
    Column("error", lambda run: run.error_code, folds=True),
)

workflow = typer.Typer(
    help="List and show workflows; pause, resume, cancel or retry one.",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@workflow.command("list", short_help="List workflows, active ones first.", epilog=options.epilog("workflow list"))
def list_them(
    module: options.OptionalModule = None,
    name: Annotated[str | None, typer.Option(help="Only workflows with this name.")] = None,
    status: Annotated[
        WorkflowStatus | None,
        typer.Option("--status", "-s", case_sensitive=False, help="Only workflows in this state."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many.")] = 50,
    wide: options.Wide = False,
    columns: options.Columns = None,
    as_json: options.AsJson = False,
    database_url: options.DatabaseUrl = None,
) -> int:
    """List workflows: active ones first, newest first; then ended ones, last ended first. Times are UTC."""
    table = tables.chosen(_COLUMNS, columns, wide=wide, is_table=not as_json)
    with session.open_read_only(module, database_url) as app:
        asked = list_workflow_runs(app.get_broker(), name=name, status=status, limit=limit)
        found = session.answer_of(asyncio.run(asked), app)
    if as_json:
        output.print_json({"workflows": to_jsonable(found)})
    elif found:
        output.print_rows(table, found)
    else:
        output.write("no workflow matches")
    return 0


@workflow.command(short_help="Show its nodes, with task ids and errors.", epilog=options.epilog("workflow show"))
def show(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Print the nodes of a workflow and of its child workflows, with their states, durations, task ids and errors."""
    with _found(what, database_url, looks=True) as found:
        family = found.family()
    if as_json:
        output.print_json(as_json_tree(family))
    else:
        output.write_styled(*as_lines(family, output.room()))
    return 0


@workflow.command(short_help="Start no more nodes until it is resumed.", epilog=options.epilog("workflow pause"))
def pause(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Start no more nodes of a workflow and its child workflows until it is resumed. Running tasks may finish."""
    with _found(what, database_url) as found:
        return _say(found, found.value(found.handle.pause()), "paused", as_json)


@workflow.command(short_help="Let a paused workflow continue.", epilog=options.epilog("workflow resume"))
def resume(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Let a paused workflow continue."""
    with _found(what, database_url, with_code=True) as found:
        found.refuse_without_app(WorkflowTaskStatus.PENDING, WorkflowTaskStatus.READY)
        return _say(found, found.value(found.handle.resume()), "resumed", as_json)


@workflow.command(short_help="Cancel a workflow and its child workflows.", epilog=options.epilog("workflow cancel"))
def cancel(what: What, as_json: options.AsJson = False, database_url: options.DatabaseUrl = None) -> int:
    """Cancel a workflow and its child workflows: nodes that have not started never will; running tasks may finish."""
    with _found(what, database_url, with_code=True) as found:
        was = found.value(found.handle.status())
        found.value(found.handle.cancel())
        return _say(found, not was.is_terminal, "cancelled", as_json)


@workflow.command(short_help="Run the failed nodes of a workflow again.", epilog=options.epilog("workflow retry"))
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
    if module is None and database_url is None:
        module = project.named_app()
    try:
        opening = (
            session.open_read_only(module, database_url)
            if looks
            else session.open_app(module, database_url, with_hooks=with_code)
        )
        with opening as app:
            yield _Found(app, what[-1], module is not None)
    except ConfigurationError as problem:
        if locate.is_not_found(problem) and module == what[0]:
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
