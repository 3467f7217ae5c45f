"""A name means one thing: no two classes of the package share one, and a name that is documented leads somewhere."""

from __future__ import annotations

import ast
import importlib

import pytest

from tests.architecture.source import modules


def test_no_two_public_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = {}
    for module in modules().values():
        if ".migrations." in module.name:
            continue  # Django wants every one to be called `Migration`
        for node in ast.parse(module.text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name)
    assert len(homes) > 300, "the classes were found"
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", [name for name, module in modules().items() if "\n__all__ = " in module.text])
def test_everything_that_a_module_lists_can_be_imported_from_it(name: str) -> None:
    """Also what is imported on first access only, and what an extra provides."""
    module = importlib.import_module(name)
    assert [listed for listed in module.__all__ if not hasattr(module, listed)] == []
