"""Which app a locator leads to, and what is said when it leads nowhere (M-01)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.locate import load_app

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
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def module_of(locator: str) -> object:
    app = load_app(locator)
    return next(module for module in list(sys.modules.values()) if getattr(module, "app", None) is app)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
