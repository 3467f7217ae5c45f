"""Which app a locator leads to, and what is said when it leads nowhere (M-01)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horsies.core.app import Horsies
from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.locate import load_app
from tests.each import each

APP = """
from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig

app = Horsies(AppConfig.for_database_url("postgresql://nobody@127.0.0.1:1/nothing"))
"""
SECOND = APP.replace("app = ", "other = ")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory of its own; what is imported from it is forgotten."""
    (tmp_path / "located").mkdir()
    (tmp_path / "located" / "__init__.py").touch()
    (tmp_path / "located" / "one.py").write_text(APP)
    (tmp_path / "located" / "two.py").write_text(APP + SECOND)
    (tmp_path / "located" / "none.py").write_text("x = 1\n")
    (tmp_path / "located" / "alias.py").write_text(APP + "same = app\n")
    (tmp_path / "located" / "broken.py").write_text("import located.one\n1 / 0\n")
    (tmp_path / "located" / "needy.py").write_text("import no_such_library\n")
    (tmp_path / "located" / "leaving.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "lone_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])  # like the console script's: without ''
    current = Horsies.current()
    yield tmp_path
    Horsies._current = current


def test_m01_a_file_that_was_imported_through_a_link_is_not_loaded_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "release-1.2").mkdir()
    (project / "release-1.2" / "tasks.py").write_text(APP)
    (project / "linked").symlink_to("release-1.2")
    monkeypatch.syspath_prepend(project)
    imported = importlib.import_module("linked.tasks")
    assert load_app("linked/tasks.py") is imported.app


def module_of(locator: str) -> object:
    app = load_app(locator)
    return next(module for module in list(sys.modules.values()) if vars(module).get("app") is app)


@each(
    ("locator", "name"),
    [
        ("located.one:app", "located.one"),
        ("located.one", "located.one"),
        ("located/one.py:app", "located.one"),
        ("located/one.py", "located.one"),
        ("./located/one.py", "located.one"),
        ("lone_app", "lone_app"),
        ("lone_app.py", "lone_app"),
        ("located.two:app", "located.two"),
        ("located.alias", "located.alias"),
        (" located.one:app ", "located.one"),
    ],
)
def test_m01_forms_of_a_locator(locator: str, name: str) -> None:
    assert module_of(locator) is sys.modules[name]


def test_m01_all_forms_lead_to_one_app(project: Path) -> None:
    forms = ["located/one.py", "located.one", "located.one:app", str(project / "located" / "one.py")]
    assert len({id(load_app(form)) for form in forms}) == 1


def test_m01_the_variable_decides_between_several() -> None:
    assert load_app("located.two:other") is not load_app("located.two:app")


def test_m01_a_file_elsewhere_can_be_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "my-app.py"
    file.write_text(APP)
    app = load_app(str(file))
    assert load_app(f"{file}:app") is app


