"""Our tables as Django sees them, to read: for the admin, and for queries of a project's own. Django does not manage
them: `manage.py migrate` installs the schema with our own installer (`operations.py`).
"""

from __future__ import annotations

from typing import Any

from django.db import models

from horsies.contrib.django import conf
from horsies.core.types import TaskAttemptOutcome, TaskStatus, WorkflowStatus


class OnOurDatabase(models.Manager):
    """Reads where the app writes, whatever the routers of the project say."""

    def get_queryset(self) -> Any:
        return super().get_queryset().using(conf.alias())


def _choices(kind: Any) -> list[tuple[str, str]]:
    return [(member.value, member.value.lower()) for member in kind]


class Task(models.Model):
    """A task that was sent."""

    id = models.CharField(max_length=36, primary_key=True)
    task_name = models.CharField("name", max_length=255)
    queue_name = models.CharField("queue", max_length=100)
    priority = models.IntegerField()
    status = models.CharField(max_length=20, choices=_choices(TaskStatus))
    args = models.TextField(null=True)
    kwargs = models.TextField(null=True)
    result = models.TextField(null=True)
    error_code = models.TextField(null=True)
    failed_reason = models.TextField(null=True)
    retry_count = models.IntegerField("retries")
    max_retries = models.IntegerField()
    sent_at = models.DateTimeField("sent")
    enqueued_at = models.DateTimeField("due")
    started_at = models.DateTimeField("started", null=True)
    completed_at = models.DateTimeField("completed", null=True)
    failed_at = models.DateTimeField("failed", null=True)
    ended_at = models.DateTimeField("ended", null=True)
    next_retry_at = models.DateTimeField("next try", null=True)
    good_until = models.DateTimeField("good until", null=True)
    claimed_by_worker_id = models.CharField("worker", max_length=255, null=True)
    workflow_id = models.CharField("workflow", max_length=36, null=True)
    idempotency_key = models.CharField(max_length=255, null=True)

    objects = OnOurDatabase()

    class Meta:
        managed = False
        db_table = "horsies_tasks"
        default_permissions = ("view", "change")
        verbose_name = "task"

    def __str__(self) -> str:
        return f"{self.task_name} {self.id}"


class TaskAttempt(models.Model):
    """One run of a task that has ended."""

    id = models.BigAutoField(primary_key=True)
    task = models.ForeignKey(Task, models.DO_NOTHING, db_constraint=False, related_name="attempts")
    attempt = models.IntegerField()
    outcome = models.CharField(max_length=32, choices=_choices(TaskAttemptOutcome))
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    error_code = models.TextField(null=True)
    error_message = models.TextField(null=True)
    worker_id = models.CharField(max_length=255, null=True)

    objects = OnOurDatabase()

    class Meta:
        managed = False
        db_table = "horsies_task_attempts"
        default_permissions = ("view",)
        verbose_name = "attempt"

    def __str__(self) -> str:
        return f"attempt {self.attempt}"


class Workflow(models.Model):
    """A workflow that was started."""

    id = models.CharField(max_length=36, primary_key=True)
    name = models.CharField(max_length=255)
    definition_key = models.CharField(max_length=255)
    status = models.CharField(max_length=20, choices=_choices(WorkflowStatus))
    on_error = models.CharField(max_length=10)
    result = models.TextField(null=True)
    error = models.TextField(null=True)
    error_code = models.TextField(null=True)
    parent_workflow_id = models.CharField("parent", max_length=36, null=True)
    open_nodes = models.IntegerField()
    sent_at = models.DateTimeField("sent")
    started_at = models.DateTimeField("started", null=True)
    paused_at = models.DateTimeField("paused", null=True)
    completed_at = models.DateTimeField("completed", null=True)
    good_until = models.DateTimeField("good until", null=True)

    objects = OnOurDatabase()

    class Meta:
        managed = False
        db_table = "horsies_workflows"
        default_permissions = ("view", "change")
        verbose_name = "workflow"

    def __str__(self) -> str:
        return f"{self.name} {self.id}"
