"""Parameters that the library fills in, and return types under another name: each either works or is refused when the
task is defined, in words that say what to write (P-01, T-21, T-24, X-01).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import pytest
from typing_extensions import TypeAliasType

from horsies import (
    AppConfig,
    AsyncTaskContext,
    Horsies,
    TaskContext,
    TaskError,
    TaskResult,
    WorkflowContext,
    WorkflowMeta,
)
from horsies.core.errors import TaskDefinitionError
from horsies.core.tasks import context, execute
from horsies.core.tasks.context import AnyTaskContext

T = TypeVar("T")
U = TypeVar("U")
Context = TypeAliasType("Context", TaskContext)
IntResult = TypeAliasType("IntResult", TaskResult[int, TaskError])
ResultOf = TypeAliasType("ResultOf", TaskResult[T, TaskError], type_params=(T,))
SecondOf = TypeAliasType("SecondOf", Annotated[TaskResult[U, TaskError], "second"], type_params=(T, U))


class OwnContext(TaskContext):
    pass


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))


def result_of(task: Any, args_json: str | None = None, kwargs_json: str | None = None) -> str:
    return execute.run(task, args_json, kwargs_json, context.Run(task, context.packed("id", 1, 1, "default"))).result


def many_contexts(*ctx: TaskContext) -> int: ...  # type: ignore[empty-body]
def named_contexts(**ctx: TaskContext) -> int: ...  # type: ignore[empty-body]
def other_name(context: TaskContext) -> int: ...  # type: ignore[empty-body]
def other_name_or_none(a: int, context: TaskContext | None = None) -> int: ...  # type: ignore[empty-body]
def two_contexts(ctx: TaskContext, context: TaskContext) -> int: ...  # type: ignore[empty-body]
def rest_of_contexts(*rest: TaskContext) -> int: ...  # type: ignore[empty-body]
def behind_a_default(a: int = 1, ctx: TaskContext | None = None, /) -> int: ...  # type: ignore[empty-body]
def base_class(ctx: AnyTaskContext) -> int: ...  # type: ignore[empty-body]
def own_class(ctx: OwnContext) -> int: ...  # type: ignore[empty-body]
def wrong_kind(ctx: AsyncTaskContext) -> int: ...  # type: ignore[empty-body]
async def wrong_async(ctx: TaskContext) -> int: ...  # type: ignore[empty-body]
async def other_async_name(context: AsyncTaskContext) -> int: ...  # type: ignore[empty-body]
def many_results(*workflow_ctx: WorkflowContext) -> int: ...  # type: ignore[empty-body]
def many_metas(**workflow_meta: WorkflowMeta) -> int: ...  # type: ignore[empty-body]
def only_by_position(workflow_ctx: WorkflowContext | None, /) -> int: ...  # type: ignore[empty-body]
def before_a_rest(workflow_ctx: WorkflowContext | None, *rest: int) -> int: ...  # type: ignore[empty-body]
def meta_before_a_rest(a: int, workflow_meta: WorkflowMeta | None = None, *b: int) -> int: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "says", "write"),
    [
        (many_contexts, "has *ctx", "ctx: TaskContext"),
        (named_contexts, "has **ctx", "ctx: TaskContext"),
        (other_name, "'context'", "ctx: TaskContext"),
        (other_name_or_none, "'context'", "ctx: TaskContext"),
        (two_contexts, "'context'", "ctx: TaskContext"),
        (rest_of_contexts, "'rest'", "ctx: TaskContext"),
        (behind_a_default, "'ctx' only by position", "ctx: TaskContext"),
        (base_class, "AnyTaskContext", "ctx: TaskContext"),
        (own_class, "OwnContext", "ctx: TaskContext"),
        (wrong_kind, "AsyncTaskContext", "ctx: TaskContext"),
        (wrong_async, "TaskContext", "ctx: AsyncTaskContext"),
        (other_async_name, "'context'", "ctx: AsyncTaskContext"),
        (many_results, "has *workflow_ctx", "workflow_ctx: WorkflowContext | None"),
        (many_metas, "has **workflow_meta", "workflow_meta: WorkflowMeta | None"),
        (only_by_position, "'workflow_ctx' only by position", "workflow_ctx: WorkflowContext | None"),
        (
            before_a_rest,
            "'workflow_ctx' before *rest",
            "last parameter: def f(..., workflow_ctx: WorkflowContext | None",
        ),
        (meta_before_a_rest, "'workflow_meta' before *b", "workflow_meta: WorkflowMeta | None"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_p01_t21_t24_a_parameter_that_cannot_be_filled_in_is_refused(
    app: Horsies, fn: Callable[..., Any], says: str, write: str
) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        app.task("t")(fn)
    error = refused.value
    assert error.code == "HRS-102" and f"task function {fn.__name__} " in error.message and says in error.message
    assert error.help_text is not None and write in error.help_text
    assert error.location is not None and error.location.line == fn.__code__.co_firstlineno
    assert app.list_tasks() == []


def first(ctx: TaskContext, a: int = 1, /) -> list[Any]:
    return [a, ctx.task_id]


def behind_a_required_one(a: int, ctx: TaskContext, /) -> list[Any]:
    return [a, ctx.task_id]


def between_defaults(a: int = 1, ctx: TaskContext | None = None, b: int = 2) -> list[Any]:
    return [a, ctx and ctx.task_id, b]


def by_name(*rest: int, ctx: TaskContext) -> list[Any]:
    return [*rest, ctx.task_id]


def annotated(a: int, ctx: Annotated[TaskContext | None, "whose"] = None) -> list[Any]:
    return [a, ctx and ctx.task_id]


def under_another_name(a: int, ctx: Context) -> list[Any]:
    return [a, ctx.task_id]


@pytest.mark.parametrize(
    ("fn", "args", "said"),
    [
        (first, None, '{"ok":[1,"id"]}'),
        (first, "[5]", '{"ok":[5,"id"]}'),
        (behind_a_required_one, "[5]", '{"ok":[5,"id"]}'),
        (between_defaults, None, '{"ok":[1,"id",2]}'),
        (between_defaults, "[5,6]", '{"ok":[5,"id",6]}'),
        (by_name, "[5,6]", '{"ok":[5,6,"id"]}'),
        (annotated, "[5]", '{"ok":[5,"id"]}'),
        (under_another_name, "[5]", '{"ok":[5,"id"]}'),
    ],
)
def test_p01_a_context_is_filled_in_wherever_it_stands(
    app: Horsies, fn: Callable[..., Any], args: str | None, said: str
) -> None:
    assert result_of(app.task("t")(fn), args) == said


def results_last(a: int, *rest: int, workflow_ctx: WorkflowContext | None = None) -> list[Any]:
    return [workflow_ctx, a, *rest]


def results_between(a: int, ctx: TaskContext, workflow_ctx: WorkflowContext | None, b: int = 0) -> list[Any]:
    return [ctx.task_id, workflow_ctx, a, b]


def all_of_it(
    a: int, ctx: TaskContext, b: int, *rest: int, workflow_ctx: WorkflowContext | None, workflow_meta: Any = 7
) -> list[Any]:
    return [ctx.task_id, workflow_ctx, workflow_meta, a, b, *rest]


@pytest.mark.parametrize(
    ("fn", "args", "said"),
    [
        (results_last, "[1,2,3,4]", '{"ok":[null,1,2,3,4]}'),
        (results_between, "[1,2]", '{"ok":["id",null,1,2]}'),
        (all_of_it, "[1,2,3,4]", '{"ok":["id",null,7,1,2,3,4]}'),
    ],
)
def test_t24_what_the_sender_gave_is_not_lost_beside_what_the_engine_fills_in(
    app: Horsies, fn: Callable[..., Any], args: str, said: str
) -> None:
    assert result_of(app.task("t")(fn), args) == said


def returning(annotation: Any, value: Any) -> Callable[[], Any]:
    def fn() -> Any:
        return value

    fn.__annotations__["return"] = annotation
    return fn


SAME_RESULT = [Annotated[TaskResult[int, TaskError], "x"], IntResult, ResultOf[int], SecondOf[str, int]]


@pytest.mark.parametrize("annotation", SAME_RESULT)
def test_x01_a_result_type_under_another_name_is_one(app: Horsies, annotation: Any) -> None:
    task: Any = app.task("t")(returning(annotation, TaskResult(ok=3)))
    assert result_of(task) == '{"ok":3}' and task().ok == 3 and task.codec.ok_type is int
    wrong: Any = app.task("u")(returning(annotation, TaskResult(err=TaskError(error_code="NO"))))
    assert wrong().unwrap_err().code == "NO"


@pytest.mark.parametrize("annotation", [Annotated[TaskResult[int, str], 1], IntResult | None, Annotated[TaskError, 1]])
def test_x01_t21_a_wrong_result_type_under_another_name_stays_an_error(app: Horsies, annotation: Any) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        app.task("t")(returning(annotation, None))
    assert refused.value.code == "HRS-101"


def test_x01_what_an_annotation_says_about_a_plain_value_still_holds(app: Horsies) -> None:
    from annotated_types import Gt

    assert app.task("t")(returning(Annotated[int, Gt(5)], 3))().unwrap_err().code == "RETURN_TYPE_MISMATCH"


@pytest.mark.parametrize("annotation", [Any, object, int])
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (TaskResult(ok=1), "a TaskResult"),
        (TaskResult(err=TaskError(error_code="NO_STOCK", message="none left")), "NO_STOCK"),
        (TaskError(error_code="NO_STOCK"), "NO_STOCK"),
    ],
)
def test_x01_a_result_where_a_value_was_declared_says_what_to_declare(
    app: Horsies, annotation: Any, value: Any, shown: str
) -> None:
    task: Any = app.task("t")(returning(annotation, value))
    error = task().unwrap_err()
    assert error.code == "RETURN_TYPE_MISMATCH" and '"RETURN_TYPE_MISMATCH"' in result_of(task)
    assert shown in error.message and "declare it as -> TaskResult[..., TaskError]" in error.message
