"""The repository stands on its own: pinned versions, no address of a machine or a mirror, no path of one either."""

from __future__ import annotations

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import lines_with, texts

# Standards and documentation that a reader may want to follow, and names reserved for examples.
KNOWN_HOSTS = {
    "localhost",
    "127.0.0.1",
    "example.com",
    "example.org",
    "docs.python.org",
    "json-schema.org",
    "keepachangelog.com",
    "packaging.python.org",
    "peps.python.org",
    "semver.org",
    "spdx.org",
    "www.postgresql.org",
    "www.w3.org",  # the namespace of SVG
    "www.rfc-editor.org",
}
ADDRESS = re.compile(r"\b(?:https?|git|ssh|ftp)" + r"://(?:[^\s/@]*@)?([\w.-]+)")
HOME_OF_SOMEONE = re.compile(r"(?<![\w.~:])/" + r"(?:(?:work|home|Users|mnt|srv)/\w|root/\.)")
INDEX_OPTION = re.compile(r"--(?:extra-)?index" + r"-url|--find" + r"-links|--trusted" + r"-host")
# A package that has dropped one of our Pythons has a pin for it and another for the later ones.
PLAIN_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.!+]*(?:; python_version (?:<|>=) \"3\.[0-9]+\")?")


def test_the_files_are_found() -> None:
    assert {"pyproject.toml", "constraints.txt", "tests/architecture/test_repo.py"} <= set(texts())


def test_constraints_are_plain_pins() -> None:
    lines = [line for line in texts()["constraints.txt"].splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if not PLAIN_PIN.fullmatch(line)] == []
    pins = [Requirement(line) for line in lines]
    for python in ("3.11", "3.12", "3.13", "3.14"):
        here = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_version": python})]
        names = [canonicalize_name(pin.name) for pin in here]
        assert len(names) == len(set(names)), f"a name is pinned twice for Python {python}"


def test_no_address_of_a_server() -> None:
    wrong = [f"{name}:{line} {match[0]}" for name, line, match in lines_with(ADDRESS) if match[1] not in KNOWN_HOSTS]
    assert wrong == []


def test_no_option_for_another_index() -> None:
    assert [f"{name}:{line}" for name, line, _ in lines_with(INDEX_OPTION)] == []


def test_no_path_of_a_machine() -> None:
    assert [f"{name}:{line} {match[0]}" for name, line, match in lines_with(HOME_OF_SOMEONE)] == []


def test_text_files_end_with_a_newline_and_have_no_stray_characters() -> None:
    """The files of others are unchanged."""
    ours = {name: text for name, text in texts().items() if "/vendor/" not in name}
    assert [name for name, text in ours.items() if text and not text.endswith("\n")] == []
    assert [name for name, text in ours.items() if "\r" in text] == []
    assert [name for name, text in ours.items() if "\t" in text and name != "Makefile"] == []
