"""What the package imports, anywhere in its files, is what it says that it needs: the dependencies of the
package or, for some modules, of the extra that brings them."""

from __future__ import annotations

import sys
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import modules
from tests.install.pins import requirements_of

# The extra that a module needs, by the longest prefix of its name. All others have the dependencies alone.
EXTRAS = {
    "horsies.contrib.asgi": "web",
    "horsies.contrib.django": "django",
    "horsies.contrib.flask": "flask",
    "horsies.core.monitoring.prometheus": "metrics",
    "horsies.dev.watch": "dev",
    "horsies.mcp": "mcp",
    "horsies.tui": "tui",
    "horsies.web": "web",
}
# Imported in a function that asks first whether it is there, by modules that do without it.
OPTIONAL = {
    ("horsies.cli.worker", "uvloop"): "uvloop",
    ("horsies.contrib.django.dashboard", "starlette"): "web",
    ("horsies.core.tracing", "opentelemetry"): "otel",
}
# The frameworks that the application of the user brings.
OF_THE_USER = {("horsies.contrib.asgi", "fastapi"), ("horsies.contrib.django.backport", "django_tasks")}
# What a package brings and its documentation tells to import.
PART_OF = {
    "anyio": "mcp",
    "asgiref": "django",
    "click": "flask",
    "h11": "uvicorn",
    "opentelemetry": "opentelemetry-api",
    "pydantic_core": "pydantic",
}
LATER_PYTHONS = {"annotationlib"}  # of the standard library from 3.14 on


def test_every_import_is_declared() -> None:
    wrong = []
    for name, module in modules().items():
        for one in module.imports:
            top = one.module.partition(".")[0]
            if top in sys.stdlib_module_names | LATER_PYTHONS | {"horsies", ""} or (name, top) in OF_THE_USER:
                continue
            extra = OPTIONAL.get((name, top)) or extra_of(name)
            if canonicalize_name(PART_OF.get(top, top)) not in declared(() if extra is None else (extra,)):
                wrong.append(f"{name}:{one.line} imports {top}, which {extra or 'the package'} does not need")
    assert wrong == []


def extra_of(name: str) -> str | None:
    found = [prefix for prefix in EXTRAS if f"{name}.".startswith(f"{prefix}.")]
    return EXTRAS[max(found, key=len)] if found else None


@cache
def declared(extras: tuple[str, ...]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements_of(*extras)}
