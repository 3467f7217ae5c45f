"""A send that failed is logged, unless somebody has looked at it (T-48a)."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from horsies import AppConfig, Err, Horsies, TaskSendError, TaskSendErrorCode, TaskSendFailed, is_err
from horsies.core.producer import failed_sends
from horsies.core.producer.failed_sends import FailedSend

NOWHERE = "postgresql://nobody:s3cr3t@127.0.0.1:1/nowhere"
LOGGER = "horsies.send"


@pytest.fixture
def app() -> Iterator[Horsies]:
    made = Horsies(AppConfig.for_database_url(NOWHERE))

    @made.task("greet")
    def greet(name: str) -> str:
        return f"hello {name}"

    yield made
    made.get_broker().close()


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_sends, "_LINES", failed_sends._Lines())


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


def an_error(code: TaskSendErrorCode = TaskSendErrorCode.ENQUEUE_FAILED, text: str = "no") -> TaskSendError:
    return TaskSendError(code, f"task 'greet': {text}")


@pytest.mark.parametrize("way", ["send", "schedule", "send_many", "with_options"])
def test_t48a_a_send_that_nobody_looks_at_is_logged(app: Horsies, caplog: pytest.LogCaptureFixture, way: str) -> None:
    greet: Any = app.tasks["greet"]
    {
        "send": lambda: greet.send(5),
        "schedule": lambda: greet.schedule(1, 5),
        "send_many": lambda: greet.send_many([(5,)]),
        "with_options": lambda: greet.with_options(flags=["a"]).send(5),
    }[way]()
    [line] = lines(caplog)
    assert line.startswith("a send of task greet failed, and nobody looked: VALIDATION_FAILED: ")
    assert "name" in line and "s3cr3t" not in line
    assert caplog.records[-1].levelno == logging.WARNING


def test_t48a_the_database_is_away(app: Horsies, caplog: pytest.LogCaptureFixture) -> None:
    async def fire_and_forget() -> None:
        greet: Any = app.tasks["greet"]
        await greet.send_async("you")

    asyncio.run(fire_and_forget())
    [line] = lines(caplog)
    assert "ENQUEUE_FAILED" in line and "s3cr3t" not in line


def _matched(result: Any) -> None:
    match result:
        case Err(error):
            assert error.message


LOOKS: dict[str, Callable[[Any], object]] = {
    "is_err()": lambda result: result.is_err(),
    "is_ok()": lambda result: result.is_ok(),
    "is_err(result)": is_err,
    "error": lambda result: result.error,
    "err_value": lambda result: result.err_value,
    "match": _matched,
    "unwrap_or": lambda result: result.unwrap_or(None),
    "repr": repr,
    "==": lambda result: result == Err(1),
}


@pytest.mark.parametrize("look", LOOKS)
def test_t48a_who_looks_is_told_nothing_more(caplog: pytest.LogCaptureFixture, look: str) -> None:
    LOOKS[look](FailedSend(an_error(), "greet"))
    assert lines(caplog) == []


def test_t48a_one_line_for_each_code_in_ten_seconds_with_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(failed_sends, "monotonic", lambda: now[0])
    for _ in range(5):
        FailedSend(an_error(), "greet")
    FailedSend(an_error(TaskSendErrorCode.VALIDATION_FAILED), "greet")
    assert [line.split(": ")[1] for line in lines(caplog)] == ["ENQUEUE_FAILED", "VALIDATION_FAILED"]
    now[0] += 10
    FailedSend(an_error(), "greet")
    assert lines(caplog)[-1].endswith("(4 more with this code since the last line)")


def test_t48a_what_is_suppressed_at_import_is_not_a_failure(app: Horsies, caplog: pytest.LogCaptureFixture) -> None:
    app.suppress_sends(True)
    app.tasks["greet"].send("you")
    assert lines(caplog) == []


def test_t48a_unwrap_raises_what_went_wrong_with_its_cause(app: Horsies) -> None:
    greet: Any = app.tasks["greet"]
    with pytest.raises(TaskSendFailed) as raised:
        greet.send("you").unwrap()
    assert str(raised.value).startswith("ENQUEUE_FAILED: task 'greet': ")
    assert raised.value.error.retryable and raised.value.__cause__ is raised.value.error.exception
    assert isinstance(raised.value, ValueError), "as unwrap() of any Err"
    with pytest.raises(TaskSendFailed, match=r"^no mail today: ENQUEUE_FAILED"):
        greet.send("you").expect("no mail today")


def test_t40_send_or_raise(app: Horsies) -> None:
    greet: Any = app.tasks["greet"]
    with pytest.raises(TaskSendFailed, match="VALIDATION_FAILED"):
        greet.send_or_raise(5)
    with pytest.raises(TaskSendFailed, match="VALIDATION_FAILED"):
        asyncio.run(greet.with_options(flags=["a"]).send_or_raise_async(5))


def test_t48a_it_is_an_err_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    error = an_error()
    failed = FailedSend(error, "greet")
    assert failed == Err(error) and hash(failed) == hash(Err(error)) and repr(failed) == repr(Err(error))
    assert type(copy.copy(failed)) is Err and failed.map(len) is failed
