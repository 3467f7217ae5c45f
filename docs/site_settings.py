"""For the reference of the documentation site: the `description` of a setting is what is said about it, what an object
merely keeps from its `__init__` is its own business, a blocking twin has the signature and the words of the function it
is made of, and what a decorator makes of a result is told.

Read from the source, as everything in the reference is; nothing is imported.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_RESULTS = {"as_broker_result": "BrokerResult", "_as_result": "ScheduleResult"}
_TWIN = re.compile(r"run_sync\((\w+)\)")


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
        if isinstance(said, ast.Constant) and attr.docstring is None:  # what is computed belongs to no page
            attr.docstring = griffe.Docstring(ast.literal_eval(said), parent=attr)


class Twins(griffe.Extension):
    """Turns `get = run_sync(get_async)` into a method."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        _add_twins(cls)

    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        _add_twins(mod)

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        for decorator in func.decorators:
            result = _RESULTS.get(str(decorator.value).partition("(")[0])
            if result is not None:
                func.returns = f"{result}[{func.returns}]"


def _add_twins(owner: griffe.Class | griffe.Module) -> None:
    for name, member in list(owner.members.items()):
        made = _TWIN.fullmatch(str(member.value)) if isinstance(member, griffe.Attribute) else None
        if made is None:
            continue
        awaiting = owner.members[made[1]]
        assert isinstance(awaiting, griffe.Function)
        owner.members[name] = griffe.Function(
            name,
            lineno=member.lineno,
            parameters=awaiting.parameters,
            returns=awaiting.returns,
            docstring=awaiting.docstring,
            parent=owner,
        )
