"""What `horsies new` writes and refuses (X-32). tests/e2e/test_new_projects.py runs what it has written."""

from __future__ import annotations

import importlib.util
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from horsies.cli import main
from horsies.core.errors import ConfigurationError
from horsies.dev import new
from tests.each import each


@each("name, package", [("shop", "shop"), ("my-shop", "my_shop"), ("My Shop.2", "my_shop_2"), ("a--b", "a_b")])
def test_x32_the_package_has_the_name_of_the_directory(name: str, package: str) -> None:
    assert new.package_of(name) == package


@pytest.mark.parametrize("name", ["my-shop", "My Shop.2", "a--b", "shop-", "shop_"])
def test_x32_the_name_of_the_project_is_one_that_pip_understands(tmp_path: Path, name: str) -> None:
    new.create(tmp_path / name, new.Template.MINIMAL)
    facts = tomllib.loads((tmp_path / name / "pyproject.toml").read_text())
    assert Requirement(facts["project"]["name"]).name == facts["project"]["name"]


def test_x32_what_a_template_needs_beside_horsies_is_named_if_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [new.missing_for(template) for template in new.Template] == [[], [], []], "the tests have all of it"
    assert not new.is_extra_missing()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for template in new.Template:
        facts = tomllib.loads((new.TEMPLATES / template.value / "pyproject.toml.in").read_text())["project"]
        named = [*facts["dependencies"], *facts["optional-dependencies"]["dev"]]
        brought = {"horsies-pg", "uvicorn"}  # by the extra `dev`
        assert new.is_extra_missing()
        wanted = [one for one in map(Requirement, named) if one.name not in brought]
        assert sorted(new.missing_for(template)) == sorted({_without_version(one) for one in wanted})


def _without_version(wanted: Requirement) -> str:
    return wanted.name + (f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else "")


@pytest.mark.parametrize(
    "absent, install",
    [
        ((), ""),
        (("fastapi", "pytest"), "pip install fastapi pytest && "),
        (("greenlet",), "pip install 'sqlalchemy[asyncio]' && "),
        (("watchfiles",), "pip install 'horsies-pg[dev]' && "),
        (("jinja2", "httpx2"), "pip install 'horsies-pg[dev]' httpx2 && "),
    ],
)
def test_x32_the_next_steps_are_printed_as_one_would_type_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    absent: tuple[str, ...],
    install: str,
) -> None:
    find_spec = importlib.util.find_spec

    def found(name: str, *package: Any) -> Any:
        return None if name in absent else find_spec(name, *package)

    monkeypatch.setattr("importlib.util.find_spec", found)
    monkeypatch.chdir(tmp_path)
    assert main.run(["new", "my shop", "--template", "fastapi"]) == 0
    said = capsys.readouterr()
    assert said.err == f"next: cd 'my shop' && {install}horsies dev (README.md says more)\n"
    assert "my shop/pyproject.toml" in said.out.splitlines()


@each(
    "name, why",
    [
        ("test", "would hide"), ("json", "would hide"), ("horsies", "would hide"), ("django", "would hide"),
        ("tests", "would hide"), ("pytest", "would hide"), ("psutil", "would hide"), ("class", "cannot be the name"),
        ("1shop", "cannot be the name"), ("-", "cannot be the name"),
        ("küche", "cannot be the name"), ("", "cannot be the name"), ("a/b", "cannot be the name"),
    ],
)  # fmt: skip
def test_x32_names_that_cannot_be_imported_or_hide_something_are_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        new.package_of(name)
    assert why in str(refused.value)


@pytest.mark.parametrize("template", new.Template)
def test_x32_a_project_is_whole_and_names_itself(tmp_path: Path, template: new.Template) -> None:
    written = new.create(tmp_path / "deep" / "my-shop", template)
    root = tmp_path / "deep" / "my-shop"
    names = {str(file.relative_to(root)) for file in written}
    assert {"pyproject.toml", "README.md", ".gitignore", "my_shop/__init__.py", "my_shop/tasks.py"} <= names
    assert any(re.fullmatch(r"tests/test_\w+\.py", name) for name in names)
    texts = {file: file.read_text() for file in written}
    assert [file for file, text in texts.items() if re.search(r"@\w+@", text) or "@" in file.name] == []
    facts = tomllib.loads(texts[root / "pyproject.toml"])
    assert facts["project"]["name"] == "my-shop"
    assert facts["tool"]["horsies"]["app"].startswith("my_shop")
    assert ".horsies/" in texts[root / ".gitignore"]
    for file, text in texts.items():
        if file.suffix == ".py":
            compile(text, str(file), "exec")


def test_x32_a_directory_that_is_used_is_refused_and_a_fresh_repository_is_not(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    assert new.create(tmp_path / "shop", new.Template.MINIMAL)
    with pytest.raises(ConfigurationError, match="is not empty"):
        new.create(tmp_path / "shop", new.Template.MINIMAL)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be read: Not a directory"):
        new.create(tmp_path / "file", new.Template.MINIMAL)


def test_x32_what_cannot_be_written_as_a_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = new.files_of(new.Template.MINIMAL)
    (tmp_path / "occupied").touch()
    monkeypatch.setattr(new, "files_of", lambda template: [*real, (real[0][0], "README.md/impossible")])
    with pytest.raises(ConfigurationError, match="cannot be written"):
        new.create(tmp_path / "a" / "shop", new.Template.MINIMAL)
    assert os.listdir(tmp_path) == ["occupied"]


def test_x32_who_interrupts_it_finds_nothing_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted:
        def read_text(self, encoding: str) -> str:
            raise KeyboardInterrupt

    real = new.files_of(new.Template.MINIMAL)
    (tmp_path / "occupied").touch()
    monkeypatch.setattr(new, "files_of", lambda template: [*real, (Interrupted(), "deep/last.py")])
    with pytest.raises(KeyboardInterrupt):
        new.create(tmp_path / "a" / "shop", new.Template.MINIMAL)
    assert os.listdir(tmp_path) == ["occupied"]
