"""From a call to a payload (T-16, T-17, T-37, T-41 to T-50, T-52, T-53, T-57)."""

from __future__ import annotations

import dataclasses
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horsies import (
    AppConfig,
    Err,
    Horsies,
    Ok,
    PayloadPolicy,
    RetryPolicy,
    TaskError,
    TaskResult,
    TaskSendError,
    TaskSendErrorCode,
    TaskSendPayload,
)
from horsies.core.producer import envelope
from horsies.core.tasks.definition import NO_OPTIONS, SendOptions
from tests.each import each

SENT_AT = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
LATER = datetime(2026, 1, 3, tzinfo=UTC)


def app_with(**fields: Any) -> Horsies:
    return Horsies(AppConfig.for_database_url("postgresql://u:p@h/d", **fields))


APP = app_with()


@APP.task("resize", flags={"big": True, "slow": True}, timeout_ms=5000)
def resize(name: str, width: int = 10, **more: int) -> TaskResult[int, TaskError]:
    return TaskResult(ok=width)


@APP.task("owns_the_name")
def owns_the_name(good_until: str) -> TaskResult[str, TaskError]:
    return TaskResult(ok=good_until)


@APP.task("retried", retry_policy=RetryPolicy.fixed([5], auto_retry_for=["BUSY"]))
def retried() -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


def build(task: Any, *args: Any, options: SendOptions = NO_OPTIONS, delay: Any = None, **kwargs: Any) -> Any:
    return envelope.build(task, args, kwargs, options, SENT_AT, delay)


def refused(made: Any) -> str:
    assert isinstance(made, Err), made
    error: TaskSendError = made.error
    assert (error.code, error.retryable) == (TaskSendErrorCode.VALIDATION_FAILED, False)
    assert (error.task_id, error.payload) == (None, None)
    return error.message


def test_t49_the_payload() -> None:
    assert build(resize, "img", width=3, options=SendOptions(LATER, "key", ["extra"]), delay=7) == Ok(
        TaskSendPayload(
            task_name="resize",
            queue_name="default",
            priority=100,
            args_json='["img"]',
            kwargs_json='{"width":3}',
            sent_at=SENT_AT,
            good_until=LATER,
            enqueue_delay_seconds=7,
            task_options='{"timeout_ms":5000}',
            enqueue_sha=build(resize, "img", width=3, options=SendOptions(LATER, "key", ["extra"]), delay=7)
            .unwrap()
            .enqueue_sha,
            flags_json='{"big":true,"extra":true,"slow":true}',
            idempotency_key="key",
        )
    )


def test_t41_a_deadline_on_the_call() -> None:
    payload = build(resize, "img", good_until=LATER).unwrap()
    assert (payload.good_until, payload.kwargs_json) == (LATER, None)


def test_t41_the_call_wins_over_the_option() -> None:
    options = SendOptions(good_until=LATER)
    assert build(resize, "img", options=options).unwrap().good_until == LATER
    assert build(resize, "img", options=options, good_until=SENT_AT).unwrap().good_until == SENT_AT
    assert build(resize, "img", options=options, good_until=None).unwrap().good_until is None


def test_t41_a_parameter_of_that_name_belongs_to_the_function() -> None:
    payload = build(owns_the_name, good_until="noon", options=SendOptions(good_until=LATER)).unwrap()
    assert (payload.kwargs_json, payload.good_until) == ('{"good_until":"noon"}', LATER)


@each("deadline", [datetime(2026, 1, 1), "2026-01-01", 5, timedelta(1)])
def test_t42_a_deadline_needs_a_time_zone(deadline: Any) -> None:
    assert "good_until" in refused(build(resize, "img", good_until=deadline))
    assert "good_until" in refused(build(resize, "img", options=SendOptions(good_until=deadline)))


def test_t42_a_past_deadline_is_accepted() -> None:
    past = SENT_AT - timedelta(days=1)
    assert build(resize, "img", good_until=past).unwrap().good_until == past


