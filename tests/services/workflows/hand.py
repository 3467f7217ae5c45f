"""An app with tasks for workflows, and a hand that does to those tasks what a worker does, when the test says so."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any

from psycopg import AsyncConnection
from pydantic import BaseModel

from horsies import Horsies, TaskError, TaskResult, WorkflowHandle, from_node
from horsies.core.models.workflow.registry import LocalBuilder
from horsies.core.models.workflow.spec import WorkflowSpec
from horsies.core.store import tasks as store
from horsies.core.store.tasks import Claimant, ClaimOrder
from horsies.core.task_decorator import TaskFunction
from horsies.core.workflows.advance import Advanced, Worklist, advance

Db = AsyncConnection[Any]
Int = TaskResult[int, TaskError]
ME = Claimant("w1", timedelta(minutes=1), False)


class Order(BaseModel):
    """A value that is more than JSON."""

    id: int
    items: list[str] = []


class Tasks:
    """The tasks of an app."""

    one: TaskFunction[[], int]
    plus: TaskFunction[..., int]
    order: TaskFunction[[], Order]
    numbers: TaskFunction[[], list[int]]
    double: TaskFunction[..., int]

    def __init__(self, app: Horsies) -> None:
        @app.task("one")
        def one() -> TaskResult[int, TaskError]:
            return TaskResult(ok=1)

        @app.task("plus")
        def plus(a: Int, b: Int | None = None) -> TaskResult[int, TaskError]:
            return TaskResult(ok=1)

        @app.task("order")
        def order() -> TaskResult[Order, TaskError]:
            return TaskResult(ok=Order(id=1))

        @app.task("numbers")
        def numbers() -> TaskResult[list[int], TaskError]:
            return TaskResult(ok=[])

        @app.task("double")
        def double(x: int) -> TaskResult[int, TaskError]:
            return TaskResult(ok=2 * x)

        self.app = app
        self.one, self.plus, self.order, self.numbers, self.double = one, plus, order, numbers, double

    def chain(self, **more: Any) -> WorkflowSpec[Any]:
        """a → b, and b is the output."""
        a = self.one.node(node_id="a")()
        b = self.plus.node(node_id="b")(a=from_node(a))
        return self.app.workflow("chain", [a, b], output=b, **{"definition_key": "chain", **more})

    def diamond(self, **more: Any) -> WorkflowSpec[Any]:
        """a → b, c → d, without an output."""
        a = self.one.node(node_id="a")()
        b = self.plus.node(node_id="b")(a=from_node(a))
        c = self.plus.node(node_id="c")(a=from_node(a))
        d = self.plus.node(node_id="d")(a=from_node(b), b=from_node(c))
        return self.app.workflow("diamond", [a, b, c, d], **{"definition_key": "diamond", **more})

    def mapping(self, **options: Any) -> WorkflowSpec[Any]:
        """A list, doubled."""
        source = self.numbers.node(node_id="source")()
        mapped = self.double.map_node(over=from_node(source), node_id="m", **options)()
        return self.app.workflow("mapping", [source, mapped], output=mapped, definition_key="mapping")


class Hand:
    """Starts and ends tasks in the database, and lets the engine know, as a worker does."""

    def __init__(self, app: Horsies, db: Db) -> None:
        self._app = app
        self._db = db

    async def begin(self, handle: WorkflowHandle[Any] | str, *node_ids: str) -> None:
        """These nodes run now."""
        for node_id in node_ids:
            task_id = await self.task_of(handle, node_id)
            await self._db.execute(
                "UPDATE horsies_tasks SET status = 'RUNNING', claimed = TRUE, claimed_by_worker_id = 'w1',"
                " claim_seq = claim_seq + 1, started_at = now() WHERE id = %s AND status IN ('PENDING', 'CLAIMED')",
                [task_id],
            )
            await self._db.execute(
                "UPDATE horsies_workflow_tasks SET status = 'RUNNING', started_at = now() WHERE task_id = %s", [task_id]
            )

    async def finish(
        self, handle: WorkflowHandle[Any] | str, node_id: str, value: Any = 1, *, only_one_step: bool = False
    ) -> Advanced:
        """The task of this node is COMPLETED."""
        task_id = await self._end(handle, node_id, "COMPLETED", {"ok": value}, None)
        return await self.advance(task_id, only_one_step=only_one_step)

    async def fail(
        self, handle: WorkflowHandle[Any] | str, node_id: str, code: str = "BAD", *, only_one_step: bool = False
    ) -> Advanced:
        """The task of this node is FAILED."""
        task_id = await self._end(handle, node_id, "FAILED", {"err": {"error_code": code, "message": "no"}}, code)
        return await self.advance(task_id, only_one_step=only_one_step)

    async def wait_for_retry(self, handle: WorkflowHandle[Any] | str, node_id: str) -> str:
        """The task of this node has failed and is due again at once; its id."""
        task_id = await self.task_of(handle, node_id)
        await self._db.execute(
            "UPDATE horsies_tasks SET status = 'PENDING', claimed = FALSE, claimed_by_worker_id = NULL,"
            " retry_count = 1, max_retries = 3, next_retry_at = now(), enqueued_at = now(), started_at = NULL"
            " WHERE id = %s",
            [task_id],
        )
        return task_id

    async def task_of(self, handle: WorkflowHandle[Any] | str, node_id: str) -> str:
        return str((await self.node(handle, node_id))["task_id"])

    async def node(self, handle: WorkflowHandle[Any] | str, node_id: str) -> dict[str, Any]:
        """Every column of a node."""
        query = "SELECT to_jsonb(n) FROM horsies_workflow_tasks n WHERE workflow_id = %s AND node_id = %s"
        row = await self._one(query, _id(handle), node_id)
        assert row is not None, f"there is no node {node_id}"
        return dict(row)

    async def workflow(self, handle: WorkflowHandle[Any] | str) -> dict[str, Any]:
        """Every column of a workflow."""
        row = await self._one("SELECT to_jsonb(w) FROM horsies_workflows w WHERE id = %s", _id(handle))
        assert row is not None
        return dict(row)

    async def states(self, handle: WorkflowHandle[Any] | str) -> str:
        """`RUNNING a:COMPLETED b:PENDING`, in the order of the indexes."""
        cursor = await self._db.execute(
            "SELECT node_id, status FROM horsies_workflow_tasks WHERE workflow_id = %s ORDER BY task_index",
            [_id(handle)],
        )
        nodes = " ".join(f"{node_id}:{status}" for node_id, status in await cursor.fetchall())
        return f"{(await self.workflow(handle))['status']} {nodes}"

    async def everything(self) -> Any:
        """All rows there are, to be compared with later."""
        return [
            await self._one(f"SELECT json_agg(t ORDER BY t.id)::text FROM {table} t")  # noqa: S608
            for table in ("horsies_workflows", "horsies_workflow_tasks", "horsies_tasks")
        ]

    async def claimable(self) -> set[str]:
        """The tasks that a worker would get now."""
        order = ClaimOrder(["default"], [100], [None], 100, 100, None, True, [])
        async with self._db.transaction(force_rollback=True):
            return {claimed.id for claimed in await store.claim(self._db, ME, order)}

    async def _end(
        self, handle: WorkflowHandle[Any] | str, node_id: str, status: str, result: dict[str, Any], code: str | None
    ) -> str:
        task_id = await self.task_of(handle, node_id)
        await self._db.execute(
            "UPDATE horsies_tasks SET status = %s, result = %s, error_code = %s, claimed = FALSE,"
            " completed_at = CASE WHEN %s = 'COMPLETED' THEN now() END WHERE id = %s",
            [status, json.dumps(result), code, status, task_id],
        )
        return task_id

    async def advance(self, *task_ids: str, only_one_step: bool = False) -> Advanced:
        """What a worker does then; and, if it dies there, only its first transaction."""
        broker = self._app.get_broker()

        async def go() -> Advanced:
            if only_one_step:
                after = await Worklist(tasks=list(task_ids)).step(broker.hub, None)
                return Advanced(after.nodes, after.workflows)
            return await advance(broker.hub, task_ids, LocalBuilder(self._app))

        return await broker.bridge.call(partial(go))

    async def _one(self, query: str, *params: Any) -> Any:
        row = await (await self._db.execute(query.encode(), params)).fetchone()
        return None if row is None else row[0]


def _id(handle: WorkflowHandle[Any] | str) -> str:
    return handle if isinstance(handle, str) else handle.workflow_id
