"""What structlog needs to know whose its events are: the page about logging shows it (X-23)."""

from typing import Any

from horsies.core.tasks.context import log_facts


def add_task_facts(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """A processor: the task id, name and attempt of the running task, where the event does not have them."""
    return {**log_facts(), **event}
