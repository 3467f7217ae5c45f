"""How a child starts: the app is loaded in the documented order, and what goes wrong is told in full (W-40, W-45)."""

from __future__ import annotations

from pathlib import Path

import pytest

from horsies.core.child.wire import Kind
from horsies.core.worker.launcher import Launcher
from tests.services.children import ROOT, Child, start_child

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = """
import os, sys, time
from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.tasks import TaskError, TaskResult

app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))
{body}
"""

TASK = """
@app.task("{name}")
def {name}() -> TaskResult[object, TaskError]:
    return TaskResult(ok={value})
"""


async def start(launcher: Launcher, folder: Path, body: str, **spec: object) -> Child:
    (folder / "some_app.py").write_text(APP.format(body=body))
    given = {"cwd": str(folder), "sys_path": (str(folder), ROOT), **spec}
    return await start_child(launcher, "some_app:app", **given)


async def complaint(child: Child) -> str:
    kind, _, parts = await child.hear()
    assert kind is Kind.BROKEN
    assert await child.code() == 78
    return parts[0].decode()


async def test_w40_order_of_a_start(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "found.py").write_text("""
from horsies.core.app import Horsies
from some_app import app, steps
steps.append(["discovered", Horsies.current() is app, app.sends_suppressed])
""")
    (tmp_path / "extra.py").write_text("""
from some_app import app, steps
steps.append(["import", True, app.sends_suppressed])
""")
    body = """
steps = []
app.discover_tasks(["found"])

@app.on_child_process_start
def hook():
    steps.append(["hook", Horsies.current() is app, app.sends_suppressed])
"""
    child = await start(launcher, tmp_path, body + TASK.format(name="told", value="steps"), imports=("extra",))
    await child.ready()
    *imports, hook = await child.answer("told")
    assert sorted(imports) == [["discovered", True, True], ["import", True, True]]
    assert hook == ["hook", True, False]


async def test_w40_a_database_given_to_the_worker_replaces_the_app_s(launcher: Launcher, tmp_path: Path) -> None:
    value = "app.get_broker().config.database_url.get_secret_value()"
    child = await start(
        launcher, tmp_path, TASK.format(name="told", value=value), database_url="postgresql://me:pw@elsewhere/db"
    )
    await child.ready()
    assert await child.answer("told") == "postgresql+psycopg://me:pw@elsewhere/db"


async def test_w45_a_hook_that_raises_is_named(launcher: Launcher, tmp_path: Path) -> None:
    body = """
@app.on_child_process_start
def connect():
    raise RuntimeError("no such host")
"""
    text = await complaint(await start(launcher, tmp_path, body))
    assert "some_app.connect" in text
    assert "RuntimeError: no such host" in text
    assert "some_app.py:11" in text


async def test_w45_a_hook_that_exits_is_named(launcher: Launcher, tmp_path: Path) -> None:
    body = "@app.on_child_process_start\ndef leave():\n    sys.exit(0)\n"
    assert "some_app.leave raised SystemExit" in await complaint(await start(launcher, tmp_path, body))


@pytest.mark.parametrize("waiting", ["time.sleep(600)", "while True: pass"])
async def test_w45_a_hook_that_takes_too_long_is_named(launcher: Launcher, tmp_path: Path, waiting: str) -> None:
    body = f"@app.on_child_process_start\ndef dawdle():\n    {waiting}\n"
    text = await complaint(await start(launcher, tmp_path, body, hook_timeout_ms=300))
    assert "some_app.dawdle took longer than 0.3 s" in text


async def test_w45_the_limit_is_for_each_hook_and_ends_with_it(launcher: Launcher, tmp_path: Path) -> None:
    hooks = "".join(f"@app.on_child_process_start\ndef h{n}():\n    time.sleep(0.5)\n" for n in range(3))
    child = await start(
        launcher, tmp_path, hooks + TASK.format(name="told", value="time.sleep(1.2)"), hook_timeout_ms=1000
    )
    await child.ready()
    assert await child.answer("told") is None


async def test_a_module_that_fails_on_import_is_told_with_its_place(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ny = x / 0\n")
    text = await complaint(await start(launcher, tmp_path, "", imports=("broken",)))
    assert "error[HRS-210]" in text
    assert "ZeroDivisionError" in text
    assert "broken.py:2" in text


async def test_an_app_module_that_exits_is_told(launcher: Launcher, tmp_path: Path) -> None:
    assert "error[HRS-210]" in await complaint(await start(launcher, tmp_path, "sys.exit('not today')"))


async def test_a_locator_that_leads_nowhere_is_told(launcher: Launcher) -> None:
    text = await complaint(await start_child(launcher, "no_such_package.app:app"))
    assert "error[HRS-206]" in text
    assert "no_such_package" in text


async def test_a_directory_that_does_not_exist_is_told(launcher: Launcher, tmp_path: Path) -> None:
    text = await complaint(await start(launcher, tmp_path, "", cwd=str(tmp_path / "gone")))
    assert "FileNotFoundError" in text


async def test_a_hook_that_forks_and_returns_in_the_copy_does_not_start_a_second_child(
    launcher: Launcher, tmp_path: Path
) -> None:
    body = "@app.on_child_process_start\ndef fork():\n    os.fork()\n" + TASK.format(name="told", value="os.getpid()")
    child = await start(launcher, tmp_path, body)
    await child.ready()
    assert await child.answer("told") == child.pid


async def test_exit_functions_run_at_goodbye_and_cannot_hold_the_child(launcher: Launcher, tmp_path: Path) -> None:
    body = """
import atexit, threading
from pathlib import Path
atexit.register(threading.Event().wait)
atexit.register(Path("left").touch)
"""
    child = await start(launcher, tmp_path, body, goodbye_timeout_ms=200)
    await child.ready()
    child.bye()
    assert await child.code() == 0
    assert (tmp_path / "left").exists()
