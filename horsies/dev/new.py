"""A new project from a template (X-32): which name its package gets, what is refused, and its files. Templates are
files of this package that end in `.in`; `@name@`, `@package@` and `@origin@` in their texts and names are replaced.
"""

import importlib.util
import keyword
import re
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from horsies.core import distribution
from horsies.core.errors import ConfigurationError, ErrorCode

TEMPLATES = Path(__file__).with_name("templates")
SUFFIX = ".in"
# Names of what the project itself contains or needs, which may not be installed yet.
TAKEN = frozenset({"conftest", "django", "fastapi", "manage", "tests"})


class Template(StrEnum):
    """What a project is made for."""

    MINIMAL = "minimal"
    FASTAPI = "fastapi"
    DJANGO = "django"


EXTRA = ("watchfiles", "starlette", "uvicorn", "jinja2")  # some of what the extra `dev` brings
# What horsies does not bring; `pip install` knows them by the same names, but for one.
NEEDS = {
    Template.MINIMAL: (),
    Template.FASTAPI: ("fastapi", "httpx2", "greenlet"),
    Template.DJANGO: ("django",),
}
BROUGHT_BY = {"greenlet": "sqlalchemy[asyncio]"}  # horsies brings SQLAlchemy without it


def create(directory: Path, template: Template) -> list[Path]:
    """Write the project; return its files. Nothing is left behind if it fails."""
    target = directory.absolute()
    package = package_of(target.resolve().name)
    name = re.sub(r"[^A-Za-z0-9._]+", "-", target.resolve().name).strip("-._")  # in pyproject.toml it has no blanks
    origin = distribution.origin()  # a project gets horsies from where this installation came
    words = {"@name@": name, "@package@": package, "@origin@": "" if origin is None else f" @ {origin}"}
    refuse_used(target)
    written: list[Path] = []
    made = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        for source, relative in files_of(template):
            file = target / filled(relative, words)
            made += [folder for folder in (file.parent, *file.parent.parents) if not folder.exists()]
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                written.append(file)
                opened.write(filled(source.read_text(encoding="utf-8"), words))
    except OSError as problem:
        _remove(written, made)
        raise _refused(f"the project cannot be written to {directory}: {problem.strerror}") from None
    except BaseException:
        _remove(written, made)
        raise
    return written


def files_of(template: Template) -> list[tuple[Path, str]]:
    """The files of a template, each with the path that it gets."""
    root = TEMPLATES / template.value
    paths = {path.relative_to(root).as_posix().removesuffix(SUFFIX): path for path in root.rglob(f"*{SUFFIX}")}
    # Files with a dot in front are easily left out of packages, so templates have none.
    return [(path, ".gitignore" if name == "gitignore" else name) for name, path in sorted(paths.items())]


def filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def package_of(name: str) -> str:
    """The package of a project of this name: `my-shop` is `my_shop`. It must not hide another module."""
    package = re.sub(r"[-. ]+", "_", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package) or keyword.iskeyword(package):
        raise _refused(f"{name!r} cannot be the name of a Python package", "letters, digits and -, such as my-shop")
    if package in TAKEN or ((found := importlib.util.find_spec(package)) is not None and found.origin is not None):
        raise _refused(f"a package {package!r} would hide the module of that name", "another name, such as my-shop")
    return package


def missing_for(template: Template) -> list[str]:
    """What to install because the project also needs it, and it is not here."""
    return [BROUGHT_BY.get(package, package) for package in (*NEEDS[template], "pytest") if not _is_there(package)]


def is_extra_missing() -> bool:
    """Whether `horsies dev` would refuse to start here."""
    return not all(_is_there(package) for package in EXTRA)


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def refuse_used(target: Path) -> None:
    """A project is written into a new or an empty directory; a repository that was just made counts as empty."""
    try:
        is_used = target.exists() and any(path.name != ".git" for path in target.iterdir())
    except OSError as problem:
        raise _refused(f"{target} cannot be read: {problem.strerror}", "name a new directory") from None
    if is_used:
        raise _refused(f"{target} is not empty", "name a new directory")


def _remove(files: list[Path], folders: list[Path]) -> None:
    for file in files:
        with suppress(OSError):
            file.unlink()
    for folder in sorted(set(folders), key=lambda one: -len(one.parts)):
        with suppress(OSError):
            folder.rmdir()


def _refused(message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(message, code=ErrorCode.CLI_INVALID_ARGS, help_text=hint)
