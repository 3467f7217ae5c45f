"""The documentation site as far as it can be seen without building it (`make docs` and `make lint` do that, with every
warning an error): its pages and their order, the reference, and the commands that pages tell the reader to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

import horsies
from tests.deploy.command_lines import parsed, spoken_of, unknown

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


class _Loader(yaml.SafeLoader):
    """For a file whose tags name functions: they are left alone."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    named = pages_of(SITE["nav"])
    there = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(named) == sorted(page for page in there if not page.startswith("decisions/"))


def test_nothing_is_loaded_from_elsewhere_and_nothing_slips_through() -> None:
    assert SITE["theme"]["font"] is False
    plugins = [plugin if isinstance(plugin, str) else next(iter(plugin)) for plugin in SITE["plugins"]]
    assert plugins == ["search", "mkdocstrings"]
    assert not {"extra_css", "extra_javascript"} & set(SITE)
    assert {level for part in SITE["validation"].values() for level in part.values()} == {"warn"}
    commands = (ROOT / "Makefile").read_text().count("mkdocs build --strict")
    assert commands == 2, "in make docs and in make docs-check, which make lint calls"


def test_the_site_is_built_where_git_does_not_look() -> None:
    assert f"{SITE['site_dir'].partition('/')[0]}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_reference_has_every_public_name_once() -> None:
    named = [
        name
        for page in ROOT.glob("docs/reference/*.md")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE)
    ]
    public = [f"horsies.{name}" for name in horsies.__all__]
    assert sorted(name for name in named if name.count(".") == 1 and name != "horsies.monitoring") == sorted(public)
    assert "horsies.monitoring" in named


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_are_understood(page: Path) -> None:
    for words in spoken_of(page.read_text()):
        parsed(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_that_a_page_mentions_exist_with_their_options(page: Path) -> None:
    spoken = [shlex.split(words) for words in re.findall(r"`horsies ([a-z][^`]*)`", page.read_text())]
    assert {" ".join(words): wrong for words in spoken if (wrong := unknown(words))} == {}


def test_commands_are_found_at_all() -> None:
    assert sum(len(spoken_of(page.read_text())) for page in PAGES) >= 40
