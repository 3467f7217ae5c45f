"""A name that is almost right is answered with the right one, and one that belongs elsewhere with its place (M-31)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Horsies,
    PostgresConfig,
    RetryPolicy,
    TaskError,
    TaskResult,
    WorkerRecoveryConfig,
)
from horsies.core.text import explains_keywords, instead_of, nearest
from tests.each import each

app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))
CODES: list[Any] = ["BAD"]


@app.task("known")
def known(order: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=order)


def defined(**options: Any) -> Any:
    @app.task("another", **options)
    def another(order: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=order)

    return another


POLICY = "retry_policy=RetryPolicy.fixed("
CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: defined(queue="mail"), "did you mean 'queue_name'?"),
    (lambda: defined(timeout=3), "did you mean 'timeout_ms'?"),
    (lambda: defined(retry_polcy=3), "did you mean 'retry_policy'?"),
    (lambda: defined(max_retries=3), POLICY),
    (lambda: defined(retries=3), POLICY),
    (lambda: defined(priority=3), "task.with_options(priority=...)"),
    (lambda: defined(colour=3), "the options are accepts, default_unhandled_error_code"),
    (lambda: known.with_options(queu="mail"), "did you mean 'queue'?"),  # type: ignore[call-arg]
    (lambda: known.with_options(max_retries=3), POLICY),  # type: ignore[call-arg]
    (lambda: known.with_options(countdown=3), "use delay=..."),  # type: ignore[call-arg]
    (lambda: known.with_options(colour=3), "the options are connection, delay"),  # type: ignore[call-arg]
    (lambda: known.with_options(queue="default").with_options(priorty=3), "did you mean 'priority'?"),  # type: ignore[call-arg]
    (lambda: known.node(nodeid="x"), "did you mean 'node_id'?"),  # type: ignore[call-arg]
    (lambda: app.workflow("x", [], outpt=None), "did you mean 'output'?"),  # type: ignore[call-overload]
    (lambda: AppConfig.for_database_url("postgresql://h/x", quue_mode=1), "did you mean 'queue_mode'?"),
    (lambda: AppConfig.for_database_url("postgresql://h/x", max_retries=1), POLICY),
    (lambda: PostgresConfig(url="postgresql://h/x"), "did you mean 'database_url'?"),
    (lambda: CustomQueueConfig(name="mail", max_concurency=3), "did you mean 'max_concurrency'?"),
    (lambda: WorkerRecoveryConfig(enable=True), "did you mean 'enabled'?"),
    (lambda: RetryPolicy(auto_retry_for=CODES, max_retry=3), "did you mean 'max_retries'?"),  # type: ignore[call-arg]
    (lambda: RetryPolicy.fixed([60], auto_retry_for=CODES, max_retries=1), "once after each interval"),  # type: ignore[call-arg]
    (lambda: RetryPolicy.exponential(60, max_retries=3, retry_for=CODES), "did you mean 'auto_retry_for'?"),  # type: ignore[call-arg]
    (lambda: known.send(ordr=3).unwrap(), "did you mean 'order'?"),  # type: ignore[call-arg]
]


@each(("mistake", "said"), CASES, ids=[said for _, said in CASES])
def test_m31_a_mistake_in_a_name_is_answered(mistake: Callable[[], Any], said: str) -> None:
    with pytest.raises(Exception) as caught:
        mistake()
    assert said in str(caught.value)


def test_m31_a_name_that_resembles_nothing_gets_no_question() -> None:
    assert nearest("colour", ["queue", "delay"]) is None and instead_of("colour", ["queue"]) == ""
    assert nearest("", ["queue_name"]) is None


def test_m31_the_explained_function_is_the_same_otherwise() -> None:
    def plain(first: int, *, second: int = 2) -> int:
        """Adds."""
        return first + second

    explained = explains_keywords(plain)
    assert explained(1) == 3 and explained(first=2, second=3) == 5
    assert inspect.signature(explained) == inspect.signature(plain) and explained.__doc__ == "Adds."
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        explained()  # type: ignore[call-arg]
