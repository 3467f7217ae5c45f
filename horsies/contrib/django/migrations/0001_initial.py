"""The schema, and our tables as Django's models know them."""

from django.db import migrations, models

from horsies.contrib.django.operations import InstallSchema


class Migration(migrations.Migration):
    initial = True
    atomic = False  # the installer has a connection and a transaction of its own
    dependencies = ()
    operations = (
        InstallSchema(12),
        migrations.CreateModel(
            name="Task",
            fields=[
                ("id", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("task_name", models.CharField(max_length=255, verbose_name="name")),
                ("queue_name", models.CharField(max_length=100, verbose_name="queue")),
                ("priority", models.IntegerField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "pending"),
                            ("CLAIMED", "claimed"),
                            ("RUNNING", "running"),
                            ("COMPLETED", "completed"),
                            ("FAILED", "failed"),
                            ("CANCELLED", "cancelled"),
                            ("EXPIRED", "expired"),
                        ],
                        max_length=20,
                    ),
                ),
                ("args", models.TextField(null=True)),
                ("kwargs", models.TextField(null=True)),
                ("result", models.TextField(null=True)),
                ("error_code", models.TextField(null=True)),
                ("failed_reason", models.TextField(null=True)),
                ("retry_count", models.IntegerField(verbose_name="retries")),
                ("max_retries", models.IntegerField()),
                ("sent_at", models.DateTimeField(verbose_name="sent")),
                ("enqueued_at", models.DateTimeField(verbose_name="due")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                ("completed_at", models.DateTimeField(null=True, verbose_name="completed")),
                ("failed_at", models.DateTimeField(null=True, verbose_name="failed")),
                ("ended_at", models.DateTimeField(null=True, verbose_name="ended")),
                ("next_retry_at", models.DateTimeField(null=True, verbose_name="next try")),
                ("good_until", models.DateTimeField(null=True, verbose_name="good until")),
                ("claimed_by_worker_id", models.CharField(max_length=255, null=True, verbose_name="worker")),
                ("workflow_id", models.CharField(max_length=36, null=True, verbose_name="workflow")),
                ("idempotency_key", models.CharField(max_length=255, null=True)),
            ],
            options={
                "verbose_name": "task",
                "db_table": "horsies_tasks",
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
        migrations.CreateModel(
            name="TaskAttempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("COMPLETED", "completed"),
                            ("FAILED", "failed"),
                            ("WORKER_FAILURE", "worker_failure"),
                        ],
                        max_length=32,
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("error_code", models.TextField(null=True)),
                ("error_message", models.TextField(null=True)),
                ("worker_id", models.CharField(max_length=255, null=True)),
            ],
            options={
                "verbose_name": "attempt",
                "db_table": "horsies_task_attempts",
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Workflow",
            fields=[
                ("id", models.CharField(max_length=36, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=255)),
                ("definition_key", models.CharField(max_length=255)),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "pending"),
                            ("RUNNING", "running"),
                            ("COMPLETED", "completed"),
                            ("FAILED", "failed"),
                            ("PAUSED", "paused"),
                            ("CANCELLED", "cancelled"),
                        ],
                        max_length=20,
                    ),
                ),
                ("on_error", models.CharField(max_length=10)),
                ("result", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
                ("error_code", models.TextField(null=True)),
                ("parent_workflow_id", models.CharField(max_length=36, null=True, verbose_name="parent")),
                ("open_nodes", models.IntegerField()),
                ("sent_at", models.DateTimeField(verbose_name="sent")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started")),
                ("paused_at", models.DateTimeField(null=True, verbose_name="paused")),
                ("completed_at", models.DateTimeField(null=True, verbose_name="completed")),
                ("good_until", models.DateTimeField(null=True, verbose_name="good until")),
            ],
            options={
                "verbose_name": "workflow",
                "db_table": "horsies_workflows",
                "managed": False,
                "default_permissions": ("view", "change"),
            },
        ),
    )
