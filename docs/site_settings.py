"""For the reference of the documentation site: the `description` of a setting is what is said about it, and what an
object merely keeps from its `__init__` is its own business.

Read from the source, as everything in the reference is; nothing is imported.
"""

from __future__ import annotations

import ast
from typing import Any

import griffe


class Settings(griffe.Extension):
    """Turns `name: int = Field(default=5, description="…")` into a default and a docstring."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        for name, member in list(cls.members.items()):
            is_kept = member.is_attribute and member.labels == {"instance-attribute"}
            if is_kept and member.docstring is None and getattr(member, "annotation", None) is None:
                del cls.members[name]

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **kwargs: Any) -> None:
        value = getattr(node, "value", None)
        if not isinstance(value, ast.Call) or ast.unparse(value.func) != "Field":
            return
        given = {keyword.arg: keyword.value for keyword in value.keywords}
        default = given.get("default", given.get("default_factory"))
        if value.args:
            default = value.args[0]
        attr.value = None if default is None else ast.unparse(default)
        said = given.get("description")
        if said is not None and attr.docstring is None:
            attr.docstring = griffe.Docstring(ast.literal_eval(said), parent=attr)
