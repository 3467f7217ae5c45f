"""What @app.task checks and makes (T-13, T-20 to T-24, T-37, T-85, T-103)."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from horsies import (
    AppConfig,
    CustomQueueConfig,
    Horsies,
    HorsiesError,
    MultipleValidationErrors,
    QueueMode,
    RetryPolicy,
    TaskError,
    TaskResult,
)
from horsies.core.errors import TaskDefinitionError
from horsies.core.task_decorator import TaskFunction

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]

URL = "postgresql://u:p@h/d"


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig.for_database_url(URL))


@pytest.fixture
def custom_app() -> Horsies:
    queues = [CustomQueueConfig(name="fast", priority=1), CustomQueueConfig(name="slow", priority=50)]
    return Horsies(AppConfig.for_database_url(URL, queue_mode=QueueMode.CUSTOM, custom_queues=queues))


def plain(a: int) -> TaskResult[int, TaskError]:
    """Doubles."""
    return TaskResult(ok=2 * a)


def codes_of(define: Callable[[], Any]) -> list[str]:
    with pytest.raises(HorsiesError) as raised:
        define()
    errors = raised.value.report.errors if isinstance(raised.value, MultipleValidationErrors) else [raised.value]
    return [str(error.code) for error in errors]


def test_t20_name_by_position_or_keyword(app: Horsies) -> None:
    assert app.task("one")(plain).task_name == "one"
    assert app.task(task_name="two")(plain).task_name == "two"
    assert app.list_tasks() == ["one", "two"]


def test_t22_the_task_looks_like_its_function(app: Horsies) -> None:
    task = app.task("t", retry_policy=RetryPolicy.fixed([1], auto_retry_for=["BUSY"]), timeout_ms=1000)(plain)
    assert isinstance(task, TaskFunction)
    assert (task.queue_name, task.priority, task.is_async, task.app, task.fn) == ("default", 100, False, app, plain)
    assert task.__name__ == "plain" and task.__doc__ == "Doubles." and str(inspect.signature(task)).startswith("(a:")  # type: ignore[attr-defined]
    assert task.options.max_retries == 1 and task.options.timeout_ms == 1000
    for name in ("send", "schedule", "retry_send", "retry_schedule"):
        assert callable(getattr(task, name)) and inspect.iscoroutinefunction(getattr(task, f"{name}_async"))


def test_t21_no_return_type(app: Horsies) -> None:
    def f(a: int):  # type: ignore[no-untyped-def]
        pass

    assert codes_of(lambda: app.task("t")(f)) == ["HRS-100"]
    with pytest.raises(TypeError):
        app.task("t")(f)


def returning(annotation: Any) -> Callable[..., Any]:
    def f() -> None:
        pass

    f.__annotations__["return"] = annotation
    return f


class Fault(TaskError):
    pass


@pytest.mark.parametrize(
    "annotation",
    [TaskResult, TaskError, Fault, TaskResult[int, str], TaskResult[int, Fault], TaskResult[int, TaskError] | None],
)
def test_t21_wrong_return_type(app: Horsies, annotation: Any) -> None:
    assert codes_of(lambda: app.task("t")(returning(annotation))) == ["HRS-101"]


def test_t21_generators_are_no_tasks(app: Horsies) -> None:
    def f() -> TaskResult[int, TaskError]:  # type: ignore[misc]
        yield 1

    assert codes_of(lambda: app.task("t")(f)) == ["HRS-101"]


@pytest.mark.parametrize(
    "options",
    [
        {"good_until": None},
        {"auto_retry_for": ["A"]},
        {"retries": 3},
        {"retry_policy": {"auto_retry_for": ["A"]}},
        {"timeout_ms": 999},
        {"timeout_ms": 1000.0},
        {"timeout_ms": True},
        {"flags": ["Bad"]},
        {"flags": "a"},
        {"flags": {"a": 1}},
        {"flags": 5},
    ],
)
def test_t21_invalid_options(app: Horsies, options: dict[str, Any]) -> None:
    assert codes_of(lambda: app.task("t", **options)(plain)) == ["HRS-102"]


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b", "a\nb", 5, "\ud800"])
def test_t21_invalid_names(app: Horsies, name: Any) -> None:
    assert codes_of(lambda: app.task(name)(plain)) == ["HRS-102"]


def test_t21_names_may_be_long_and_foreign(app: Horsies) -> None:
    assert app.task("ü" * 255)(plain) and app.task("billing.send invoice")(plain)


def test_t13_queues_in_default_mode(app: Horsies) -> None:
    assert codes_of(lambda: app.task("t", queue_name="default")(plain)) == ["HRS-103"]
    app.validate_queue_name("default")
    with pytest.raises(ValueError):
        app.validate_queue_name("fast")


def test_t13_queues_in_custom_mode(custom_app: Horsies) -> None:
    assert codes_of(lambda: custom_app.task("t")(plain)) == ["HRS-103"]
    assert codes_of(lambda: custom_app.task("t", queue_name="other")(plain)) == ["HRS-103"]
    assert custom_app.task("t", queue_name="slow")(plain).priority == 50
    custom_app.validate_queue_name("fast")


def test_t21_wrapped_functions(app: Horsies) -> None:
    @functools.wraps(plain)
    def wrapped(*args: Any) -> Any:
        return plain(*args)

    assert codes_of(lambda: app.task("t")(wrapped)) == ["HRS-104"]


def test_t21_tasks_of_any_app_are_no_functions(app: Horsies, custom_app: Horsies) -> None:
    task = app.task("t")(plain)
    assert codes_of(lambda: app.task("u")(task)) == ["HRS-104"]
    assert codes_of(lambda: custom_app.task("t", queue_name="fast")(task)) == ["HRS-104"]


@pytest.mark.parametrize("thing", [print, int, functools.partial(plain, 1), staticmethod(plain), 5])
def test_t21_only_plain_functions(app: Horsies, thing: Any) -> None:
    assert codes_of(lambda: app.task("t")(thing)) == ["HRS-104"]


class NotForJson:
    pass


def test_t103_types_that_cannot_travel(app: Horsies) -> None:
    assert codes_of(lambda: app.task("t")(returning(TaskResult[NotForJson, TaskError]))) == ["HRS-105"]

    with pytest.raises(TaskDefinitionError) as caught:
        app.task("t")(returning(TaskResult[NotForJson, TaskError]))
    shown = caught.value.format_rust_style()
    assert "make it a dataclass" in shown and "NotForJson" in shown and "arbitrary_types_allowed" not in shown

    def f(a: NotForJson) -> TaskResult[int, TaskError]: ...  # type: ignore[empty-body]

    def only_by_position(a: NotForJson, /) -> TaskResult[int, TaskError]: ...  # type: ignore[empty-body]

    def rest(*args: NotForJson, **kwargs: NotForJson) -> TaskResult[int, TaskError]: ...  # type: ignore[empty-body]

    for wrong in (f, only_by_position, rest):
        assert codes_of(lambda wrong=wrong: app.task("t")(wrong)) == ["HRS-105"]


@pytest.mark.parametrize(
    "options",
    [
        {"exception_mapper": {KeyError: "bad code"}},
        {"exception_mapper": {"KeyError": "A"}},
        {"exception_mapper": [1]},
        {"default_unhandled_error_code": 5},
    ],
)
def test_t85_mappers_are_checked(app: Horsies, options: dict[str, Any]) -> None:
    assert codes_of(lambda: app.task("t", **options)(plain)) == ["HRS-209"]


@pytest.mark.parametrize(
    "options", [{"exception_mapper": {KeyError: "TASK_TIMEOUT"}}, {"default_unhandled_error_code": "WORKER_CRASHED"}]
)
def test_t71_built_in_codes_are_not_for_users(app: Horsies, options: dict[str, Any]) -> None:
    assert codes_of(lambda: app.task("t", **options)(plain)) == ["HRS-212"]


def test_t85_a_mapper_that_changes_later_changes_no_task(app: Horsies) -> None:
    mapper = {KeyError: "NO_KEY"}
    task = app.task("t", exception_mapper=mapper)(plain)
    mapper[OSError] = "TASK_TIMEOUT"
    assert task.exception_mapper == {KeyError: "NO_KEY"}


def test_t07_all_that_is_wrong_with_a_definition_at_once(app: Horsies) -> None:
    found = codes_of(
        lambda: app.task("", queue_name="x", timeout_ms=1, exception_mapper={int: "A"})(returning(TaskError))
    )
    assert sorted(found) == ["HRS-101", "HRS-102", "HRS-102", "HRS-103", "HRS-209"]
    assert app.list_tasks() == []


def test_t73_errors_point_at_the_function(app: Horsies) -> None:
    def mine(a: int) -> TaskError:
        return TaskError()

    with pytest.raises(TaskDefinitionError) as raised:
        app.task("t")(mine)
    assert raised.value.location is not None
    assert (raised.value.location.file, raised.value.location.line) == (__file__, mine.__code__.co_firstlineno)
    assert "def mine(a: int) -> TaskError:" in str(raised.value)


def test_hrs301_a_factory_that_defines_twice_is_a_duplicate(app: Horsies) -> None:
    def define() -> None:
        @app.task("t")
        def f() -> TaskResult[int, TaskError]: ...  # type: ignore[empty-body]

    define()
    assert codes_of(define) == ["HRS-301"]


def test_hrs301_the_same_lines_imported_again_are_no_duplicate(tmp_path, monkeypatch) -> None:
    (tmp_path / "twice_app.py").write_text(
        "from horsies import AppConfig, Horsies, TaskError, TaskResult\n"
        f"app = Horsies(AppConfig.for_database_url({URL!r}))\n"
    )
    (tmp_path / "twice_tasks.py").write_text(
        "from twice_app import *\n@app.task('t')\ndef f() -> TaskResult[int, TaskError]:\n    return TaskResult(ok=1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("twice_tasks")
    first = module.app.tasks["t"]
    again = importlib.reload(module)
    assert again.app.list_tasks() == ["t"] and again.app.tasks["t"] is not first


def test_t09_the_registry_is_read_only(app: Horsies) -> None:
    task = app.task("t")(plain)
    assert dict(app.tasks) == {"t": task}
    with pytest.raises(TypeError):
        app.tasks["u"] = task  # type: ignore[index]


def test_t37_flags(app: Horsies) -> None:
    assert app.task("a", flags=["x", "y_2"])(plain).flags == {"x": True, "y_2": True}
    assert app.task("b", flags={"x": False})(plain).flags == {"x": False}
    assert app.task("c")(plain).flags == {}
    assert app.task("d", flags=["a" * 64])(plain).flags
    assert codes_of(lambda: app.task("e", flags=["a" * 65])(plain)) == ["HRS-102"]


def test_t103_string_annotations_and_local_types(app: Horsies) -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    @app.task("t")
    def f(a: Local, b: list[Local]) -> TaskResult[Local, TaskError]:
        return TaskResult(ok=a)

    args_json, _ = f.codec.arguments.encode((Local(1), [Local(2)]), {})
    assert f.codec.arguments.decode(args_json, None) == ((Local(1), [Local(2)]), {})


def later_task(a: Later) -> TaskResult[list[Later], TaskError]:
    return TaskResult(ok=[a])


def unknown_task(a: Unknown) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


class HoldsLater(BaseModel):
    item: EvenLater


def holding_task(a: HoldsLater) -> TaskResult[int, TaskError]:
    return TaskResult(ok=1)


EARLY = Horsies(AppConfig.for_database_url(URL))
EARLY_TASK = EARLY.task("later")(later_task)
EARLY_HOLDER = EARLY.task("holds")(holding_task)


class Later(BaseModel):
    x: int


class EvenLater(BaseModel):
    y: int


def test_t103_types_defined_further_down() -> None:
    assert EARLY_TASK.codec.arguments.encode((Later(x=1),), {}) == ('[{"x":1}]', None)
    assert EARLY_HOLDER.codec.arguments.decode('[{"item":{"y":2}}]', None) == ((HoldsLater(item=EvenLater(y=2)),), {})
    assert EARLY.check() == []


def test_t103_types_that_exist_only_for_the_checker_are_found_by_check(app: Horsies) -> None:
    task = app.task("t")(unknown_task)
    [error] = app.check()
    assert error.code == "HRS-105" and "Unknown" in str(error)
    sent = task.send(1)
    assert sent.err_value.code == "VALIDATION_FAILED"
