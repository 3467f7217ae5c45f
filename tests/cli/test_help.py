"""Every command explains itself, with examples that it accepts; the shell completes what can be typed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from horsies.cli import options
from horsies.cli.main import GROUPS, run
from horsies.cli.main import app as command_line
from horsies.cli.options import EXAMPLES, parse_age, parse_members
from horsies.core.types.status import TaskStatus

GROUP: Any = typer.main.get_command(command_line)


def commands(group: Any = GROUP, before: str = "") -> dict[str, Any]:
    found = {}
    for name, command in group.commands.items():
        found |= commands(command, f"{before}{name} ") if hasattr(command, "commands") else {before + name: command}
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_explains_itself_with_examples(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: horsies {name} " in shown
    assert all(typed in shown for _, typed in EXAMPLES[name])
    assert all(option.help for option in commands()[name].params), "each option says what it means"


def test_there_are_examples_of_nothing_else() -> None:
    assert set(EXAMPLES) == set(commands())


@pytest.mark.parametrize("typed", [typed for examples in EXAMPLES.values() for _, typed in examples])
def test_the_examples_are_accepted(typed: str) -> None:
    words, _, piped = " ".join(map(shlex.quote, shlex.split(typed))).partition(" '|' ")
    for part in (words, f"{piped} some-id" if piped.startswith("xargs ") else ""):
        program, *rest = shlex.split(part.removeprefix("xargs ")) or [""]
        if program == "horsies":
            length = 2 if rest[0] == "workflow" else 1
            name = " ".join(rest[:length])
            with commands()[name].make_context(name, rest[length:]) as context:
                assert context.params


def test_the_commands_are_listed_in_groups_and_not_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert "..." not in shown.partition("Run:\n")[2]
    for heading, names in GROUPS.items():
        listed = shown.partition(f"{heading}:\n")[2].partition("\n\n")[0].splitlines()
        assert [line.split()[0] for line in listed] == [*names], heading
    assert {name for names in GROUPS.values() for name in names} == set(GROUP.commands)
    assert run(["workflow", "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:\n")[2]


def completed(words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the shell would offer after these words."""
    monkeypatch.setenv("_HORSIES_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"horsies {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    assert run([]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out.split()


def test_the_shell_completes_commands_options_and_modules_without_importing_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text("open('imported', 'w').close()")
    monkeypatch.chdir(tmp_path)
    cases = {
        "ta": ["tasks", "task"],
        "tasks --error-": ["--error-code", "--error-category"],
        "purge --status fail": ["failed"],
        "worker sh": ["shop"],
        "cancel sh": ["shop"],
    }
    assert {words: completed(words, capsys, monkeypatch) for words in cases} == cases
    assert not (tmp_path / "imported").exists()


def test_the_script_for_the_shell_is_shown() -> None:
    env = {**os.environ, "_HORSIES_COMPLETE": "source_zsh"}
    shown = subprocess.run(
        [Path(sys.executable).parent / "horsies"], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert "_HORSIES_COMPLETE=complete_zsh" in shown.stdout


def test_modules_are_found_by_the_names_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("shop/__init__.py", "shop/tasks.py", "shop/__main__.py", "setup.py", "notes.txt", "data/x.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert options.modules("") == ["setup", "shop"]
    assert options.modules("shop.") == ["shop.tasks"]
    assert options.modules("./") == ["./data/", "./setup.py", "./shop/"]
    assert options.modules("data/") == ["data/x.py"]
    assert options.modules("nowhere.") == options.modules("nowhere/") == []


def test_states_are_completed_also_behind_a_comma() -> None:
    complete = options.members(TaskStatus)
    assert complete("c") == ["claimed", "completed", "cancelled"]
    assert complete("FAILED,E") == ["FAILED,EXPIRED"]
    assert complete("") == [status.value for status in TaskStatus]


def test_states_are_read_in_any_case() -> None:
    assert parse_members(TaskStatus, ["failed,Expired", "PENDING"], "--x") == ("FAILED", "EXPIRED", "PENDING")
    assert parse_members(TaskStatus, None, "--x") == ()
    with pytest.raises(typer.BadParameter):
        parse_members(TaskStatus, ["failed"], "--x", among=[TaskStatus.PENDING])


@pytest.mark.parametrize(("text", "age"), [("30d", {"days": 30}), ("1.5d", {"hours": 36}), ("2h", {"hours": 2})])
def test_ages_may_be_in_days(text: str, age: dict[str, float]) -> None:
    assert parse_age(text) == timedelta(**age)


@pytest.mark.parametrize("text", ["d", "-1d", "1d2h", "36501d", "1 d"])
def test_what_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_age(text)
