"""The mistakes users make, and what they are told: what is wrong, where, and what to do. Nothing is sent or registered.
What goes wrong inside a task is in e2e/test_worker_runs_tasks.py, a bad database in e2e/test_bad_database.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from horsies import (
    AppConfig,
    CustomQueueConfig,
    ErrorCode,
    Horsies,
    HorsiesError,
    PayloadPolicy,
    QueueMode,
    TaskError,
    TaskResult,
    TaskSendErrorCode,
)
from tests.each import each

URL = "postgresql://u:topsecret@127.0.0.1:1/none"  # nothing listens there: a send that got through would say so


def an_app(**fields: Any) -> Horsies:
    return Horsies(AppConfig.for_database_url(URL, **fields))


APP = an_app(payload=PayloadPolicy(reject_bytes=200))


@APP.task("resize")
def resize(name: str, width: float = 1.0, password: str = "") -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


REFUSED_SENDS: list[tuple[str, tuple[Any, ...], dict[str, Any], list[str]]] = [
    ("missing", (), {}, ["missing argument(s): 'name'"]),
    ("too many", ("a", 1.0, "b", 2), {}, ["takes 3 positional argument(s), 4 were given"]),
    ("unknown", ("a",), {"height": 3}, ["unknown argument 'height'"]),
    ("twice", ("a",), {"name": "b"}, ["'name' was given twice"]),
    ("wrong type", ("a", "wide"), {}, ["width", "valid number"]),
    ("NaN", ("a", math.nan), {}, ["width", "NaN and Infinity cannot be sent"]),
    ("Infinity", ("a", -math.inf), {}, ["width", "NaN and Infinity cannot be sent"]),
    ("surrogate", ("\ud800",), {}, ["name", "lone surrogates"]),
    ("naive deadline", ("a",), {"good_until": datetime(2030, 1, 1)}, ["good_until", "time zone", "datetime.now(UTC)"]),
    ("no deadline", ("a",), {"good_until": "tomorrow"}, ["good_until", "datetime", "str"]),
]


@each(("args", "kwargs", "words"), [case[1:] for case in REFUSED_SENDS], ids=[case[0] for case in REFUSED_SENDS])
def test_t106_a_bad_send_says_which_argument_and_why(
    args: tuple[Any, ...], kwargs: dict[str, Any], words: list[str]
) -> None:
    error = resize.send(*args, **kwargs).unwrap_err()
    assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False)
    assert (error.task_id, error.payload) == (None, None)
    for word in ("task 'resize'", *words):
        assert word in error.message


def test_t104_a_value_that_is_refused_is_not_repeated() -> None:
    error = resize.send("a", 1.0, b"hunter2").unwrap_err()  # type: ignore[arg-type]
    assert "password" in error.message and "hunter2" not in f"{error}{error.exception!r}"


def test_t17_a_payload_that_is_too_large_says_how_large_and_what_to_do() -> None:
    for sent in (resize.send("x" * 300), resize.schedule(5, "x" * 300), resize.with_options().send("x" * 300)):
        error = sent.unwrap_err()
        assert (error.code, error.retryable) == (TaskSendErrorCode.PAYLOAD_TOO_LARGE, False)
        for word in ("task 'resize'", "304 bytes", "200", "PayloadPolicy.reject_bytes", "send a reference to it"):
            assert word in error.message


def test_t46_the_steps_of_a_send_come_in_their_order() -> None:
    """Each of these sends is wrong in two ways; the earlier step is the one that is told."""
    app = an_app(payload=PayloadPolicy(reject_bytes=20))
    task = app.task("t")(resize.fn)
    assert task.send("x" * 300, bad=1).unwrap_err().code is TaskSendErrorCode.VALIDATION_FAILED  # bind, then size
    assert "NaN" in task.send("x" * 300, math.nan).unwrap_err().message  # serialize, then size
    task.queue_name = "elsewhere"
    assert "no queue 'elsewhere'" in task.send().unwrap_err().message  # queue, then bind
    app.suppress_sends(True)
    assert task.send().unwrap_err().code is TaskSendErrorCode.SEND_SUPPRESSED


# Definitions


def nothing_said(a: int):  # type: ignore[no-untyped-def]
    return TaskResult(ok=a)


def plain(a: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a)


def other(a: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=a)


def shown(define: Callable[[], object]) -> str:
    with pytest.raises(HorsiesError) as caught:
        define()
    return caught.value.format_rust_style()


def test_t21_a_task_without_return_type_is_shown_with_what_to_write() -> None:
    app = an_app()
    text = shown(lambda: app.task("t")(nothing_said))
    assert text.startswith(f"error[{ErrorCode.TASK_NO_RETURN_TYPE}]: ")
    for word in ("nothing_said", "test_bad_input.py:", "def nothing_said(a: int):", "-> TaskResult[int, TaskError]"):
        assert word in text
    assert app.list_tasks() == []


def test_t21_two_tasks_with_one_name_are_shown_with_both_places() -> None:
    app = an_app()
    app.task("t")(plain)
    text = shown(lambda: app.task("t")(other))
    assert text.startswith(f"error[{ErrorCode.TASK_DUPLICATE_NAME}]: ")
    for word in ("'t'", "def other(a: int)", "the first one is plain at", "test_bad_input.py:", "another name"):
        assert word in text
    assert app.tasks["t"].fn is plain, "the first one stays"


def test_t13_an_unknown_queue_is_shown_with_those_there_are() -> None:
    app = an_app(queue_mode=QueueMode.CUSTOM, custom_queues=[CustomQueueConfig(name="mail")])
    for text in (
        shown(lambda: app.task("t", queue_name="post")(plain)),
        shown(lambda: app.validate_queue_name("post")),
    ):
        assert text.startswith(f"error[{ErrorCode.TASK_INVALID_QUEUE}]: ")
        assert "'post'" in text and "mail" in text
    assert app.list_tasks() == []


@each("url", ["mysql://u:topsecret@h/x", "postgresql+asyncpg://u:topsecret@h/x", "u:topsecret@h", ""])
def test_t10_a_wrong_url_is_shown_with_the_right_ones(url: str) -> None:
    text = shown(lambda: AppConfig.for_database_url(url))
    assert text.startswith(f"error[{ErrorCode.BROKER_INVALID_URL}]: ")
    assert "postgresql://" in text and "topsecret" not in text
