"""Imports point downwards only, and decisions do no I/O."""

from __future__ import annotations

import re

from tests.architecture.source import imported_modules, modules

# Folders from the bottom to the top; a module may import from its own row and from those before it. The longest prefix
# decides. The worker stands above the application because it runs one; the application does not know of it.
LAYERS = (
    (
        "values",
        (
            "core.types",
            "core.text",
            "core.errors",
            "core.distribution",
            "core.libpq",
            "core.models",
            "core.exception_mapper",
        ),
    ),
    ("log and trace", ("core.events", "core.logs", "core.tracing")),
    ("values as JSON", ("core.codec",)),
    ("what a task is", ("core.tasks", "core.hooks")),
    ("what a workflow is", ("core.models.workflow",)),
    ("database", ("core.db", "core.embedded", "core.loop")),
    ("tables and statements", ("core.sql", "core.schema", "core.store")),
    ("sending and waiting", ("core.producer",)),
    ("the workflow engine", ("core.workflows",)),
    ("recovery", ("core.recovery",)),
    ("the scheduler", ("core.scheduler",)),
    ("the public facade", ("core.brokers",)),
    ("the view from outside", ("core.monitoring", "monitoring")),
    (
        "application",
        (
            "core.app",
            "core.app_workflows",
            "core.checks",
            "core.discovery",
            "core.locate",
            "core.node_factory",
            "core.task_decorator",
        ),
    ),
    ("the process that runs user code", ("core.child",)),
    ("the supervisor", ("core.worker",)),
    ("the public names", ("_public", "_public_schedules", "_public_workflows")),
    ("edges", ("cli", "contrib", "demo", "dev", "mcp", "testing", "tui", "web", "__main__")),
)
NAMESPACES = ("horsies", "horsies.core")

# Decisions, wherever they live: plain functions that are told what they need to know.
PURE = (
    "core.codec",
    "core.models.sending",
    "core.models.workflow.checks",
    "core.models.workflow.input_checks",
    "core.models.workflow.plan",
    "core.monitoring.alerts",
    "core.monitoring.catalogue",
    "core.monitoring.filters",
    "core.monitoring.masking",
    "core.monitoring.metrics",
    "core.monitoring.remedies",
    "core.monitoring.resuming",
    "core.producer.envelope",
    "core.recovery.decide",
    "core.scheduler.calendar",
    "core.scheduler.plan",
    "core.tasks.catalogue",
    "core.tasks.documents",
    "core.tasks.moves",
    "core.tasks.tally",
    "core.worker.pace",
    "core.workflows.finish",
    "core.workflows.inputs",
    "core.workflows.settle",
    "mcp.bounds",
    "tui.charts",
    "tui.lines",
    "tui.view_dashboard",
    "tui.view_edges",
    "tui.view_maintenance",
    "tui.view_tasks",
    "tui.view_workers",
    "tui.view_workflows",
    "web.svg",
)
IMPURE = {
    "asyncio",
    "logging",
    "multiprocessing",
    "os",
    "psutil",
    "psycopg",
    "psycopg_pool",
    "select",
    "socket",
    "sqlalchemy",
    "subprocess",
    "threading",
    "time",
}

# Imports that point upwards, and why.
UPWARDS = {
    ("core.models.broker", "horsies.core.embedded"): "the embedded server is an extra, needed only for its own URLs",
    ("core.app", "horsies.testing"): "only the tests of users need it, and it knows the worker",
    ("core.child.forkserver", "horsies.core.child.main"): "it loads what its children need before it forks them",
    ("core.models.schedule", "horsies"): "it has the same names, and knows their modules",
    ("core.models.workflow", "horsies"): "it has the same names, and knows their modules",
}


# What prints goes through one place, which cleans it: rows and arguments may contain what a terminal obeys.
PRINTS = ("cli.output", "cli.rendering")


def is_below(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"horsies.{prefix}.") for prefix in prefixes)


def layer_of(name: str) -> int | None:
    """The layer's place, or None for a package that only holds others."""
    found = [
        (len(prefix), place)
        for place, (_, prefixes) in enumerate(LAYERS)
        for prefix in prefixes
        if is_below(name, (prefix,))
    ]
    return max(found)[1] if found else None


def is_excused(name: str, module: str) -> bool:
    return (name.removeprefix("horsies."), module) in UPWARDS


def test_every_module_has_a_layer() -> None:
    homeless = [name for name in modules() if name not in NAMESPACES and layer_of(name) is None]
    assert homeless == [], "say in LAYERS where they belong"


def test_imports_point_downwards() -> None:
    wrong = [
        f"{name}:{one.line} imports {target}: {LAYERS[theirs][0]} from {LAYERS[mine][0]}"
        for name, module in modules().items()
        if (mine := layer_of(name)) is not None
        for one, target in imported_modules(module)
        if not one.for_types and not is_excused(name, one.module)
        if (theirs := layer_of(target)) is not None and theirs > mine
    ]
    assert wrong == []


def test_nothing_below_the_edges_imports_the_package_of_public_names() -> None:
    """Each module says which modules it needs."""
    wrong = [
        f"{name}:{one.line}"
        for name, module in modules().items()
        if not is_below(name, ("cli", "demo"))
        for one, target in imported_modules(module)
        if target == "horsies" and not one.for_types and not is_excused(name, one.module)
    ]
    assert wrong == []


def test_decisions_do_no_io_and_read_no_clock() -> None:
    wrong = [
        f"{name}:{one.line} {one.module}"
        for name, module in modules().items()
        if is_below(name, PURE)
        for one in module.imports
        if not one.for_types and one.module.partition(".")[0] in IMPURE
    ]
    assert wrong == []


def test_m12_only_one_module_prints() -> None:
    printing = re.compile(r"(?<![\w.])print\(|\.print\(|std(?:out|err)\.write\(|typer\.echo")
    wrong = [
        name
        for name, module in modules().items()
        if is_below(name, ("cli",)) and not is_below(name, PRINTS)
        if printing.search(module.text) or any(one.module.partition(".")[0] == "rich" for one in module.imports)
    ]
    assert wrong == [], "print with horsies/cli/output.py"
