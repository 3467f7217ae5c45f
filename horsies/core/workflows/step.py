"""One step of the engine: one transaction that locks some workflows, reads what has happened to their nodes, decides in
memory (`settle.py`), and writes the decisions (F-70, F-71).

Many workflows and nodes share a step. Two things must not happen under its locks: building child workflows, and telling
parents that their children have ended. The step leaves both to its caller (`advance.py`) in the `StepResult`.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg

from horsies.core.db import Connection, Connections, in_one_go
from horsies.core.models.codes import OperationalErrorCode
from horsies.core.models.workflow.registry import InputError
from horsies.core.producer.enqueue import new_task_ids
from horsies.core.store import workflows
from horsies.core.store.workflows import Closing, EndedNodeRow, Flow, FlowNode, Key, NewTask, Payload, Source
from horsies.core.types import TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.core.workflows import finish, inputs, layout
from horsies.core.workflows.finish import SKIPPED, NodeEnd, conclude, deciding, end_of_child, end_of_map, end_of_task
from horsies.core.workflows.settle import FlowState, Settling

MOST = 1_000  # nodes enqueued by one step; the rest stay READY for the next
AT_FIRST = 16  # nodes read at first, then ever more, because their inputs may be large
ENOUGH_BYTES = 8 << 20  # of arguments that one step writes
FARTHEST = 255
OPEN = ("PENDING", "READY", "ENQUEUED", "RUNNING")
NOTHING: Mapping[Key, str] = {}
UNFINISHED = ("PENDING", "RUNNING", "PAUSED")  # workflows


class StepBroken(RuntimeError):
    """The rows are not as the locks promise: nothing is written, and the next try finds out more."""


class MustBeAlone(Exception):
    """One of the workflows must be paused with its children, which are locked after their parents: no other workflow
    may be locked at the same time (D-63). Nothing is written; smaller steps are used instead."""


@dataclass(slots=True)
class StepResult:
    """What is to be done after the commit of a step, and how much it has done."""

    tasks: dict[str, str] = field(default_factory=dict)  # tasks that were too much for one step, with their workflows
    children: list[str] = field(default_factory=list)  # workflows that ended, and whose parents are to be told
    # Workflows with READY nodes that are not enqueued yet, and how many of them the next step tries (None: `MOST`).
    flows: dict[str, int | None] = field(default_factory=dict)
    builds: list[Key] = field(default_factory=list)  # sub-workflow nodes that are READY
    enqueued: int = 0  # tasks
    is_claimed: bool = False  # the transaction has also claimed what was waiting
    nodes: int = 0
    workflows: int = 0


@asynccontextmanager
async def transaction(pool: Connections) -> AsyncIterator[Connection]:
    """The transaction of one step. Statements that do not need the reply to the previous one are sent together with
    it, and the commit together with the last of them: whoever leaves this block without an exception has committed."""
    async with pool.connection() as conn:
        try:
            async with in_one_go(conn):
                yield conn
        except psycopg.Error as problem:
            if (what := workflows.broken(problem)) is not None:
                raise StepBroken(what) from problem
            raise


class Step:
    """Used inside a transaction: `Step(conn, flows)` with locked workflows, then what happened, then `finish()`.

    `most`: at most this many nodes are enqueued (`MOST`). `refused`: nodes that the database refuses to enqueue, with
    its reason: they fail. `is_tree`: the workflows are one workflow with all its children, whose changes are already
    known.
    """

    def __init__(
        self,
        conn: Connection,
        flows: Collection[Flow],
        most: int | None = None,
        refused: Mapping[Key, str] = NOTHING,
        *,
        is_tree: bool = False,
    ) -> None:
        self.conn = conn
        self.settling = Settling(flows)
        self.result = StepResult()
        self._most = MOST if most is None else most
        self._bytes = 0
        self._refused = refused
        self.enqueued: list[Key] = []  # nodes that this step wants to write tasks, or elements, for
        self._is_tree = is_tree
        self._tasks: list[NewTask] = []
        self._elements: list[dict[str, object]] = []
        self._ids = new_task_ids()
        self._names: dict[Key, str] = {}  # of nodes that have ended in this step
        self._payloads: dict[Key, Payload] = {}  # of nodes that were read ahead

    @property
    def new_tasks(self) -> Sequence[NewTask]:
        """The tasks that this step writes."""
        return self._tasks

    async def take_tasks(
        self, ended: Collection[EndedNodeRow], followers: Iterable[tuple[FlowNode, Payload]] = ()
    ) -> None:
        """The tasks of these nodes have ended, and so have the nodes. `followers` count some of them."""
        for node, payload in followers:
            self.settling.add([node])
            self._payloads[node.key] = payload
        for row in ended:
            self.settling.add([row.node])
            self._names[row.node.key] = row.node_id
            flow = self.settling.flows.get(row.node.workflow_id)
            if flow is None:
                continue
            if not row.fits:
                self.result.tasks[row.node.task_id or ""] = row.node.workflow_id
                continue
            # The task expired with its workflow: it has not started, and has not failed (F-96).
            has_run = row.node.status is WorkflowTaskStatus.RUNNING
            is_over = row.status is TaskStatus.EXPIRED and flow.row.is_overdue and not has_run
            end = SKIPPED if is_over else end_of_task(row.status, row.result, row.error_code)
            self.settling.end(row.node.key, end)
        await self.settle()

    async def take_children(self, children: Collection[str]) -> None:
        """These child workflows have ended, and so have their nodes."""
        for row in await workflows.ended_children(self.conn, children):
            self.settling.add([row.node])
            if not row.fits:
                self.result.children.append(row.child_id)
            elif row.node.workflow_id in self.settling.flows:
                end = end_of_child(row.child_id, row.status, row.result, row.error, row.counts)
                self.settling.end(row.node.key, end)
        await self.settle()

    async def take_ends(self, given: Mapping[Key, NodeEnd], states: Collection[str]) -> None:
        """These nodes have ended in this way, if they are still in one of the states."""
        await self.load(list(given))
        for key, end in given.items():
            node = self.settling.nodes.get(key)
            if node is not None and node.status in states:
                self.settling.end(key, end)
        await self.settle()

    async def take_ready(self) -> None:
        """Everything that is READY in these workflows and has room can be enqueued now."""
        keys = await workflows.ready(self.conn, list(self.settling.flows), self._most)
        await self.load(keys)
        self.settling.ready.update(dict.fromkeys(keys))
        # There may be more. Sub-workflow nodes stay READY until they are built, so they are no reason to look again.
        tasks = Counter(key[0] for key in keys if self.settling.nodes[key].row.node_type != "SUBWORKFLOW")
        running = {flow for flow, state in self.settling.flows.items() if state.is_running}
        self._leave(flow for flow, count in tasks.items() if count >= self._most and flow in running)

    async def stop_waiting(self, ids: Collection[str]) -> None:
        """Nodes of these workflows that have not started never will: they are SKIPPED, and waiting tasks CANCELLED
        (F-53, F-96)."""
        open_nodes = await workflows.open_nodes(self.conn, ids, OPEN)
        self.settling.add(open_nodes)
        tasks = [node.task_id for node in open_nodes if node.task_id is not None]
        cancelled = (
            await workflows.cancel_tasks(self.conn, sorted(tasks), finish.CANCELLED.result or "") if tasks else set()
        )
        for node in open_nodes:
            if node.status in ("PENDING", "READY"):
                self.settling.end(node.key, SKIPPED)
            elif node.task_id in cancelled:
                has_run = node.status is WorkflowTaskStatus.RUNNING
                self.settling.end(node.key, finish.CANCELLED if has_run else SKIPPED)
        await self.settle()

    async def load(self, keys: Collection[Key]) -> None:
        missing = [key for key in keys if key not in self.settling.nodes]
        if missing:
            self.settling.add(await workflows.nodes(self.conn, missing))

    async def settle(self) -> None:
        """Load and decide until nothing more follows. For a cascade of skips, it loads further and further ahead."""
        depth = 0
        while not self.settling.is_settled or self.settling.maps:
            self.settling.run()
            wanted = self.settling.wanted()
            if wanted:
                self.settling.add(await workflows.nodes(self.conn, wanted, depth))
                depth = min(2 * depth + 1, FARTHEST)
                if any(key not in self.settling.nodes for key in wanted):
                    raise StepBroken(f"nodes that others name do not exist: {wanted[:3]}")
            while self.settling.maps:
                key = next(iter(self.settling.maps))
                del self.settling.maps[key]
                await self._end_map(key)

    async def _end_map(self, key: Key) -> None:
        # Elements that have ended in this very step are not written yet.
        written = await workflows.elements(self.conn, key)
        payload = (await workflows.payloads(self.conn, [key]))[0]
        first = int((payload.map_options or {}).get("first", 0))
        results: list[tuple[WorkflowTaskStatus, str | None, str | None]] = []
        for position, (status, result, code) in enumerate(written):
            state = self.settling.nodes.get((key[0], first + position))
            if state is not None and state.end is not None:
                status, result, code = state.end.status, state.end.result, state.end.error_code
            results.append((status, result, code))
        self.settling.end(key, end_of_map(results, self.settling.nodes[key].row.min_success))

    async def finish(self) -> StepResult:
        """Enqueue what is possible, write everything, and end the workflows that are complete."""
        overdue = [
            flow.row.id
            for flow in self.settling.flows.values()
            if flow.row.is_overdue and not flow.status.is_terminal and flow.open_nodes
        ]
        if overdue:
            await self.stop_waiting(overdue)
        freed = [flow for flow in sorted(self.settling.freed) if self.settling.flows[flow].is_running]
        await self._fail_refused()
        await self._enqueue()
        await self._write()
        await self._conclude()
        self._leave(freed)
        return self.result

    def _leave(self, flows: Iterable[str]) -> None:
        """There may be more to enqueue in these."""
        self.result.flows.update(dict.fromkeys(flows))

    async def _fail_refused(self) -> None:
        if not self._refused:
            return
        await self.load(list(self._refused))
        for key, reason in self._refused.items():
            node = self.settling.nodes.get(key)
            if node is not None and node.status is WorkflowTaskStatus.READY and self.settling.flows[key[0]].is_running:
                self.settling.ready.pop(key, None)
                self.settling.end(key, _not_enqueued(reason))
        await self.settle()
        self._leave({key[0] for key in self._refused})

    async def _enqueue(self) -> None:
        """Nodes that cannot be enqueued fail, which may make others ready; repeat until nothing is left to do."""
        at_once = AT_FIRST
        while keys := [key for key in self.settling.ready if self.settling.flows[key[0]].is_running]:
            chosen = keys[: min(at_once, self._room)]
            at_once *= 4
            if not chosen:
                self._leave(key[0] for key in keys)
                return
            for key in chosen:
                del self.settling.ready[key]
            found = await self._payloads_of(chosen)
            sources = await self._sources_for(found)
            for payload in found:
                if self._room < 1:
                    self.settling.ready[payload.workflow_id, payload.task_index] = None
                    continue
                await self._enqueue_one(payload, sources.get(payload.workflow_id, {}))
            await self.settle()

    async def _payloads_of(self, keys: Collection[Key]) -> list[Payload]:
        """In the order of their keys, those that were not read ahead from the database."""
        missing = [key for key in keys if key not in self._payloads]
        read = await workflows.payloads(self.conn, missing) if missing else []
        found = {(payload.workflow_id, payload.task_index): payload for payload in read}
        found |= {key: self._payloads[key] for key in keys if key in self._payloads}
        return [found[key] for key in sorted(found)]

    async def _sources_for(self, found: Iterable[Payload]) -> dict[str, dict[int, Source]]:
        """The nodes whose results these use, by workflow and index. Inputs of child workflows are read when those are
        built."""
        tasks = [payload for payload in found if payload.node_type != "SUBWORKFLOW"]
        wanted = dict.fromkeys(
            (payload.workflow_id, index) for payload in tasks for index in inputs.sources_of(payload)
        )
        sources: dict[str, dict[int, Source]] = {}
        for (flow, index), name in self._names.items():
            if (flow, index) in wanted and self.settling.nodes[flow, index].end is not None:
                del wanted[flow, index]
                source = Source(flow, index, name, WorkflowTaskStatus.RUNNING, None, None)
                sources.setdefault(flow, {})[index] = self._as_ended(source)
        for (flow, index), source in (await workflows.sources(self.conn, list(wanted))).items():
            sources.setdefault(flow, {})[index] = self._as_ended(source)
        return sources

    @property
    def _room(self) -> int:
        """How many nodes this step can still enqueue."""
        return self._most - len(self.enqueued) if self._bytes < ENOUGH_BYTES else 0

    def _as_ended(self, source: Source) -> Source:
        """A source that has ended, or was reopened, in this step is not written yet."""
        state = self.settling.nodes.get((source.workflow_id, source.task_index))
        if state is not None and state.opened and state.end is None:
            return source._replace(status=state.status, result=None, summary=None)
        if state is None or state.end is None:
            return source
        return source._replace(status=state.end.status, result=state.end.result, summary=state.end.summary)

    async def _enqueue_one(self, payload: Payload, own: Mapping[int, Source]) -> None:
        key = (payload.workflow_id, payload.task_index)
        if payload.node_type == "SUBWORKFLOW":
            self.result.builds.append(key)
            return
        try:
            if payload.node_type == "MAP":
                await self._expand(key, payload, own)
                return
            kwargs = payload.kwargs if payload.node_type == "ELEMENT" else inputs.arguments(payload, own)
        except (InputError, ValueError) as problem:
            self.settling.end(key, _not_enqueued(problem))
            return
        self._enqueue_task(key, payload, kwargs)

    def _enqueue_task(self, key: Key, payload: Payload, kwargs: str | None) -> None:
        flow, state = self.settling.flows[key[0]], self.settling.nodes[key]
        task = layout.task_of_payload(
            payload, next(self._ids), kwargs, layout.earlier(payload.good_until, flow.row.good_until)
        )
        self._add_task(key, task)
        state.status, state.task_id = WorkflowTaskStatus.ENQUEUED, task.id

    def _add_task(self, key: Key, task: NewTask) -> None:
        self.enqueued.append(key)
        self._tasks.append(task)
        self._bytes += len(task.kwargs or "")

    async def _expand(self, key: Key, payload: Payload, own: Mapping[int, Source]) -> None:
        """The map becomes its elements: as many as may run at once are enqueued with it, and the others are READY."""
        first = (
            1
            + await workflows.last_index(self.conn, key[0])
            + sum(1 for row in self._elements if row["workflow_id"] == key[0])
        )
        expansion: inputs.Expansion = inputs.expand(payload, own, first)
        if not expansion.rows:
            self.settling.end(key, NodeEnd(WorkflowTaskStatus.COMPLETED, '{"ok":[]}'))
            return
        flow, state = self.settling.flows[key[0]], self.settling.nodes[key]
        good_until = layout.earlier(payload.good_until, flow.row.good_until)
        self.enqueued.append(key)
        self._bytes += sum(len(row["task_kwargs"]) for row in expansion.rows)
        places = 0
        for row in expansion.rows[: expansion.max_parallel]:
            if self._room < 1:
                break
            task = layout.task_of_payload(payload, next(self._ids), row["task_kwargs"], good_until)
            self._add_task((key[0], row["task_index"]), task)
            row |= {"status": WorkflowTaskStatus.ENQUEUED, "task_id": task.id}
            places += 1
        self._elements += expansion.rows
        state.status, state.map_options = WorkflowTaskStatus.RUNNING, expansion.options
        if places < len(expansion.rows):
            self._leave([key[0]])

    async def _write(self) -> None:
        # Tasks are written first, because nodes refer to them.
        if self._tasks:
            await workflows.insert_tasks(self.conn, self._tasks)
        moves = sorted(self.settling.changed(), key=lambda move: move[0])
        if moves:
            await workflows.move_nodes(self.conn, moves)
        if self._elements:
            await workflows.insert_nodes(self.conn, self._elements)
        self.result.nodes += len(moves)
        self.result.enqueued += len(self._tasks)

    async def _conclude(self) -> None:
        over = [flow for flow in self.settling.flows.values() if _is_over(flow)]
        if over:
            keys = [(flow.row.id, index) for flow in over for index in deciding(flow.row)]
            closings: dict[str, list[Closing]] = {flow.row.id: [] for flow in over}
            for closing in await workflows.closing(self.conn, list(closings), keys):
                closings[closing.workflow_id].append(closing)
            for flow in over:
                end = conclude(flow.row, closings[flow.row.id], flow.error, flow.error_code)
                flow.status, flow.result = end.status, end.result
                if end.error is not None:
                    flow.error, flow.error_code = end.error, end.error_code
        self._pause_with_parents()
        changed = [flow for flow in self.settling.flows.values() if flow.is_changed]
        if changed:
            await workflows.move(self.conn, changed)
        for flow in changed:
            await self._note(flow)

    def _pause_with_parents(self) -> None:
        """For a tree in the order of its levels: workflows below a paused workflow are paused with it."""
        for flow in self.settling.flows.values() if self._is_tree else ():
            parent = self.settling.flows.get(flow.row.parent_workflow_id or "")
            if parent is not None and parent.status is WorkflowStatus.PAUSED and flow.is_running:
                flow.status = WorkflowStatus.PAUSED

    async def _note(self, flow: FlowState) -> None:
        if flow.status is flow.row.status:
            return
        self.result.workflows += 1
        if flow.status.is_terminal and flow.row.parent_workflow_id is not None:
            self.result.children.append(flow.row.id)
        if flow.status is WorkflowStatus.PAUSED and not self._is_tree:
            if len(self.settling.flows) > 1:
                raise MustBeAlone
            self.result.workflows += await _pause_below(self.conn, flow.row.id)


def _not_enqueued(problem: object) -> NodeEnd:
    return finish.failure(OperationalErrorCode.WORKFLOW_ENQUEUE_FAILED, f"The node cannot be enqueued: {problem}")


def _is_over(flow: FlowState) -> bool:
    """All its nodes have ended. A paused workflow is concluded by the step after its resume, or by its deadline (F-76,
    F-96)."""
    was_running = flow.is_running and flow.row.status is WorkflowStatus.RUNNING
    return flow.open_nodes == 0 and (was_running or (flow.status is WorkflowStatus.PAUSED and flow.row.is_overdue))


async def _pause_below(conn: Connection, workflow_id: str) -> int:
    """Pause the running children of a paused workflow, level by level (F-51); return how many."""
    paused, level = 0, [workflow_id]
    while level:
        below = [FlowState(child) for child in await workflows.lock_children(conn, level, UNFINISHED)]
        running = [child for child in below if child.is_running]
        for child in running:
            child.status = WorkflowStatus.PAUSED
        if running:
            await workflows.move(conn, running)
        level = [child.row.id for child in below]
        paused += len(running)
    return paused
