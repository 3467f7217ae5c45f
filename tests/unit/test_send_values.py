"""What a send is made of, without a database: fingerprints, ids, prepared calls, chunks, series of statements."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horsies import AppConfig, Horsies, TaskError, TaskResult, TaskSendPayload
from horsies.core.producer import enqueue as enqueuing
from horsies.core.producer.enqueue import (
    MAX_CHARS,
    MAX_ROWS,
    Sent,
    Steps,
    chunks,
    enqueue,
    in_transaction,
    new_task_id,
    new_task_ids,
    run,
    run_async,
)
from horsies.core.producer.envelope import enqueue_sha
from horsies.core.store.sends import Rows, Send, Statement

APP = Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))
PAYLOAD = TaskSendPayload(
    task_name="t",
    queue_name="default",
    priority=100,
    args_json="[1]",
    kwargs_json=None,
    sent_at=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    good_until=None,
    enqueue_delay_seconds=None,
    task_options=None,
    enqueue_sha="sha",
)


@APP.task("paint")
def paint(n: int, colour: str = "red") -> TaskResult[None, TaskError]:
    return TaskResult(ok=None)


texts = st.text(st.characters(codec=None), max_size=30)  # lone surrogates, NUL and all
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=zones)


@given(
    st.builds(
        TaskSendPayload,
        task_name=texts,
        queue_name=texts,
        priority=st.integers(1, 100),
        args_json=st.none() | texts,
        kwargs_json=st.none() | texts,
        sent_at=times,
        good_until=st.none() | times,
        enqueue_delay_seconds=st.none() | st.integers(0, 10**9),
        task_options=st.none() | texts,
        enqueue_sha=st.just(""),
        flags_json=st.none() | texts,
        idempotency_key=st.none() | texts,
        reuse_after_failure=st.booleans(),
    )
)
def test_t50_the_fingerprint_is_that_of_compact_sorted_json(payload: TaskSendPayload) -> None:
    fields = {name: getattr(payload, name) for name in payload.__slots__ if name != "enqueue_sha"}
    if not payload.reuse_after_failure:
        del fields["reuse_after_failure"]
    for name in ("sent_at", "good_until"):
        if fields[name] is not None:
            fields[name] = fields[name].astimezone(UTC).isoformat(timespec="microseconds")
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert enqueue_sha(payload) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def test_t40_ids_are_uuids_that_sort_as_they_were_taken() -> None:
    one = uuid.UUID(new_task_id())
    assert (one.version, one.variant) == (7, uuid.RFC_4122)
    assert abs((one.int >> 80) / 1000 - datetime.now(UTC).timestamp()) < 60
    many = list(islice(new_task_ids(), 5000))
    assert many == sorted(many) and len(set(many)) == 5000
    assert {uuid.UUID(each).version for each in many} == {7}
    noise = {uuid.UUID(each).int & (1 << 62) - 1 for each in many}
    assert len(noise) == 5000


def test_a_prepared_call_cannot_be_changed() -> None:
    given_to_it: dict[str, Any] = {"n": 1}
    call = paint.with_options(flags=["big"]).prepare(**given_to_it)
    given_to_it["n"] = 2
    assert dict(call.kwargs) == {"n": 1}
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.args = (2,)  # type: ignore[misc]
    with pytest.raises(TypeError):
        call.kwargs["n"] = 3  # type: ignore[index]


def send(task_id: str, **changes: Any) -> Send:
    return Send(task_id, dataclasses.replace(PAYLOAD, **changes))


def test_chunks_are_small_in_number_and_in_text() -> None:
    assert list(chunks([])) == []
    assert [len(places) for places in chunks([send(str(n)) for n in range(2 * MAX_ROWS + 1)])] == [
        MAX_ROWS,
        MAX_ROWS,
        1,
    ]
    big = "x" * (MAX_CHARS // 2)
    assert [len(places) for places in chunks([send(str(n), args_json=big) for n in range(5)])] == [2, 2, 1]


class Database:
    """Answers statements in turn, with rows or by raising; remembers their first word."""

    def __init__(self, *answers: Rows | BaseException) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def execute(self, statement: Statement) -> Rows:
        lines = [line for line in statement.text.splitlines() if not line.startswith("--")]
        self.asked.append(lines[0].split()[0])
        answer = self.answers.pop(0) if self.answers and statement.params is not None else ()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def two(rows_of: list[Rows]) -> Steps[str]:
    rows_of.append((yield Statement("SELECT 1", {})))
    rows_of.append((yield Statement("SELECT 2", {})))
    return "done"


async def test_the_first_problem_is_the_one_that_is_told() -> None:
    """A connection that breaks in the middle cannot roll back either."""

    async def broken(statement: Statement) -> Rows:
        if statement.text == "ROLLBACK":
            raise ConnectionError("and this comes of it")
        if statement.params is not None:
            raise ConnectionError("this is why")
        return ()

    with pytest.raises(ConnectionError, match="this is why"):
        await run_async(in_transaction(two([])), broken)


def test_t54_a_row_that_comes_and_goes_is_tried_again_and_then_told() -> None:
    database = Database([], [], [("a",)])
    assert run(enqueue([send("a")]), database.execute) == [Sent("a")]
    assert database.asked == ["INSERT", "SELECT", "INSERT"]
    database = Database()
    with pytest.raises(Exception, match="appeared and disappeared"):
        run(enqueue([send("a")]), database.execute)
    assert database.asked == ["INSERT", "SELECT"] * enqueuing.TRIES
