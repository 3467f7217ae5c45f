"""Tasks that return plain values (X-01), and names that nobody has to invent (X-02)."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from horsies import AppConfig, Horsies, TaskError, TaskFailed, TaskResult
from horsies.core.tasks import execute


@dataclass
class Parcel:
    weight: float


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))


def test_x01_the_value_becomes_the_ok_result(app: Horsies) -> None:
    @app.task("add")
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2).ok == 3
    assert execute.run(add, "[1, 2]", None) == execute.Report(True, '{"ok":3}', None, None)


def test_x01_none_models_and_async_functions(app: Horsies) -> None:
    @app.task("quiet")
    def quiet() -> None:
        pass

    @app.task("weigh")
    async def weigh(weight: float) -> Parcel:
        return Parcel(weight)

    assert quiet().is_ok() and execute.run(quiet, None, None).ok
    assert asyncio.run(weigh(2.5)).ok == Parcel(2.5)
    assert asyncio.run(execute.run_async(weigh, "[2.5]", None)).result == '{"ok":{"weight":2.5}}'


def test_x01_an_exception_is_the_error_and_a_wrong_value_a_mismatch(app: Horsies) -> None:
    @app.task("fail", exception_mapper={LookupError: "NOT_FOUND"})
    def fail(key: str) -> int:
        return {}[key]  # type: ignore[no-any-return]

    @app.task("lie")
    def lie() -> int:
        return "three"  # type: ignore[return-value]

    assert execute.run(fail, '["a"]', None).error_code == "NOT_FOUND"
    assert execute.run(lie, None, None).error_code == "RETURN_TYPE_MISMATCH"
    assert lie().unwrap_err().code == "RETURN_TYPE_MISMATCH"


def test_x02_the_name_is_module_and_function(app: Horsies) -> None:
    @app.task
    def one() -> int:
        return 1

    @app.task()
    def two() -> TaskResult[int, TaskError]:
        return TaskResult(ok=2)

    @app.task(timeout_ms=1_000)
    async def three() -> int:
        return 3

    where = f"{__name__}.test_x02_the_name_is_module_and_function"
    assert [task.task_name for task in (one, two, three)] == [f"{where}.{name}" for name in ("one", "two", "three")]
    assert app.list_tasks() == sorted(f"{where}.{name}" for name in ("one", "two", "three"))
    assert one().ok == 1 and two().ok == 2 and asyncio.run(three()).ok == 3


PROGRAM = """
    from horsies import AppConfig, Horsies
    app = Horsies(AppConfig.for_database_url("postgresql://u:p@h/d"))

    @app.task
    def one() -> int:
        return 1

    print(one.task_name)
"""


@pytest.mark.parametrize("way", [["shop.py"], ["-m", "shop"], ["-c", "import shop"]])
def test_x02_a_script_has_the_name_that_a_worker_imports(tmp_path: Path, way: list[str]) -> None:
    (tmp_path / "shop.py").write_text(dedent(PROGRAM))
    said = subprocess.run([sys.executable, *way], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout == "shop.one\n"


def test_x03_a_failure_is_raised_with_its_error_and_the_tasks_traceback() -> None:
    error = TaskError(error_code="NO_STOCK", message="none left", exception={"traceback": "line 5, in sell"})
    failed = TaskFailed(error)
    assert str(failed) == "NO_STOCK: none left" and failed.error is error
    assert failed.__notes__ == ["in the task:\nline 5, in sell"]
    assert pickle.loads(pickle.dumps(failed)).error == error
