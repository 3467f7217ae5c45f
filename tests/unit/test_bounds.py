"""Every number that a user can set has a largest value, within what PostgreSQL and the timers of Python take: a number
that is too large is refused where it is written, and not by a statement that serves many.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from datetime import timedelta
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError
from typer.main import get_command

import horsies
from horsies import (
    AppConfig,
    Horsies,
    HorsiesError,
    PostgresConfig,
    RetryPolicy,
    TaskError,
    TaskResult,
)
from horsies.cli.main import app as commands
from horsies.core.models.base import ConfigModel
from horsies.core.producer.waiter import patience_s
from horsies.core.worker.config import WorkerConfig
from tests.each import each

HUGE = {int: 10**18, float: 1e18, timedelta: timedelta(days=999_999_999)}
BROKER = PostgresConfig(database_url="postgresql://u:p@h/d")


def all_models() -> list[type[BaseModel]]:
    for module in pkgutil.walk_packages(horsies.__path__, "horsies."):
        # Modules for Django need a project with settings, and its options are fields of these same models.
        if not module.name.endswith("__main__") and not module.name.startswith("horsies.contrib.django."):
            importlib.import_module(module.name)
    found: dict[str, type[BaseModel]] = {"RetryPolicy": RetryPolicy}
    left = list(ConfigModel.__subclasses__())
    while left:
        model = left.pop()
        left += model.__subclasses__()
        if model.__module__.startswith("horsies."):
            found[model.__name__] = model
    return list(found.values())


def too_large(annotation: Any) -> Iterator[Any]:
    """For each number in this type, a value with one that is far too large."""
    if annotation in HUGE:
        yield HUGE[annotation]
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        yield from too_large(parts[0])
    elif kind in (Union, UnionType):
        for part in parts:
            yield from too_large(part)
    elif kind in (list, tuple, set, frozenset):
        for part in parts:
            yield from ([value] for value in too_large(part))
    elif kind is dict:
        yield from ({"key": value} for value in too_large(parts[1]))
    elif kind is not Literal and hasattr(annotation, "__value__"):
        yield from too_large(annotation.__value__)


NUMBERS = [
    (model, name, value)
    for model in all_models()
    for name, field in model.model_fields.items()
    for value in too_large(field.annotation)
]


def test_the_numbers_of_every_model_are_found() -> None:
    """So that the next test cannot pass because it looks at nothing."""
    ids = {f"{model.__name__}.{name}" for model, name, _ in NUMBERS}
    assert len(ids) > 60
    assert {
        "AppConfig.cluster_wide_cap",
        "PostgresConfig.pool_size",
        "WorkerConfig.shutdown_grace_ms",
        "WorkerRecoveryConfig.sweep_threshold",
        "RetryPolicy.intervals",
        "CustomQueueConfig.max_concurrency",
        "IntervalSchedule.days",
        "CronRange.start",
        "CronValues.values",
    } <= ids


@each(("model", "name", "value"), NUMBERS)
def test_t14a_a_number_that_is_too_large_is_refused_by_its_name(model: type[BaseModel], name: str, value: Any) -> None:
    with pytest.raises((HorsiesError, ValidationError)) as raised:
        model(**{name: value})
    complaints = [line for line in str(raised.value).splitlines() if name in line]
    text = str(raised.value)
    assert complaints and ("less than or equal to" in text or "at most" in text), text


def number_options() -> dict[str, int | float | None]:
    """Each option of each command that is a number, and its largest value."""
    found: dict[str, int | float | None] = {}
    left: list[tuple[str, Any]] = list(get_command(commands).commands.items())  # type: ignore[attr-defined]
    while left:
        name, command = left.pop()
        left += [(f"{name} {below}", one) for below, one in getattr(command, "commands", {}).items()]
        for option in command.params:
            if option.type_descriptor.annotation in (int, float):
                found[f"{name} {option.name}"] = option.max
    return found


def test_t14a_every_number_of_the_command_line_has_a_largest_value() -> None:
    largest = number_options()
    assert {
        "worker processes",
        "worker max_memory_per_child_mb",
        "stale-tasks minutes",
        "tasks offset",
    } <= largest.keys()
    assert [name for name, value in largest.items() if value is None] == []


def test_the_options_of_a_worker_end_where_its_settings_end() -> None:
    shared = {name: value for name, value in number_options().items() if name.startswith("worker ")}
    assert len(shared) > 5
    for name, value in shared.items():
        rules = WorkerConfig.model_fields[name.removeprefix("worker ")].metadata
        assert value == next(rule.le for rule in rules if getattr(rule, "le", None) is not None), name


@each("timeout_ms", [999, 31_536_000_001, 10**400])
def test_t30_a_time_limit_is_at_most_a_year(timeout_ms: int) -> None:
    app = Horsies(AppConfig(broker=BROKER))
    with pytest.raises(HorsiesError, match=r"timeout_ms must be an integer from 1000 to 31536000000"):

        @app.task("late", timeout_ms=timeout_ms)
        def late() -> TaskResult[None, TaskError]:
            return TaskResult(ok=None)


def test_a_caller_may_be_willing_to_wait_for_ever() -> None:
    assert patience_s(None) is None
    assert patience_s(1_500) == 1.5
    assert patience_s(-1) == 0
    for longer in (10**400, float("inf")):
        assert patience_s(longer) == 100 * 365 * 86_400
