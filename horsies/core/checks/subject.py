"""What the phases of a check work on, and what earlier phases leave for later ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from horsies.core import discovery
from horsies.core.models.workflow.spec import WorkflowSpec

if TYPE_CHECKING:
    from horsies.core.app import Horsies


@dataclass
class Subject:
    """An app under check. `specs` are the workflows that have been built so far."""

    app: Horsies
    specs: list[WorkflowSpec[Any]] = field(default_factory=list)

    @cached_property
    def discovered(self) -> list[ModuleType]:
        """The modules that the app names. They are imported by then."""
        return [discovery.import_entry(entry) for entry in self.app.get_discovered_task_modules()]

    @cached_property
    def own_module(self) -> ModuleType | None:
        """The module that made the app, unless it is one of the discovered modules: a program of one file has no
        others."""
        place = self.app.location
        if place is None:
            return None
        found = [module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == place.file]
        return next((module for module in found if module not in self.discovered), None)

    @property
    def modules(self) -> Iterator[ModuleType]:
        yield from self.discovered
        if self.own_module is not None:
            yield self.own_module