@each(
    ("locator", "code", "said"),
    [
        ("located.none", ErrorCode.CLI_INVALID_ARGS, "no Horsies app"),
        ("located.two", ErrorCode.CLI_INVALID_ARGS, "app, other"),
        ("located.one.py", ErrorCode.WORKER_INVALID_LOCATOR, "did you mean located.one or located/one.py?"),
        ("located.one.py:app", ErrorCode.WORKER_INVALID_LOCATOR, "did you mean located.one or located/one.py?"),
        ("located/absent.py", ErrorCode.CLI_INVALID_ARGS, "no file 'located/absent.py'"),
        ("located", ErrorCode.CLI_INVALID_ARGS, "no Horsies app"),
        ("located.absent", ErrorCode.CLI_INVALID_ARGS, "'located.absent'"),
        ("absent", ErrorCode.CLI_INVALID_ARGS, "'absent'"),
        ("absent.inner:app", ErrorCode.CLI_INVALID_ARGS, "'absent'"),
        ("located.one:absent", ErrorCode.WORKER_INVALID_LOCATOR, "apps in that module: app"),
        ("located.one:ap", ErrorCode.WORKER_INVALID_LOCATOR, "did you mean located.one:app?"),
        ("located.none:x", ErrorCode.WORKER_INVALID_LOCATOR, "is of type int, not a Horsies app"),
        ("", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
        (":app", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
        ("located.one:", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
        ("located.one:a.b", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
        ("located one", ErrorCode.WORKER_INVALID_LOCATOR, "not the name of a module"),
        ("..located", ErrorCode.WORKER_INVALID_LOCATOR, "not the name of a module"),
        ("located.broken", ErrorCode.MODULE_EXEC_ERROR, "ZeroDivisionError"),
        ("located/broken.py", ErrorCode.MODULE_EXEC_ERROR, "broken.py:2"),
        ("located.needy", ErrorCode.MODULE_EXEC_ERROR, "no_such_library"),
        ("located.leaving", ErrorCode.MODULE_EXEC_ERROR, "SystemExit"),
    ],
)
def test_m01_what_is_said_about_a_locator_that_does_not_work(locator: str, code: ErrorCode, said: str) -> None:
    with pytest.raises(HorsiesError) as caught:
        load_app(locator)
    assert caught.value.code is code
    assert said in str(caught.value)


FACTORY = """
from horsies.core.app import Horsies
from horsies.core.models.app import AppConfig
from horsies.core.models.tasks import TaskError, TaskResult

URL = "postgresql://nobody@127.0.0.1:1/nothing"
sent = []

def create_app() -> Horsies:
    app = Horsies(AppConfig.for_database_url(URL))

    @app.task("made.add")
    def add(a: int, b: int) -> TaskResult[int, TaskError]:
        return TaskResult(ok=a + b)

    sent.append(add.send(1, 2))
    return app

def with_defaults(url: str = URL):
    return Horsies(AppConfig.for_database_url(url))

def needs_more(url: str) -> "Horsies": ...
def another_kind(): return 3
def fails(): raise KeyError("SHOP_URL")
def leaves(): raise SystemExit(3)
async def later() -> Horsies: ...
number = 3
app = None
"""


@pytest.fixture
def factory(project: Path) -> Path:
    (project / "located" / "made.py").write_text(FACTORY)
    return project


@pytest.mark.parametrize("locator", ["located.made:create_app()", "located/made.py:create_app()"])
def test_m01_an_app_is_made_by_a_function(factory: Path, locator: str) -> None:
    app = load_app(locator)
    assert app.list_tasks() == ["made.add"] and Horsies.current() is app
    [sent] = sys.modules["located.made"].sent
    assert "SEND_SUPPRESSED" in str(sent), "a function that makes an app sends nothing"
    assert load_app(locator) is not app, "it is called each time"


def test_m01_a_function_with_defaults_is_enough(factory: Path) -> None:
    assert load_app("located.made:with_defaults()").list_tasks() == []


@pytest.mark.parametrize(
    ("locator", "code", "said"),
    [
        ("located.made", ErrorCode.CLI_INVALID_ARGS, "'located.made:create_app()'"),
        ("located.made:create_app", ErrorCode.WORKER_INVALID_LOCATOR, "call it: 'located.made:create_app()'"),
        ("located.made:create_ap()", ErrorCode.WORKER_INVALID_LOCATOR, "did you mean 'located.made:create_app()'?"),
        ("located.made:needs_more()", ErrorCode.WORKER_INVALID_LOCATOR, "missing a required argument: 'url'"),
        ("located.made:another_kind()", ErrorCode.WORKER_INVALID_LOCATOR, "returned int, not a Horsies app"),
        ("located.made:later()", ErrorCode.WORKER_INVALID_LOCATOR, "returned coroutine"),
        ("located.made:number()", ErrorCode.WORKER_INVALID_LOCATOR, "is of type int, not a function"),
        ("located.one:app()", ErrorCode.WORKER_INVALID_LOCATOR, "use located.one:app"),
        ("located.made:fails()", ErrorCode.MODULE_EXEC_ERROR, "KeyError: 'SHOP_URL'"),
        ("located.made:leaves()", ErrorCode.MODULE_EXEC_ERROR, "SystemExit: 3"),
        ("located.made:create_app(1)", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
        ("located.made:()", ErrorCode.WORKER_INVALID_LOCATOR, "does not name"),
    ],
)
def test_m01_what_is_said_about_a_function_that_does_not_work(
    factory: Path, locator: str, code: ErrorCode, said: str
) -> None:
    with pytest.raises(HorsiesError) as caught:
        load_app(locator)
    assert caught.value.code is code
    assert said in str(caught.value)