def test_t43_the_builder_is_immutable_and_clears_with_none() -> None:
    first = resize.with_options(good_until=LATER, idempotency_key="k")
    second = first.with_options(good_until=None)
    third = second.with_options(flags=["a"])
    assert first.prepare("img").options == SendOptions(LATER, "k", None)
    assert second.prepare("img").options == SendOptions(None, "k", None)
    assert third.prepare("img").options == SendOptions(None, "k", ["a"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        first._send_options = SendOptions()  # type: ignore[misc]


def test_t44_a_delay_of_zero_is_still_a_schedule() -> None:
    assert build(resize, "img", delay=0).unwrap().enqueue_delay_seconds == 0
    assert build(resize, "img").unwrap().enqueue_delay_seconds is None


def test_t45_missing_argument_is_validation_failed_from_send_itself() -> None:
    for sent in (resize.send(), resize.schedule(5), resize.with_options().send()):  # type: ignore[call-arg]
        assert "missing" in refused(sent)
    assert "delay" in refused(resize.schedule(None, "img"))  # type: ignore[arg-type]
    assert "delay" in refused(resize.with_options().schedule(-1, "img"))


async def test_t45_the_async_twins_judge_alike() -> None:
    options = resize.with_options()
    for sending in (
        resize.send_async(),  # type: ignore[call-arg]
        resize.schedule_async(5),  # type: ignore[call-arg]
        options.send_async(),  # type: ignore[call-arg]
        options.schedule_async(5),  # type: ignore[call-arg]
    ):
        assert "missing" in refused(await sending)


def test_t16_the_queue_is_checked_at_the_send() -> None:
    app = app_with()
    task = app.task("t")(retried.fn)
    task.queue_name = "elsewhere"
    assert "there is no queue 'elsewhere'" in refused(build(task))


def test_t47_suppressed_sends_write_nothing() -> None:
    app = app_with()
    task = app.task("t")(retried.fn)
    app.suppress_sends(True)
    failed = TaskSendError(TaskSendErrorCode.ENQUEUE_FAILED, "x", "id", build(task).unwrap(), retryable=True)
    for sent in (task.send(), task.schedule(1), task.with_options().send(), task.retry_send(failed)):
        error = sent.err_value
        assert (error.code, error.retryable) == (TaskSendErrorCode.SEND_SUPPRESSED, False)
        assert (error.task_id, error.payload) == (None, None)


def test_t17_large_payloads_warn_once_per_task(caplog) -> None:
    app = app_with(payload=PayloadPolicy(warn_bytes=10))
    one, two = app.task("one")(resize.fn), app.task("two")(resize.fn)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert build(one, "ü" * 6).is_ok()
        assert [record.args[0] for record in caplog.records] == ["one"]  # type: ignore[index]
        build(two, "ü" * 6)
        build(two, "u")
    assert [record.args[0] for record in caplog.records] == ["one", "two"]  # type: ignore[index]


@each(("text", "fits"), [("a" * 16, True), ("a" * 17, False), ("ü" * 8, True), ("ü" * 9, False)])
def test_t17_reject_bytes_counts_bytes_of_the_json(text: str, fits: bool) -> None:
    app = app_with(payload=PayloadPolicy(warn_bytes=None, reject_bytes=20))  # ["…"] has four more
    made = build(app.task("t")(resize.fn), text)
    assert made.is_ok() is fits
    if not fits:
        assert (made.error.code, made.error.retryable) == (TaskSendErrorCode.PAYLOAD_TOO_LARGE, False)


def test_t17_reject_bytes_counts_both_texts() -> None:
    app = app_with(payload=PayloadPolicy(reject_bytes=20))
    assert build(app.task("t")(resize.fn), "aaaa", width=1).is_ok()
    assert build(app.task("u")(resize.fn), "aaaaa", width=10).is_err()


def test_t37_send_time_flags_are_merged_over_the_tasks() -> None:
    made = build(resize, "img", options=SendOptions(flags={"slow": False, "new": True})).unwrap()
    assert json.loads(made.flags_json) == {"big": True, "slow": False, "new": True}
    assert build(retried).unwrap().flags_json is None


@each("flags", [["Bad"], "a", {"a": "yes"}, [""], ["a" * 65], [5], 5])
def test_t37_bad_flags(flags: Any) -> None:
    assert "flag" in refused(build(resize, "img", options=SendOptions(flags=flags)))


@each("key", ["", "x" * 256, "a\0", "\ud800", 5])
def test_t57_bad_idempotency_keys(key: Any) -> None:
    assert "idempotency key" in refused(build(resize, "img", options=SendOptions(idempotency_key=key)))
    assert build(resize, "img", options=SendOptions(idempotency_key="x" * 255)).is_ok()


def test_t48_errors_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TaskSendError(TaskSendErrorCode.ENQUEUE_FAILED, "down").message = "x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        build(retried).unwrap().priority = 1
