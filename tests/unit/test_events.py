"""Events: who listens hears all of them; nobody listening, a hot path asks one question and does nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from horsies.core import events
from tests.each import each

PACKAGE = Path(events.__file__).parents[1]
HOT = ("claim", "start", "finalize")


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Mapping[str, Any]]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    unsubscribe = events.subscribe(lambda name, facts: found.append((name, facts)))
    yield found
    unsubscribe()
    unsubscribe()  # more than once does no harm


def test_who_listens_hears_the_facts_until_it_stops(heard: list[tuple[str, Mapping[str, Any]]]) -> None:
    events.emit("tasks.expired", count=3)
    assert heard == [("tasks.expired", {"count": 3})]


def test_a_listener_that_fails_costs_the_others_nothing(
    heard: list[tuple[str, Mapping[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(name: str, facts: Mapping[str, Any]) -> None:
        raise RuntimeError("no")

    events.listeners.insert(0, broken)
    try:
        events.emit("tasks.expired", count=1)
    finally:
        events.listeners.remove(broken)
    assert len(heard) == 1 and "a listener for tasks.expired failed" in caplog.text


def test_nobody_listening_is_the_same_empty_list() -> None:
    before = events.listeners
    events.subscribe(lambda name, facts: None)()
    assert events.listeners is before and not events.listeners
    events.emit("tasks.expired", count=1)


def emits(tree: ast.AST) -> list[ast.Call]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "events.emit"]


@each("stage", HOT)
def test_hot_paths_ask_before_they_put_facts_together(stage: str) -> None:
    """Every `emit` there stands alone in an `if events.listeners:`, and in no loop over tasks."""
    tree = ast.parse((PACKAGE / "core" / "worker" / f"{stage}.py").read_text())
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    told = emits(tree)
    assert told, "this stage tells what it does"
    for call in told:
        guard = parents[parents[call]]
        assert isinstance(guard, ast.If) and ast.unparse(guard.test) == "events.listeners", ast.unparse(call)
        above: ast.AST | None = guard
        while above is not None and not isinstance(above, ast.AsyncFunctionDef | ast.FunctionDef):
            assert not isinstance(above, ast.For | ast.AsyncFor), "one event for a batch, never one for a task"
            above = parents.get(above)


def test_every_event_is_described_where_they_are_defined() -> None:
    texts = [text for path in PACKAGE.rglob("*.py") if "events.emit(" in (text := path.read_text())]
    told = {ast.literal_eval(call.args[0]) for text in texts for call in emits(ast.parse(text))}
    assert len(told) >= 7 and all(f"    {name} " in (events.__doc__ or "") for name in told)
