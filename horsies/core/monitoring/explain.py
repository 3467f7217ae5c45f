"""`explain_task`: why is this task not running? It reads the facts at one moment; `reasons.py` judges them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from horsies.core.brokers.hub import can_exist
from horsies.core.monitoring import reasons
from horsies.core.monitoring.asking import ask
from horsies.core.monitoring.detail import MOST_WORKERS
from horsies.core.monitoring.models.answers import MonitoringResult
from horsies.core.monitoring.models.explanations import Explanation
from horsies.core.monitoring.reasons import MOST_NAMED
from horsies.core.store import explaining, monitoring
from horsies.core.store.tasks import Connection
from horsies.core.types.status import TaskStatus

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker

LOOK = 10_000  # so many places of a queue are counted

_NODE = re.compile(r"(?P<workflow_id>.+):(?P<index>[0-9]{1,9})")


async def explain_task(broker: PostgresBroker, task_id: str) -> MonitoringResult[Explanation | None]:
    """Why the task with this id, or the node `workflow_id:index`, is not running; `Ok(None)` if there is no such task
    or node."""

    async def look(conn: Connection) -> Explanation | None:
        if (found := await _of_task(conn, task_id, task_id)) is not None:
            return found
        node = _NODE.fullmatch(task_id) if isinstance(task_id, str) else None
        return None if node is None else await _of_node(conn, task_id, node["workflow_id"], int(node["index"]))

    return await ask(broker, look)


async def _of_task(conn: Connection, subject: str, task_id: str) -> Explanation | None:
    task = await explaining.task_facts(conn, task_id) if can_exist(task_id) else None
    if task is None:
        return None
    if task.status != TaskStatus.PENDING:
        return reasons.explain_task(subject, task)
    workers = await monitoring.workers(conn, most=MOST_WORKERS)
    queue = await explaining.queue_facts(conn, task, most=MOST_NAMED, look=LOOK)
    return reasons.explain_task(subject, task, workers, queue)


async def _of_node(conn: Connection, subject: str, workflow_id: str, index: int) -> Explanation | None:
    if not can_exist(workflow_id):
        return None
    node = await explaining.node_facts(conn, workflow_id, index, most=MOST_NAMED)
    if node is None:
        return None
    if node.task_id is not None and (found := await _of_task(conn, subject, node.task_id)) is not None:
        return found
    return reasons.explain_node(subject, node)
