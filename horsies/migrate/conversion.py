"""A set of files in, the changed ones and the findings out; the same for every old library (X-42)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from horsies.migrate import celery, procrastinate
from horsies.migrate.findings import Finding, FindingKind, Library
from horsies.migrate.names import finished
from horsies.migrate.project import File, Project
from horsies.migrate.source import SourceFile, Unreadable, parsed, read


@dataclass(frozen=True, slots=True)
class Given:
    """A file to be converted: its path as people know it, its module, and its bytes."""

    path: str
    module: str
    content: bytes
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    path: str
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Conversion:
    """`changed` are the files that are different now; `read` is how many were looked at."""

    changed: list[Changed]
    findings: list[Finding]
    read: int

    @property
    def by_hand(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind is FindingKind.BY_HAND]


_CONVERTERS: dict[Library, Callable[[Sequence[SourceFile], str | None], Project]] = {
    Library.CELERY: celery.convert,
    Library.PROCRASTINATE: procrastinate.convert,
}


def convert(library: Library, given: Sequence[Given], app: str | None = None) -> Conversion:
    """Convert files that belong together. `app` is `module:name`, if the app is in none of them."""
    sources: dict[str, SourceFile] = {}
    findings: list[Finding] = []
    for one in _concerned(library, given, app):
        try:
            source = read(one.path, one.module, one.content, is_package=one.is_package)
        except Unreadable as problem:
            findings.append(_left(one.path, problem.line, f"the file was left as it is: {problem}", "repair it first"))
            continue
        if (other := sources.get(one.module)) is not None:
            what = f"the file was left as it is: {other.path} is the module {one.module} too"
            findings.append(_left(one.path, 1, what, "convert one after the other"))
        else:
            sources[one.module] = source
    project = _CONVERTERS[library](list(sources.values()), app)
    before = {one.path: one.content for one in given}
    changed = []
    for file in project.files.values():
        after = _result(file, library)
        if after != before[file.source.path]:
            changed.append(Changed(file.source.path, before[file.source.path], after))
        findings += file.findings
    return Conversion(changed, sorted(set(findings)), len(given))


def _concerned(library: Library, given: Sequence[Given], app: str | None) -> list[Given]:
    """The files that name the library, or a module that does, and so on. Of the others nothing needs to be known; they
    may be thousands."""
    words, found = {library.value}, dict.fromkeys(range(len(given)), False)
    if app is not None:
        words.add(app.partition(":")[0].rpartition(".")[2])
    while words:
        pattern = re.compile("|".join(map(re.escape, sorted(words))).encode())
        new = [place for place, one in enumerate(given) if not found[place] and pattern.search(one.content)]
        found.update(dict.fromkeys(new, True))
        words = {given[place].module.rpartition(".")[2] for place in new}
    return [one for place, one in enumerate(given) if found[place]]


def _result(file: File, library: Library) -> bytes:
    """The bytes of a converted file; those of the old one if the new one were no Python."""
    source = file.source
    try:
        text = finished(source, file.names, library.value)
        parsed(text)
        return source.encoded(text)
    except (Unreadable, UnicodeEncodeError) as problem:
        file.findings.append(
            _left(
                source.path,
                1,
                f"the file was left as it is: its conversion is no Python ({problem})",
                "convert it by hand",
            )
        )
        return source.encoded(source.text)


def _left(path: str, line: int, what: str, instead: str) -> Finding:
    return Finding(path, line, FindingKind.BY_HAND, what, instead, "convert")
