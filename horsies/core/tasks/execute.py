"""Runs the function of a task and reports how it ended. The path is the same in a child process and for a direct call:
decode the arguments → call → check the returned value → serialize.

Every failure on the way becomes an error result; only `StopTask` (the child was told to stop this task) and, for async
tasks, cancellation pass through. They do not if the function has ended and only hooks are stopped: its result is kept.

`run` and `run_async` are written twice, because every task pays for them. All that only some tasks need is async, and
`now` runs it for a `def` task.
"""

import inspect
import logging
from asyncio import CancelledError
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, NamedTuple, TypeAlias, TypeVar

from horsies.core import errors, exception_mapper, tracing
from horsies.core.codec.arguments import CONTEXT
from horsies.core.codec.context import RunContext
from horsies.core.codec.serde import sanitize_text, serialize_error_payload
from horsies.core.codec.shapes import CodecError, TypeMismatchError
from horsies.core.models import tasks as models
from horsies.core.tasks import context
from horsies.core.tasks.context import Outcome, Run, StopTask
from horsies.core.tasks.definition import TaskDefinition

log = logging.getLogger("horsies.task")
AnyTask: TypeAlias = TaskDefinition[Any, Any]
AnyResult: TypeAlias = models.TaskResult[Any, models.TaskError]
T = TypeVar("T")
_MAX_MESSAGE_CHARS = 4_000


class Report(NamedTuple):
    """The end of one attempt, as it is stored: `result` is the JSON of a `TaskResult`."""

    ok: bool
    result: str
    error_code: str | None
    error_message: str | None
    leave_ms: int = 0  # the task is left to others for so long (O-32)


def run(task: AnyTask, args_json: str | None, kwargs_json: str | None, this: Run | None = None) -> Report:
    """Run a task from its stored arguments; `this` is the run that it belongs to."""
    try:
        args, kwargs = task.codec.arguments.decode(args_json, kwargs_json)
    except Exception as problem:
        return report_of(_undecodable(task, problem))._replace(leave_ms=task.leave_undecodable_ms)
    if this is not None:
        if task.codec.signature.context_kind is not None:
            args, kwargs = task.codec.signature.with_context(args, kwargs, this.context)
        if task.hooks.exist:
            return now(_run_hooked(task, this, args, kwargs))
    try:
        outcome = task.fn(*args, **kwargs)
    except StopTask:
        raise
    except BaseException as exc:
        return report_of(_unhandled(task, exc))
    return _report(task, outcome)


async def run_async(task: AnyTask, args_json: str | None, kwargs_json: str | None, this: Run | None = None) -> Report:
    """Run an `async def` task from its stored arguments."""
    try:
        args, kwargs = task.codec.arguments.decode(args_json, kwargs_json)
    except Exception as problem:
        return report_of(_undecodable(task, problem))._replace(leave_ms=task.leave_undecodable_ms)
    if this is not None:
        context.begin(this)
        if task.codec.signature.context_kind is not None:
            args, kwargs = task.codec.signature.with_context(args, kwargs, this.context)
        if task.hooks.exist:
            return await _run_hooked(task, this, args, kwargs)
    try:
        outcome = await task.fn(*args, **kwargs)
    except (StopTask, CancelledError):
        raise
    except BaseException as exc:
        return report_of(_unhandled(task, exc))
    return _report(task, outcome)


