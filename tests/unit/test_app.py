"""The application: discovery, checks, hooks, suppression (T-05, T-09, T-47, M-20, W-45)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from horsies import AppConfig, Horsies, HorsiesError, MultipleValidationErrors
from horsies.core.errors import ConfigurationError, SourceLocation

URL = "postgresql://user:s3cr3t@h/d"


@pytest.fixture
def app() -> Horsies:
    return Horsies(AppConfig.for_database_url(URL))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that can be imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


TASK_MODULE = """
    from horsies import Horsies, TaskError, TaskResult
    app = Horsies.current()

    @app.task({name!r})
    def fn() -> TaskResult[int, TaskError]:
        return TaskResult(ok=1)
"""


def test_t05_takes_one_app_config() -> None:
    config = AppConfig.for_database_url(URL)
    assert Horsies(config).config is Horsies(config=config).config is config
    with pytest.raises(ConfigurationError, match="AppConfig"):
        Horsies({"broker": URL})  # type: ignore[arg-type]


def test_t08_the_app_does_not_show_the_password(app: Horsies) -> None:
    assert "s3cr3t" not in repr(app) and "user:***@h" in repr(app)


def test_t09_one_lazy_broker(app: Horsies) -> None:
    broker = app.get_broker()
    assert app.get_broker() is broker and broker.app is app


def test_t09_discovery_only_records(app: Horsies) -> None:
    app.discover_tasks(["no.such.module", "no/such/file.py"])
    app.discover_tasks(["another", "no.such.module"])
    assert app.get_discovered_task_modules() == ["no.such.module", "no/such/file.py", "another"]
    for wrong in ("module", [5], [""]):
        with pytest.raises(ConfigurationError):
            app.discover_tasks(wrong)  # type: ignore[arg-type]


def test_t09_globs_are_expanded_sorted(app: Horsies, tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "sub/c.py", "notes.txt"):
        write(tmp_path / name, "")
    names = app.expand_module_globs([f"{tmp_path}/**/*.py", f"{tmp_path}/a*", f"{tmp_path}/none*"])
    assert names == [str(tmp_path / name) for name in ("a.py", "b.py", "sub/c.py")]


def test_t09_entries_that_are_no_patterns_are_kept(app: Horsies, tmp_path: Path) -> None:
    odd = write(tmp_path / "odd[1].py", "")
    names = app.expand_module_globs(["myapp.tasks", "jobs/absent.py", "myapp.tasks", str(odd), f"{tmp_path}/none*.py"])
    assert names == sorted(["myapp.tasks", "jobs/absent.py", str(odd)])


def test_t09_patterns_leave_out_tests(app: Horsies, tmp_path: Path) -> None:
    tests = ("test_a.py", "sub/a_test.py", "conftest.py", "sub/conftest.py")
    for name in ("a.py", "sub/testing.py", "sub/latest.py", *tests):
        write(tmp_path / name, "")
    kept = [str(tmp_path / name) for name in ("a.py", "sub/latest.py", "sub/testing.py")]
    assert app.expand_module_globs([f"{tmp_path}/**/*.py"]) == kept
    named = str(tmp_path / "test_a.py")
    assert app.expand_module_globs([named]) == [named], "who names a file means it"


def test_t09_discovering_again_adds(app: Horsies, folder: Path) -> None:
    for name in ("first_t09", "second_t09"):
        write(folder / f"{name}.py", TASK_MODULE.format(name=name))
    app.make_current()
    app.discover_tasks(["first_t09"])
    app.discover_tasks(["second_t09", "first_t09"])
    app.import_modules()
    assert app.get_discovered_task_modules() == ["first_t09", "second_t09"]
    assert app.list_tasks() == ["first_t09", "second_t09"]


def test_t09_modules_by_name_and_by_path(app: Horsies, folder: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(folder / "pkg_t09/__init__.py", "")
    write(folder / "pkg_t09/dotted.py", TASK_MODULE.format(name="dotted"))
    write(folder / "pkg_t09/not_asked_for.py", TASK_MODULE.format(name="other"))
    by_path = write(elsewhere / "by-path.py", TASK_MODULE.format(name="by path"))
    app.make_current()
    app.discover_tasks(["pkg_t09.dotted", str(by_path)])
    app.import_modules()
    assert app.list_tasks() == ["by path", "dotted"]


def test_t09_a_file_that_is_importable_is_the_same_module(app: Horsies, folder: Path) -> None:
    write(folder / "pkg_same/__init__.py", "")
    file = write(folder / "pkg_same/mod.py", TASK_MODULE.format(name="t"))
    app.make_current()
    app.discover_tasks([str(file), "pkg_same.mod"])
    app.import_modules()
    assert app.tasks["t"].fn.__module__ == "pkg_same.mod"
    assert sys.modules["pkg_same.mod"].fn is app.tasks["t"]
    app.import_modules()
    assert sys.modules["pkg_same.mod"].fn is app.tasks["t"]


def test_t47_sends_are_suppressed_during_imports(app: Horsies, folder: Path) -> None:
    write(folder / "sends_on_import.py", TASK_MODULE.format(name="t") + "\n    sent = fn.send()\n")
    app.make_current()
    app.discover_tasks(["sends_on_import"])
    app.import_modules()
    assert sys.modules["sends_on_import"].sent.err_value.code == "SEND_SUPPRESSED"
    assert app.sends_suppressed is False


def test_t47_the_state_before_is_restored(app: Horsies, folder: Path) -> None:
    app.suppress_sends(True)
    app.import_modules()
    assert app.sends_suppressed
    app.suppress_sends(False)
    write(folder / "boom_t47.py", "raise ValueError")
    app.discover_tasks(["boom_t47"])
    with pytest.raises(HorsiesError):
        app.import_modules()
    assert not app.sends_suppressed


def test_m20_a_module_that_fails_on_import(app: Horsies, folder: Path) -> None:
    write(folder / "helper_m20.py", "def boom():\n    raise KeyError('x')\n")
    file = write(folder / "fails_m20.py", "import helper_m20\n\nhelper_m20.boom()\n")
    app.discover_tasks(["fails_m20"])
    [error] = app.check()
    assert error.code == "HRS-210" and "KeyError: 'x'" in error.message and "fails_m20" in error.message
    assert error.location == SourceLocation(str(file.parent / "helper_m20.py"), 2)
    assert "raise KeyError('x')" in str(error)


@pytest.mark.parametrize("body", ["def (:", "import no_such_module_at_all", "raise SystemExit(3)", "1 / 0"])
def test_m20_every_way_to_fail_on_import(app: Horsies, folder: Path, body: str) -> None:
    file = write(folder / "broken_m20.py", f"x = 1\n{body}\n")
    app.discover_tasks(["broken_m20"])
    [error] = app.check()
    assert error.code == "HRS-210" and error.location == SourceLocation(str(file), 2)


def test_m20_modules_that_do_not_exist(app: Horsies, tmp_path: Path) -> None:
    app.discover_tasks(["no_such_module_m20", str(tmp_path / "none.py")])
    missing, absent = app.check()
    assert (missing.code, absent.code) == ("HRS-206", "HRS-206")
    assert "no module named 'no_such_module_m20'" in missing.message and "none.py" in absent.message


def test_m20_a_module_whose_import_is_missing_exists(app: Horsies, folder: Path) -> None:
    write(folder / "needy_m20/__init__.py", "")
    write(folder / "needy_m20/inner.py", "import needy_m20.other")
    write(folder / "opens_m20.py", "open('no such file')")
    app.discover_tasks(["needy_m20.inner", "opens_m20", str(folder / "opens_m20.py"), "needy_m20.absent"])
    assert [error.code for error in app.check()] == ["HRS-210", "HRS-210", "HRS-210", "HRS-206"]


def test_m20_errors_of_all_modules_are_collected(app: Horsies, folder: Path) -> None:
    app.make_current()
    write(folder / "one_m20.py", TASK_MODULE.format(name="t"))
    write(folder / "two_m20.py", TASK_MODULE.format(name="t"))
    write(folder / "three_m20.py", TASK_MODULE.format(name="u").replace("-> TaskResult[int, TaskError]", ""))
    write(folder / "four_m20.py", "1 / 0")
    app.discover_tasks(["one_m20", "two_m20", "three_m20", "four_m20"])
    assert [error.code for error in app.check()] == ["HRS-301", "HRS-100", "HRS-210"]
    with pytest.raises(MultipleValidationErrors):
        app.import_modules()


def test_w45_hooks(app: Horsies) -> None:
    @app.on_child_process_start
    def warm_up() -> None: ...

    app.on_child_process_start(warm_up)
    assert app.get_child_process_start_hooks() == [warm_up]


def test_w45_hooks_are_plain_functions(app: Horsies) -> None:
    async def later() -> None: ...

    def needy(a: int, b: int = 0) -> None: ...

    for wrong in (later, needy, 5):
        with pytest.raises(ConfigurationError) as raised:
            app.on_child_process_start(wrong)  # type: ignore[arg-type, type-var]
        assert raised.value.code == "HRS-214"
    assert app.get_child_process_start_hooks() == []


def test_w40_the_current_app(app: Horsies) -> None:
    app.make_current()
    assert Horsies.current() is app
