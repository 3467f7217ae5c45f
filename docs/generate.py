"""Writes docs/configuration.md from the settings themselves, so that names, defaults, limits and meanings cannot drift.

Run `make docs` after a change of a setting or an option; with `--check` it only says whether that is due. What a
setting means is the `description` of its field; a setting without one is an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from horsies import (
    AppConfig,
    CustomQueueConfig,
    PayloadPolicy,
    PostgresConfig,
    RecoveryConfig,
    RetryPolicy,
    SweepStaleWorkersOptions,
    WorkerRecoveryConfig,
    WorkerResilienceConfig,
)
from horsies.cli.main import app as command_line
from horsies.core.worker.config import WorkerConfig

TARGET = Path(__file__).with_name("configuration.md")

INTRODUCTION = """\
# Configuration

Every setting with its type, default and limits, and every option of the command line. This page is written by
`make docs` from the code; a test keeps it up to date. A value outside of its limits, or a name that does not exist, is
refused when the object is built, all mistakes at once. Settings are immutable. Names that end in `_ms` are
milliseconds, in `_hours` hours; where a `timedelta` is wanted, a number means seconds.

"""

# Each with the page that says more about it.
MODELS: dict[type[BaseModel], str] = {
    AppConfig: "",
    PostgresConfig: "",
    CustomQueueConfig: "[Workers](workers.md#how-much-it-takes) tells how limits count.",
    PayloadPolicy: "",
    WorkerResilienceConfig: "",
    RecoveryConfig: "[Recovery](recovery.md) tells what each threshold means and how to choose it. Every stale "
    "threshold must be at least two of its heartbeat intervals.",
    WorkerRecoveryConfig: "[Worker recovery](recovery.md#worker-recovery) tells what it changes. `sweep_threshold` "
    "must be at least two `heartbeat_interval`s.",
    RetryPolicy: "[Tasks](tasks.md#retries) tells which codes can be listed.",
    WorkerConfig: "[Workers](workers.md) tells the rest.",
    SweepStaleWorkersOptions: "[Recovery](recovery.md#by-hand) shows how.",
}


def page() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for model, more in MODELS.items():
        words = f"{' '.join((model.__doc__ or '').split())} {more}".rstrip()
        parts.append(f"## {model.__name__}\n\n{words}\n\n")
        parts.append(table(("field", "type", "default", "limits", "meaning"), fields(model)))
    parts.append(
        "# Command line\n\nDurations `D`: seconds, or a number with `s`, `m` or `h` (`300`, `30s`, `5m`, `2h`). "
        "Exit code 0: success or a clean end; 1: an error.\n\n"
    )
    group: Any = typer.main.get_command(command_line)
    for name, command in commands(group):
        parts.append(f"## `horsies {name}`\n\n{first_sentence(command.callback)}\n\n")
        parts.append(table(("option", "default", "meaning"), options(command)))
    return "".join(parts).rstrip() + "\n"


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its whole name; what only groups others has no section of its own."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def fields(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if not field.description:
            raise SystemExit(f"docs/generate.py: {model.__name__}.{name} has no description")
        yield f"`{name}`", code(type_name(field.annotation)), default(field), limits(field), field.description


def options(command: Any) -> Iterator[tuple[str, ...]]:
    for option in command.params:
        if option.param_type_name == "argument":
            yield (
                code(option.metavar or option.name.upper()),
                "required" if option.required else "none",
                option.help or "",
            )
        elif option.name != "help":
            names = " / ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            unset = option.show_default if isinstance(option.show_default, str) else "none"
            default = unset if option.default is None else "off" if option.default is False else code(option.default)
            yield names, default, option.help or ""


def first_sentence(function: Any) -> str:
    return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def type_name(annotation: Any) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return {"SecretStr": "str", "NoneType": "None"}.get(annotation.__name__, annotation.__name__)
    parts = [type_name(part) for part in get_args(annotation) if part is not Ellipsis]
    origin = str(getattr(annotation, "__origin__", ""))
    if "Literal" in origin or "Literal" in str(annotation)[:16]:
        return " | ".join(repr(part) for part in get_args(annotation))
    if "Annotated" in str(annotation)[:18]:
        return parts[0]
    container = getattr(annotation, "__origin__", None)
    if container in (list, dict, tuple, type):
        return f"{container.__name__}[{', '.join(parts)}]"
    return " | ".join(dict.fromkeys(parts)) if parts else str(annotation)


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "all defaults"
    if isinstance(value, timedelta):
        return f"`{value.total_seconds():g}` s"
    return code(
        f"{value:_}" if isinstance(value, int) and not isinstance(value, bool) else repr(getattr(value, "value", value))
    )


def limits(field: FieldInfo) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "entries >=", "max_length": "entries <="}
    found = [
        f"{sign} {limit(getattr(rule, name))}"
        for rule in rules(field.annotation, *field.metadata)
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]
    return ", ".join(found)


def rules(*annotated: Any) -> Iterator[Any]:
    """What limits a value, also where it is said of one part of a union."""
    for part in annotated:
        if isinstance(part, FieldInfo):
            yield from part.metadata
        elif "Literal" not in str(part)[:16] and get_args(part):
            yield from rules(*get_args(part))
        else:
            yield part


def limit(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.days} days" if value.days else f"{value.total_seconds():g} s"
    return f"{value:_}"


def code(text: str) -> str:
    return f"`{text}`"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(page(), encoding="utf-8")
        return 0
    if TARGET.exists() and TARGET.read_text(encoding="utf-8") == page():
        return 0
    print("docs/configuration.md is out of date: run make docs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
