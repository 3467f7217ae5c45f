"""Which app a command works with if none is typed (M-01)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from horsies.cli import options, project, session
from horsies.cli.main import run
from horsies.core.errors import HorsiesError

APP = """
from horsies import AppConfig, Horsies

app = Horsies(AppConfig.for_database_url("postgresql://nobody@localhost:1/{name}"))


@app.task("{name}.greet")
def greet(name: str) -> str:
    return name
"""
TABLE = '[tool.horsies]\napp = "shop_in_table:app"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory below that of a project, with three apps of different names."""
    (tmp_path / "pyproject.toml").write_text(TABLE)
    for name in ("shop_in_table", "shop_in_variable", "shop_typed"):
        (tmp_path / f"{name}.py").write_text(APP.format(name=name))
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path / "docs")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("HORSIES_APP", raising=False)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    return tmp_path


def test_m01_a_typed_app_counts_before_the_variable_and_that_before_the_table(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def database_of(*words: str) -> str:
        assert run(["tasks", *words]) == 1, "there is no server"
        return capsys.readouterr().err

    assert "/shop_typed (the app's own)" in database_of("shop_typed:app")
    assert Path.cwd() == here / "docs"
    assert "/shop_in_table (the app's own)" in database_of()
    assert Path.cwd() == here, "the app is found where the table is"
    monkeypatch.setenv("HORSIES_APP", "shop_in_variable:app")
    assert "/shop_in_variable (the app's own)" in database_of()
    assert "/shop_typed (the app's own)" in database_of("shop_typed:app")
    assert "/other (--database-url)" in database_of("--database-url", "postgresql://nobody@localhost:1/other")


@pytest.mark.parametrize("word", ["check", "send", "worker", "scheduler", "schedules", "schema"])
def test_m01_without_any_app_the_command_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HORSIES_APP", raising=False)
    assert run([word, *(["shop.greet"] if word == "send" else [])]) == 1
    said = capsys.readouterr().err
    assert "no app is named" in said and "HORSIES_APP=shop:app" in said


def test_m01_commands_that_need_an_app_have_the_named_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check"]) == 0
    assert run(["schema", "--json"]) == 0
    assert "shop_in_table.greet" in capsys.readouterr().out
    assert run(["send", "shop_in_table.greets", "--args", '["x"]']) == 1
    assert "did you mean shop_in_table.greet?" in capsys.readouterr().err
    assert run(["send", "shop_typed:app", "a.task", "another"]) == 1
    assert "one task at a time" in capsys.readouterr().err


def test_m01_one_id_belongs_to_the_named_app(here: Path) -> None:
    one = "0198c5de-0001-7000-8000-000000000001"
    assert session.module_and_ids([one], has_database=False) == ("shop_in_table:app", [one])
    assert session.module_and_ids([one, "x"], has_database=False) == ("shop_in_table:app", [one, "x"])
    assert session.module_and_ids([one], has_database=True) == (None, [one])
    assert session.module_and_ids(["shop_typed", one], has_database=False) == ("shop_typed", [one])


def test_m01_a_name_that_leads_nowhere_is_not_taken_for_a_typed_word(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HORSIES_APP", "no_such_shop:app")
    for words in (["task", "x"], ["workflow", "show", "x"], ["drain", "web-1:4242:9f3a11c0"]):
        assert run(words) == 1
        said = capsys.readouterr().err
        assert "there is no module named 'no_such_shop'" in said and "was read as the app" not in said


def test_m01_an_app_that_is_named_for_one_command_is_forgotten_after_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `manage.py` and `flask` do."""
    with project.naming("shop_typed:app"):
        assert project.named_app() == "shop_typed:app"
    assert "HORSIES_APP" not in os.environ
    monkeypatch.setenv("HORSIES_APP", "shop_in_variable:app")
    with project.naming("shop_typed:app"):
        assert project.required_app() == "shop_typed:app"
    assert os.environ["HORSIES_APP"] == "shop_in_variable:app"


def test_m01_completion_needs_no_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    monkeypatch.chdir(tmp_path)
    context = typer.Context(typer.main.get_command(typer.Typer(callback=lambda: None)), resilient_parsing=True)
    assert options._app(context, "") == "" and options._app_if_any(context, None) is None
    with pytest.raises(HorsiesError, match="no app is named"):
        project.required_app()


def test_m11_ctrl_c_while_the_command_is_imported_is_no_crash(tmp_path: Path) -> None:
    code = """
import sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            raise KeyboardInterrupt

import horsies.__main__
sys.meta_path.insert(0, Interrupts())
horsies.__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "interrupted\n")


def test_m11_a_wrong_choice_is_named_without_the_words_of_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "shop", "--template", "wrong"]) == 1
    said = capsys.readouterr().err
    assert "'--template' / '-t': 'wrong' is not one of 'minimal', 'fastapi', 'django'" in said
