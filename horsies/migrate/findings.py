"""What a project comes from, and what its conversion has to say beside the changed code: a place, what stands there,
and what to write or to know."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Library(StrEnum):
    """What a project comes from."""

    CELERY = "celery"
    PROCRASTINATE = "procrastinate"

    @property
    def page(self) -> str:
        return f"from-{self.value}"


class FindingKind(StrEnum):
    """`by hand`: the code is not ready until somebody has done it. `differs`: it was changed, and behaves otherwise."""

    BY_HAND = "by hand"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """`topic` is a heading of the page about the old library, as its link."""

    path: str
    line: int
    kind: FindingKind
    what: str
    instead: str
    topic: str

    def as_json(self, page: str) -> dict[str, object]:
        return {
            "file": self.path,
            "line": self.line,
            "kind": self.kind.value,
            "what": self.what,
            "instead": self.instead,
            "page": f"docs/{page}.md#{self.topic}",
        }
