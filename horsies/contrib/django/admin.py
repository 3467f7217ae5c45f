"""Tasks and workflows in Django's admin, to read. Lists are bounded: a count stops at ten thousand rows, filters offer
what the app knows instead of asking a table of millions for its different values and look at the newest rows, no column
sorts, and a search looks for a whole id or a whole name. What a task was given and returned is masked as in the
dashboard (`HORSIES["MASK"]`, `HORSIES["HIDE_PAYLOADS"]`) and cut, and no address of a list may ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Subquery, Value
from django.db.models.functions import Coalesce
from django.utils.functional import cached_property
from django.utils.html import format_html

from horsies.contrib.django import conf
from horsies.contrib.django.models import Task, TaskAttempt, Workflow
from horsies.contrib.django.project import project_app
from horsies.core.monitoring.masking import Masking, names_known_to

MOST_COUNTED = 10_000
MOST_LOOKED_AT = 100_000
LONGEST = 2_000  # characters of a payload


def matching(rows: Any, **wanted: Any) -> Any:
    """These rows; of tasks, those among the newest. No index has the status or the name of an ended task, and a value
    that is rare, or is nowhere, must not make a page read a whole table. Ids grow with time."""
    if rows.model is not Task:
        return rows.filter(**wanted)
    ids = Task.objects.order_by("-id").values("id")
    before = ids[MOST_LOOKED_AT : MOST_LOOKED_AT + 1]
    return rows.filter(pk__gt=Coalesce(Subquery(before), Value("")), **wanted)


class BoundedPaginator(Paginator):
    """Counts as far as somebody would turn pages."""

    @cached_property
    def count(self) -> int:
        return int(self.object_list.order_by()[: MOST_COUNTED + 1].count())


class InOneOrder(ChangeList):
    """`?o=2` sorts by no column either."""

    def get_ordering_field(self, field_name: Any) -> None:
        return None


class Exact(admin.SimpleListFilter):
    """Rows with this value."""

    column: str

    def queryset(self, request: Any, queryset: Any) -> Any:
        return matching(queryset, **{self.column: self.value()}) if self.value() else queryset


class QueueFilter(Exact):
    title = parameter_name = "queue"
    column = "queue_name"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(project_app().queue_names)]


class NameFilter(Exact):
    title = parameter_name = "name"
    column = "task_name"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        app = project_app()
        app.know_all_tasks()
        return [(name, name) for name in app.list_tasks()]


class StatusFilter(Exact):
    title = parameter_name = column = "status"

    def lookups(self, request: Any, model_admin: Any) -> Any:
        return model_admin.model._meta.get_field("status").choices


class ReadOnly(admin.ModelAdmin):
    """To look at, by whoever has the permission `view`."""

    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50
    ordering = ("-id",)
    actions = None
    sortable_by = ()
    searched = "task_name"
    path = "tasks"

    def has_add_permission(self, request: Any) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: Any = None) -> bool:
        """Our filters have names of their own. Anything else that an address may ask for (`?kwargs__contains=`) would
        tell what is masked, letter by letter, and read the whole table."""
        return lookup in {one.parameter_name for one in self.list_filter}

    def get_changelist(self, request: Any, **kwargs: Any) -> Any:
        return InOneOrder

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        found = queryset.filter(pk=term.lower())
        return (found if found.exists() else matching(queryset, **{self.searched: term})), False

    def get_list_display(self, request: Any) -> list[str]:
        return [*self.list_display, "dashboard"] if conf.option("DASHBOARD_URL") else list(self.list_display)

    @admin.display(description="dashboard")
    def dashboard(self, row: Any) -> str:
        url = conf.option("DASHBOARD_URL")
        return format_html('<a href="{}/{}/{}">open</a>', str(url).rstrip("/"), self.path, row.pk) if url else "-"


class AttemptInline(admin.TabularInline):
    model = TaskAttempt
    fields = readonly_fields = ("attempt", "outcome", "started_at", "finished_at", "error_code", "worker_id")
    extra = 0
    can_delete = False
    ordering = ("attempt",)

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        return False


@admin.register(Task)
class TaskAdmin(ReadOnly):
    list_display = ("id", "task_name", "queue_name", "status", "error_code", "retry_count", "sent_at", "started_at")
    list_filter = (StatusFilter, QueueFilter, NameFilter)
    search_fields = ("id",)
    search_help_text = "a whole id, or a whole name"
    inlines = (AttemptInline,)
    hidden = ("args", "kwargs", "result", "failed_reason")

    def get_fields(self, request: Any, obj: Any = None) -> list[str]:
        plain = [field.name for field in Task._meta.fields if field.name not in self.hidden]
        return [*plain, "arguments", "outcome", "dashboard"]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return self.get_fields(request, obj)

    @admin.display
    def arguments(self, row: Task) -> str:
        return shown(row, "args", "kwargs")

    @admin.display
    def outcome(self, row: Task) -> str:
        return shown(row, "result", "failed_reason")


@admin.register(Workflow)
class WorkflowAdmin(ReadOnly):
    list_display = ("id", "name", "status", "error_code", "open_nodes", "sent_at", "completed_at")
    list_filter = (StatusFilter,)
    search_fields = ("id",)
    search_help_text = "a whole id, or a whole name"
    searched = "name"
    path = "workflows"
    ordering = ("-completed_at",)  # as the index has them, and the dashboard: open ones first

    def get_fields(self, request: Any, obj: Any = None) -> list[str]:
        plain = [field.name for field in Workflow._meta.fields if field.name not in ("result", "error")]
        return [*plain, "outcome", "dashboard"]

    def get_readonly_fields(self, request: Any, obj: Any = None) -> list[str]:
        return self.get_fields(request, obj)

    @admin.display
    def outcome(self, row: Workflow) -> str:
        return shown(row, "result", "error")


@dataclass(frozen=True)
class Payloads:
    """The texts of one row, under the names by which the masking knows them."""

    task_name: str | None
    args: str | None = None
    kwargs: str | None = None
    result: str | None = None
    failed_reason: str | None = None
    error: str | None = None


def shown(row: Any, *names: str) -> str:
    """These texts of a row of `Task` or `Workflow`, as far as they may be shown."""
    known = names_known_to(project_app().tasks)
    masking = Masking.of(conf.option("MASK"), hides_all=bool(conf.option("HIDE_PAYLOADS")), positional=known)
    found = Payloads(getattr(row, "task_name", None), **{name: getattr(row, name) for name in names})
    masked = masking.applied_to(found)
    texts = {name: getattr(masked, name) for name in names}
    return "\n".join(f"{name}: {_cut(text)}" for name, text in texts.items() if text is not None) or "-"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text)} characters)"