async def _run_hooked(task: AnyTask, this: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Report:
    """The same with the app's hooks around the function. A stop that comes after its end loses no result (X-05)."""
    report: Report | None = None
    was_stopped = False
    stack = AsyncExitStack()

    async def after(_kind: Any, error: BaseException | None, _trace: Any) -> None:
        nonlocal report
        if this.outcome is not None and error is this.outcome.error and not was_stopped:
            report, result = _ended(task, this.outcome)
            await task.hooks.leave(this.context, result)

    try:
        async with stack:
            await task.hooks.surround(stack, this.context)
            stack.push_async_exit(after)
            await task.hooks.enter(stack, this.context)
            try:
                value = task.fn(*args, **kwargs)
                this.outcome = Outcome(await value if task.is_async else value)
            except _stops(task):
                raise
            except BaseException as exc:
                this.outcome = Outcome(None, exc)
                raise
    except BaseException:
        was_stopped = True  # unless it is the error of the function, and everything has been left
        await stack.aclose()  # the stop may have come just when the stack began to leave them
        if this.outcome is None:
            raise
    assert this.outcome is not None
    return report or _ended(task, this.outcome)[0]


def _stops(task: AnyTask) -> tuple[type[BaseException], ...]:
    """What ends a task from outside, and is not an error of its function."""
    return (StopTask, CancelledError) if task.is_async else (StopTask,)


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it to its end at once; it waits for nothing, because its task is a `def`."""
    done: list[T] = []

    async def run_it() -> None:
        done.append(await coroutine)

    # Not `send` with its StopIteration: a stop in the handler of an exception would leave that exception behind.
    for _ in run_it().__await__():
        raise RuntimeError("a `def` task waits for something")
    return done[0]


def kept(this: Run) -> Report | None:
    """The report of a run that was stopped after the end of its function; None if it was stopped before."""
    return None if this.outcome is None else _ended(this.task, this.outcome)[0]


def _ended(task: AnyTask, ended: Outcome) -> tuple[Report, AnyResult]:
    report = report_of(_unhandled(task, ended.error)) if ended.error is not None else _report(task, ended.value)
    if not report.ok:
        return report, task.codec.result.decode(report.result)
    is_result = isinstance(ended.value, models.TaskResult)
    return report, ended.value if is_result else models.TaskResult(ok=ended.value)


def _unhandled(task: AnyTask, exc: BaseException) -> models.TaskError:
    """The error of an exception that left the function of a run. One that no mapper expects is logged."""
    if not exception_mapper.is_expected(exc, task.exception_mapper, task.app_exception_mapper):
        log.error("task %s raised %s", task.task_name, type(exc).__name__, exc_info=exc)
    return error_of_exception(task, exc)


async def run_traced(
    task: AnyTask, args_json: str | None, kwargs_json: str | None, about: bytes, this: Run | None = None
) -> Report:
    """The same as `run` and `run_async`, inside a span; `about` is what the span says about the task."""
    with tracing.running(task.task_name, about) as span:
        given = task, args_json, kwargs_json, this
        report = await run_async(*given) if task.is_async else run(*given)
        if not report.ok:
            span.failed(report.error_code)
        return report


async def call(task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AnyResult:
    """Run the function in this process: exceptions become error results, the value is checked, and nothing is
    stored."""
    args, kwargs = _with_context(task, args, kwargs)
    try:
        outcome = task.fn(*args, **kwargs)
        if task.is_async:
            outcome = await outcome
    except _stops(task):
        raise
    except BaseException as exc:
        return models.TaskResult(err=error_of_exception(task, exc))
    return _checked(task, outcome)


def _with_context(
    task: AnyTask, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """For a direct call, which may also bring a context of its own."""
    signature = task.codec.signature
    if signature.context_kind is None or CONTEXT in kwargs or any(isinstance(value, RunContext) for value in args):
        return args, kwargs
    return signature.with_context(args, kwargs, context.direct(task).context)


def report_of(error: models.TaskError) -> Report:
    """The report of an attempt that ended with this error."""
    message = None if error.message is None else sanitize_text(error.message)
    code = None if error.code is None else sanitize_text(error.code)
    return Report(False, serialize_error_payload(models.TaskResult(err=error)), code, message)


def error_of_exception(task: AnyTask, exc: BaseException) -> models.TaskError:
    """The error of an exception that left the function, with the code from the mappers."""
    is_missing_id = isinstance(exc, errors.WorkflowContextMissingIdError)
    code = exception_mapper.resolve(
        exc,
        task_mapper=task.exception_mapper,
        app_mapper=task.app_exception_mapper,
        task_default=models.ContractCode.WORKFLOW_CTX_MISSING_ID
        if is_missing_id
        else task.default_unhandled_error_code,
        app_default=task.app_default_unhandled_error_code,
    )
    if (ours := exc.__traceback__) is not None and ours.tb_next is not None:
        exc = exc.with_traceback(ours.tb_next)  # the reader wants the task's own frames
    described = {key: sanitize_text(text) for key, text in models.exception_dict(exc).items()}
    message = f"task {task.task_name!r} raised {described['type']}: {described['message']}"[:_MAX_MESSAGE_CHARS]
    return models.TaskError(
        error_code=models.BUILTIN_CODE_REGISTRY.get(code, code), message=message, exception=described
    )


def _report(task: AnyTask, outcome: Any) -> Report:
    if (problem := _problem_of(task, outcome)) is not None:
        return report_of(problem)
    if task.codec.returns_value:
        outcome = models.TaskResult(ok=outcome)
    try:
        text = task.codec.result.encode(outcome)
    except TypeMismatchError as mismatch:
        return report_of(_type_mismatch(task, mismatch))
    except (CodecError, MemoryError) as unwritable:
        return report_of(_unwritable(task, outcome, unwritable))
    task.sizes.watch(task.task_name, "result", text)
    error: models.TaskError | None = outcome.err
    if error is None:
        return Report(True, text, None, None)
    return Report(False, text, error.code, None if error.message is None else sanitize_text(error.message))


def _checked(task: AnyTask, outcome: Any) -> AnyResult:
    if (problem := _problem_of(task, outcome)) is not None:
        return models.TaskResult(err=problem)
    result: AnyResult = models.TaskResult(ok=outcome) if task.codec.returns_value else outcome
    if result.is_ok():
        try:
            task.codec.result.check(result.ok)
        except TypeMismatchError as mismatch:
            return models.TaskResult(err=_type_mismatch(task, mismatch))
        except CodecError as unwritable:
            return models.TaskResult(err=_unwritable(task, result, unwritable))
    return result


def _problem_of(task: AnyTask, outcome: Any) -> models.TaskError | None:
    """Whether it returned a result where a value is declared, or the other way round."""
    return _not_a_value(task, outcome) if task.codec.returns_value else _not_a_result(task, outcome)


def _not_a_value(task: AnyTask, outcome: Any) -> models.TaskError | None:
    if not isinstance(outcome, models.TaskResult | models.TaskError):
        return None
    error = outcome.err if isinstance(outcome, models.TaskResult) else outcome
    what = f" ({models.TaskFailed(error)})" if isinstance(error, models.TaskError) else ""
    message = (
        f"task {task.task_name!r} returned a {type(outcome).__name__}{what}, but is declared to return a plain value; "
        "declare it as -> TaskResult[..., TaskError]"
    )
    return models.TaskError(error_code=models.ContractCode.RETURN_TYPE_MISMATCH, message=message[:_MAX_MESSAGE_CHARS])


def _not_a_result(task: AnyTask, outcome: Any) -> models.TaskError | None:
    if isinstance(outcome, models.TaskResult) and (outcome.is_ok() or isinstance(outcome.err, models.TaskError)):
        return None
    if inspect.iscoroutine(outcome):
        outcome.close()  # nobody will await it
    returned = f"TaskResult(err=<{type(outcome.err).__name__}>)" if isinstance(outcome, models.TaskResult) else None
    message = f"task {task.task_name!r} returned {returned or type(outcome).__name__}, not a TaskResult[T, TaskError]"
    return models.TaskError(error_code=models.OperationalErrorCode.TASK_EXCEPTION, message=message)


def _type_mismatch(task: AnyTask, problem: TypeMismatchError) -> models.TaskError:
    message = f"task {task.task_name!r} returned a value that is not of its declared type: {problem}"
    return models.TaskError(error_code=models.ContractCode.RETURN_TYPE_MISMATCH, message=message)


def _undecodable(task: AnyTask, problem: Exception) -> models.TaskError:
    text = problem.message if isinstance(problem, errors.TaskDefinitionError) else str(problem)
    message = sanitize_text(f"the arguments of task {task.task_name!r} cannot be read: {text}")
    return models.TaskError(error_code=models.OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message=message)


def _unwritable(task: AnyTask, outcome: AnyResult, problem: BaseException) -> models.TaskError:
    kind = "result" if outcome.err is None else f"error {outcome.err.code}"
    message = sanitize_text(f"the {kind} of task {task.task_name!r} cannot be written as JSON: {problem}")
    return models.TaskError(error_code=models.OperationalErrorCode.WORKER_SERIALIZATION_ERROR, message=message)
