"""What one send may do differently from the definition of its task (T-43), and when it is due (T-44)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Err,
    Horsies,
    Ok,
    PostgresConfig,
    QueueMode,
    RetryPolicy,
    TaskSendError,
    TaskSendPayload,
)
from horsies.core.producer import envelope
from horsies.core.tasks.definition import NO_OPTIONS

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)


@pytest.fixture
def mail() -> Any:
    queues = [CustomQueueConfig(name="fast", priority=1), CustomQueueConfig(name="slow", priority=50)]
    broker = PostgresConfig(database_url="postgresql://u:p@h/d")
    app = Horsies(AppConfig(broker=broker, queue_mode=QueueMode.CUSTOM, custom_queues=queues))

    @app.task("mail", queue_name="slow", timeout_ms=5_000, retry_policy=RetryPolicy.fixed([1], auto_retry_for=["BUSY"]))
    def mail(to: str) -> None: ...

    return mail


def built(task: Any, after: Any = None, **options: Any) -> TaskSendPayload:
    result = envelope.build(task, ("a@b",), {}, task.with_options(**options).prepare("a@b").options, NOW, after)
    assert isinstance(result, Ok), result
    return result.value


def refused(task: Any, after: Any = None, **options: Any) -> str:
    result = envelope.build(task, ("a@b",), {}, task.with_options(**options).prepare("a@b").options, NOW, after)
    assert isinstance(result, Err) and isinstance(result.error, TaskSendError)
    assert result.error.code == "VALIDATION_FAILED"
    return result.error.message


def test_t43_without_options_the_definition_holds(mail: Any) -> None:
    payload = built(mail)
    assert (payload.queue_name, payload.priority, payload.task_options) == ("slow", 50, mail.options_json)
    assert payload == envelope.build(mail, ("a@b",), {}, NO_OPTIONS, NOW).unwrap()


def test_t43_another_queue_comes_with_its_priority_and_a_priority_by_itself(mail: Any) -> None:
    assert (built(mail, queue="fast").queue_name, built(mail, queue="fast").priority) == ("fast", 1)
    assert (built(mail, priority=7).queue_name, built(mail, priority=7).priority) == ("slow", 7)
    assert built(mail, queue="fast", priority=9).priority == 9
    assert "there is no queue 'other'; known: fast, slow" in refused(mail, queue="other")
    for wrong in (0, 101, True, 1.5, "1"):
        assert "priority must be a whole number from 1" in refused(mail, priority=wrong)


def test_t43_time_limit_and_retry_policy_replace_each_its_own(mail: Any) -> None:
    limited = json.loads(built(mail, timeout_ms=60_000).task_options or "")
    assert limited == {**json.loads(mail.options_json), "timeout_ms": 60_000}
    policy = RetryPolicy.fixed([5, 6], auto_retry_for=["BUSY"])
    patient = json.loads(built(mail, retry_policy=policy).task_options or "")
    assert patient["timeout_ms"] == 5_000 and patient != json.loads(mail.options_json)
    assert "timeout_ms must be an integer from 1000" in refused(mail, timeout_ms=10)
    assert "retry_policy must be a RetryPolicy" in refused(mail, retry_policy=3)


BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [
        (0, 0),
        (90, 90),
        (0.25, 0.25),
        (timedelta(minutes=2), 120),
        (timedelta(milliseconds=1), 0.001),
        (NOW + timedelta(hours=1), 3600),
        (datetime(2026, 11, 17, 13, 0, 5, tzinfo=BERLIN), 5),
        (NOW - timedelta(days=1), 0),
    ],
)
def test_t44_seconds_timedelta_and_datetime(mail: Any, delay: Any, seconds: float) -> None:
    payload = built(mail, delay)
    assert payload.enqueue_delay_seconds == seconds
    assert envelope.is_intact(payload)
    option = {"eta": delay} if isinstance(delay, datetime) else {"delay": delay}
    assert built(mail, **option).enqueue_delay_seconds == seconds


@pytest.mark.parametrize(
    ("delay", "said"),
    [
        (-1, "from 0 to"),
        (math.nan, "from 0 to"),
        (math.inf, "from 0 to"),
        (timedelta(days=-1), "from 0 to"),
        (11 * 365 * 86_400, "ten years"),
        ("5", "not str"),
        (True, "not bool"),
        (datetime(2026, 11, 18), "must have a time zone"),
    ],
)
def test_t44_other_delays_are_refused(mail: Any, delay: Any, said: str) -> None:
    assert said in refused(mail, delay)


def test_t44_when_it_is_due_is_said_once(mail: Any) -> None:
    for given in ({"delay": 5, "eta": NOW}, {"eta": NOW}, {"delay": 5}):
        delay = None if len(given) == 2 else 3
        assert "is given twice" in refused(mail, delay, **given)
    assert "eta must be a datetime, not int" in refused(mail, eta=5)


def test_t43_options_of_a_prepared_call_go_before_those_of_the_batch(mail: Any) -> None:
    own = mail.with_options(queue="fast", delay=3).prepare("a@b").options
    batch = mail.with_options(queue="slow", priority=3, timeout_ms=60_000).prepare("a@b").options
    both = own.with_defaults(batch)
    assert (both.queue, both.priority, both.timeout_ms, both.delay) == ("fast", 3, 60_000, 3)
    assert (
        mail.with_options(priority=3).with_options(priority=None, queue="fast").prepare("a@b").options.priority is None
    )
