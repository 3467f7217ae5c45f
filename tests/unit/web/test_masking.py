"""What is not shown (M-93): arguments, results, options and error texts, hidden altogether, by name, or by a function.
Every text of every answer is either known as a payload or known to be none."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from typing import Any, get_args, get_origin, get_type_hints

from horsies.core.models.monitoring.cluster import ScheduleStateInfo, Snapshot
from horsies.core.models.monitoring.tasks import (
    TaskDetail,
    TaskListPage,
    TaskSummary,
    WorkflowNodeInfo,
    WorkflowRunDetail,
    WorkflowTaskDetail,
)
from horsies.core.models.notes import TaskLogLine, TaskProgress
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.monitoring.masking import FINGERPRINTS, JSON_TEXTS, MASK, PLAIN_TEXTS, Masking
from horsies.core.types import TaskStatus
from horsies.web.app import ENDPOINTS
from tests.each import each

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "hunter2-and-more"

# Texts that are no payloads: names, ids, codes, states, and our own sentences.
KNOWN_TEXTS = {
    "task_id", "task_name", "queue_name", "error_code", "worker_id", "worker_hostname", "workflow_id", "next_cursor",
    "sent_by",
    "claimed_by_worker_id", "worker_process_name", "name", "definition_key", "parent_workflow_id",
    "root_workflow_id", "node_id", "node_type", "sub_workflow_id", "join_type", "on_error", "sub_workflow_key", "value",
    "code", "hostname", "last_task_id", "config_hash", "server_version", "notify", "queue", "subject", "rerun_of",
    "actions_disabled_reason", "title", "version", "message", "action", "actor",
    "target_kind", "outcome", "example_task_id", "kind", "oldest_due_task_id",
}  # fmt: skip
# Mappings and lists that are no payloads.
KNOWN_OTHERS = {
    "flags", "queues", "task_names", "queue_priorities", "queue_max_concurrency", "success_policy", "args_from",
    "previous_task_ids", "missing", "workflow_counts", "facts", "tasks", "nodes", "silent", "worker_ids", "ids",
    "changed_ids", "new_ids", "skipped", "target_ids", "details", "remedies",
}  # fmt: skip
# What a task has logged can only be hidden as a whole, and its route does that (`tests/services/web/test_programs.py`).
LOGGED = {"TaskLogLine.level", "TaskLogLine.logger", "TaskLogLine.text"}


def of_type(kind: type, **values: Any) -> Any:
    """A record whose other fields are empty."""
    empty = {field.name: None for field in fields(kind)}
    return kind(**{**empty, **values})


def detail(**values: Any) -> TaskDetail:
    return of_type(TaskDetail, **{"task_name": "login", "status": TaskStatus.FAILED, "attempts": (), **values})


def positional(task_name: str) -> Sequence[str] | None:
    return ("user", "password") if task_name == "login" else None


def by_name(*names: str) -> Masking:
    return Masking.of(names, positional=positional)


def answers() -> Iterator[Any]:
    for endpoint in ENDPOINTS:
        yield from records(endpoint.answer)


def records(kind: Any) -> Iterator[type]:
    """The records that an answer of this type may have."""
    if is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from records(hint)
    for part in get_args(kind) if get_origin(kind) is not typing.Literal else ():
        yield from records(part)


def has_text(hint: Any) -> bool:
    """Whether a value of this type may have a text that is in no record of its own."""
    if hint in (str, Any):
        return True
    return get_origin(hint) is not typing.Literal and any(has_text(part) for part in get_args(hint))


def test_m93_every_text_of_every_answer_is_a_payload_or_known_to_be_none() -> None:
    known = {*KNOWN_TEXTS, *KNOWN_OTHERS, *JSON_TEXTS, *PLAIN_TEXTS, *FINGERPRINTS, "definition"}
    unknown = {
        f"{kind.__name__}.{name}"
        for kind in answers()
        for name, hint in get_type_hints(kind).items()
        if has_text(hint) and name not in known
    }
    assert unknown - LOGGED == set(), "say in masking.py or here what they are"


def test_m93_without_a_mask_nothing_changes() -> None:
    task = detail(args=f'["{SECRET}"]')
    assert Masking().is_off and Masking().applied_to(task) is task


def test_m93_payloads_are_hidden_altogether() -> None:
    attempt = of_type(TaskAttemptInfo, error_message=SECRET, failed_reason=SECRET, error_code="X")
    task = detail(
        args=f'["{SECRET}"]',
        kwargs=f'{{"a": "{SECRET}"}}',
        result=f'{{"ok": "{SECRET}"}}',
        failed_reason=SECRET,
        task_options=f'{{"x": "{SECRET}"}}',
        enqueue_sha="abc",
        idempotency_key=f"of {SECRET}",
        error_code="X",
        attempts=(attempt,),
        progress=TaskProgress(1, 2, SECRET, 1, NOW),
    )
    shown = Masking(hides_all=True).applied_to(task)
    assert SECRET not in repr(shown)
    assert json.loads(shown.args or "") == MASK and shown.failed_reason == MASK and shown.enqueue_sha is None
    assert (shown.error_code, shown.attempts[0].error_code, shown.task_name) == ("X", "X", "login")
    nothing = Masking(hides_all=True).applied_to(detail())
    assert nothing.args is None and nothing.failed_reason is None, "what is not there is not there"


@each("kind", [WorkflowRunDetail, WorkflowTaskDetail, TaskListPage, Snapshot])
def test_m93_payloads_are_hidden_wherever_they_are(kind: type) -> None:
    node = of_type(WorkflowNodeInfo, task_name="login", node_id="n")
    schedule = of_type(ScheduleStateInfo, name="s", definition={"task_name": "t", "kwargs": {"a": SECRET}, "x": SECRET})
    values = {
        "result": f'{{"ok": "{SECRET}"}}',
        "error": f'{{"message": "{SECRET}"}}',
        "task_kwargs": f'{{"a": "{SECRET}"}}',
        "sub_workflow_summary": f'{{"output": "{SECRET}"}}',
        "task": detail(args=f'["{SECRET}"]'),
        "node": node,
        "nodes": (node,),
        "items": (replace(of_type(WorkflowNodeInfo), task_name="x"),),
        "schedules": (schedule,),
    }
    named = {field.name for field in fields(kind)}
    record = of_type(kind, **{name: value for name, value in values.items() if name in named})
    assert SECRET not in repr(Masking(hides_all=True).applied_to(record))


def test_m93_a_mask_by_name_finds_its_keys_at_any_depth() -> None:
    task = detail(
        kwargs=json.dumps({"Password": SECRET, "deep": [{"password": 12345678}, {"passwordless": "shown"}], "n": None}),
        result=json.dumps({"ok": {"password": None, "user": "ada"}}),
    )
    shown = by_name("password").applied_to(task)
    assert json.loads(shown.kwargs or "") == {
        "Password": MASK,
        "deep": [{"password": MASK}, {"passwordless": "shown"}],
        "n": None,
    }
    assert json.loads(shown.result or "") == {"ok": {"password": None, "user": "ada"}}


def test_m93_positional_arguments_are_masked_by_the_names_of_their_parameters() -> None:
    task = detail(args=json.dumps(["ada", SECRET, "one more"]))
    assert json.loads(by_name("password").applied_to(task).args or "") == ["ada", MASK, MASK]
    assert json.loads(by_name("user").applied_to(task).args or "") == [MASK, SECRET, MASK]


def test_m93_positional_arguments_of_an_unknown_task_are_masked_all() -> None:
    task = detail(task_name="nobody_knows", args=json.dumps(["ada", SECRET]))
    assert json.loads(by_name("password").applied_to(task).args or "") == [MASK, MASK]


def test_m93_a_masked_value_is_masked_in_the_other_texts_too() -> None:
    attempt = of_type(TaskAttemptInfo, error_message=f"wrong password {SECRET}!", failed_reason=f"in f({SECRET!r})")
    task = detail(
        kwargs=json.dumps({"password": SECRET, "note": f"it is {SECRET}"}),
        args=json.dumps(["ada"]),
        result=json.dumps({"err": {"message": f"no user with {SECRET}"}}),
        failed_reason=f"Traceback: {SECRET}",
        attempts=(attempt,),
        progress=TaskProgress(1, 2, f"trying {SECRET}", 1, NOW),
    )
    shown = by_name("password").applied_to(task)
    assert SECRET not in repr(shown) and "ada" in (shown.args or "")
    assert shown.failed_reason == f"Traceback: {MASK}"
    assert shown.attempts[0].error_message == f"wrong password {MASK}!"


def test_m93_an_idempotency_key_may_repeat_a_masked_value() -> None:
    task = detail(kwargs=json.dumps({"password": SECRET}), idempotency_key=f"login-{SECRET}")
    assert by_name("password").applied_to(task).idempotency_key == f"login-{MASK}"
    assert Masking.of(lambda _task, field, value: f"({field})").applied_to(task).idempotency_key == "(idempotency_key)"


def test_m93_what_a_task_says_is_not_shown_where_its_arguments_are_not() -> None:
    task = of_type(TaskSummary, task_name="login", progress=TaskProgress(1, 2, SECRET, 1, NOW))
    silent = of_type(TaskSummary, task_name="login", progress=TaskProgress(1, 2, None, 1, NOW))
    page = of_type(TaskListPage, items=(task, silent))
    shown = by_name("password").applied_to(page)
    assert [one.progress.message for one in shown.items if one.progress] == [MASK, None]
    assert shown.items[0].progress == replace(task.progress, message=MASK), "how far it has come is no secret"


def test_m93_the_error_of_a_workflow_is_not_shown_where_no_arguments_are() -> None:
    error = {"error_code": "X", "message": f"wrong {SECRET}"}
    run = of_type(WorkflowRunDetail, error=json.dumps(error), result=json.dumps({"err": error}))
    shown = by_name("password").applied_to(run)
    assert (shown.error, shown.result) == (json.dumps(MASK), json.dumps({"err": MASK}))
    mapped = of_type(WorkflowRunDetail, result=json.dumps({"ok": [{"ok": 5}, {"err": error}], "password": SECRET}))
    shown = by_name("password").applied_to(mapped)
    assert json.loads(shown.result or "") == {"ok": [{"ok": 5}, {"err": MASK}], "password": MASK}


def test_m93_a_node_is_judged_by_the_arguments_of_its_task() -> None:
    """A value that comes from another node is only in the arguments of the task."""
    node = of_type(WorkflowNodeInfo, task_name="login", node_id="n")
    result = json.dumps({"err": {"message": f"no user with {SECRET}"}})
    task = detail(kwargs=json.dumps({"password": SECRET}), result=result)
    record = of_type(WorkflowTaskDetail, node=node, task_kwargs="{}", args_from={"password": 0}, result=result)
    shown = by_name("password").applied_to(replace(record, task=task))
    assert SECRET not in repr(shown)
    assert json.loads(shown.result or "") == {"err": {"message": f"no user with {MASK}"}}
    summary = json.dumps({"output": 5, "error_summary": SECRET})
    shown = by_name("password").applied_to(replace(record, sub_workflow_summary=summary))
    assert json.loads(shown.result or "") == {"err": MASK}, "without the task nobody knows"
    assert json.loads(shown.sub_workflow_summary or "") == {"output": 5, "error_summary": MASK}


@each("kwargs", ["not json", f'"{SECRET}"', f'["{SECRET}"]'])
def test_m93_what_a_task_says_is_not_shown_if_its_arguments_cannot_be_read(kwargs: str) -> None:
    attempt = of_type(TaskAttemptInfo, error_message=SECRET, failed_reason=SECRET, error_code="X")
    task = detail(
        kwargs=kwargs,
        failed_reason=SECRET,
        idempotency_key=SECRET,
        result=json.dumps({"err": {"message": SECRET}}),
        attempts=(attempt,),
        progress=TaskProgress(1, 2, SECRET, 1, NOW),
    )
    shown = by_name("password").applied_to(task)
    assert SECRET not in repr(shown)
    assert (shown.kwargs, shown.failed_reason, shown.attempts[0].error_code) == (json.dumps(MASK), MASK, "X")


@dataclass
class Logged:
    task: TaskDetail
    logs: tuple[TaskLogLine, ...]


def test_m93_logs_are_masked_by_the_arguments_of_their_task() -> None:
    line = TaskLogLine(1, 1, NOW, "INFO", "shop", f"trying {SECRET}")
    logged = Logged(detail(kwargs=json.dumps({"password": SECRET})), (line, replace(line, text="done")))
    assert [one.text for one in by_name("password").applied_to(logged).logs] == [f"trying {MASK}", "done"]
    unknown = replace(logged, task=detail(kwargs="not json"))
    assert [one.text for one in by_name("password").applied_to(unknown).logs] == [MASK, MASK]
    assert by_name("password").applied_to((line,))[0].text == MASK, "whose it is, nobody knows"
    by_function = Masking.of(lambda _task, field, value: None if value == "done" else field).applied_to(logged)
    assert [one.text for one in by_function.logs] == ["logs", ""]


AWKWARD = ('pa"ss\\word', "tab\there", 'it\'s "both"', "pässwörd", "two\nlines", "\U0001f40e horse")
QUOTED: dict[str, Callable[[str], str]] = {
    "plain": lambda text: f"'{text}'",
    "repr": repr,
    "ascii": ascii,
    "json": json.dumps,
    "unicode json": lambda text: json.dumps(text, ensure_ascii=False),
}


@each("secret", AWKWARD)
@each("quoted", QUOTED)
def test_m93_a_masked_value_is_found_as_python_and_json_write_it(secret: str, quoted: str) -> None:
    said = QUOTED[quoted](secret)
    kwargs, result = json.dumps({"password": secret}), json.dumps({"err": f"in f({said})"})
    shown = by_name("password").applied_to(detail(kwargs=kwargs, result=result, failed_reason=f"in f({said})"))
    masked = f"in f({said[0]}{MASK}{said[-1]})"
    assert (shown.failed_reason, json.loads(shown.result or "")) == (masked, {"err": masked})


def test_m93_what_cannot_be_searched_in_time_is_not_shown() -> None:
    many = [f"secret{number:06}" for number in range(20_000)]
    task = detail(kwargs=json.dumps({"password": many}), failed_reason="z" * 1_000_000, idempotency_key=f"of {many[7]}")
    shown = by_name("password").applied_to(task)
    assert shown.failed_reason == MASK and many[7] not in (shown.idempotency_key or "")
    few = detail(kwargs=json.dumps({"password": many[:50]}), failed_reason="z" * 1_000_000 + many[7])
    assert by_name("password").applied_to(few).failed_reason == "z" * 1_000_000 + MASK


def test_m93_a_short_value_is_not_searched_for() -> None:
    task = detail(kwargs=json.dumps({"pin": "1"}), failed_reason="1 of 10 failed")
    assert by_name("pin").applied_to(task).failed_reason == "1 of 10 failed"


@each("text", ["not json", "{", "[" * 100_000, "NaN and more"])
def test_m93_what_cannot_be_read_is_not_shown(text: str) -> None:
    assert by_name("password").applied_to(detail(kwargs=text)).kwargs == json.dumps(MASK)
    assert Masking.of(lambda _task, _field, value: value).applied_to(detail(kwargs=text)).kwargs == json.dumps(MASK)


def test_m93_a_function_sees_each_payload_and_decides() -> None:
    seen: list[tuple[str | None, str, Any]] = []

    def mask(task_name: str | None, field: str, value: Any) -> Any:
        seen.append((task_name, field, value))
        return {"kept": 1} if field == "kwargs" else value

    task = detail(kwargs='{"a": 1}', args="[1]", failed_reason="why", progress=TaskProgress(1, 2, "so far", 1, NOW))
    shown = Masking.of(mask).applied_to(task)
    assert json.loads(shown.kwargs or "") == {"kept": 1} and shown.failed_reason == "why"
    assert sorted(seen, key=str) == [
        ("login", "args", [1]),
        ("login", "failed_reason", "why"),
        ("login", "kwargs", {"a": 1}),
        ("login", "progress", "so far"),
    ]


@dataclass
class Strange:
    """Not JSON."""


@each("answer", [RuntimeError("no"), Strange(), {1, 2}])
def test_m93_a_function_that_fails_hides(answer: Any) -> None:
    def mask(task_name: str | None, field: str, value: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    shown = Masking.of(mask).applied_to(detail(kwargs=f'{{"a": "{SECRET}"}}', failed_reason=SECRET))
    assert json.loads(shown.kwargs or "") == MASK and shown.failed_reason == MASK


def test_m93_schedules_keep_what_says_when_and_lose_what_is_masked() -> None:
    definition = {"task_name": "login", "pattern": {"type": "daily"}, "args": ["ada", SECRET], "kwargs": {"a": 1}}
    schedule = of_type(ScheduleStateInfo, name="s", definition=definition)
    hidden = Masking(hides_all=True).applied_to(schedule).definition
    assert hidden == {"task_name": "login", "pattern": {"type": "daily"}, "args": MASK, "kwargs": MASK}
    masked = by_name("password").applied_to(schedule).definition
    assert masked == {**definition, "args": ["ada", MASK]}
    repeated = {**definition, "kwargs": {"password": SECRET}, "key": f"nightly {SECRET}"}
    masked = by_name("password").applied_to(replace(schedule, definition=repeated)).definition
    assert masked == {**definition, "args": ["ada", MASK], "kwargs": {"password": MASK}, "key": f"nightly {MASK}"}
    for odd in ({"kwargs": SECRET}, {"args": SECRET}):
        masked = by_name("password").applied_to(replace(schedule, definition={**odd, "key": SECRET})).definition
        assert SECRET not in repr(masked)
