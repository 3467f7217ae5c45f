"""What must not be in a public repository, and names that must lead somewhere."""

from __future__ import annotations

import importlib
import re

from tests.architecture.source import lines_with, modules

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


def test_no_address_or_path_of_a_machine_is_published() -> None:
    wrong = [f"{name}:{line} {match[0]}" for name, line, match in lines_with(ADDRESS) if match[1] not in KNOWN_HOSTS]
    for pattern in (HOME_OF_SOMEONE, INDEX_OPTION):
        wrong += [f"{name}:{line} {match[0]}" for name, line, match in lines_with(pattern)]
    assert wrong == []


def test_everything_that_a_module_lists_can_be_imported_from_it() -> None:
    """Also what is imported on first access only, and what an extra provides."""
    listing = [name for name, module in modules().items() if "__all__ = " in module.text]
    assert len(listing) > 5
    missing = []
    for name in listing:
        module = importlib.import_module(name)
        missing += [f"{name}.{listed}" for listed in module.__all__ if not hasattr(module, listed)]
    assert missing == []
