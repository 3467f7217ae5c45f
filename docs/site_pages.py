"""What the documentation site needs beside the pages of this directory: the decisions, the examples, the files of
`deploy/` and the changelog become pages of it, and links that lead out of this directory lead to those.

The pages are written to be read in the repository as well, so their links are relative to it; nothing in them knows of
the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".service": "ini",
    ".target": "ini",
    ".conf": "ini",
    ".env": "ini",
    ".example": "ini",
}
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=\"?((?:https?:)?//[^\" >]+)")
LINK = re.compile(r"(\]\()((?:\.\./)+)([^)\s#]+)")


def on_files(files: Files, config: Any) -> Files:
    """Pages for what lies outside of the documents."""
    for directory in ("examples", "deploy"):
        shown = sorted(_shown(ROOT / directory))
        for path in shown:
            files.append(_page(config, path.relative_to(ROOT).as_posix(), _source(path)))
        for folder in sorted({path.parent for path in shown} | {ROOT / directory}):
            inside = [path for path in shown if folder in path.parents]
            files.append(_page(config, f"{folder.relative_to(ROOT).as_posix()}/index", _contents(folder, inside)))
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        files.append(_page(config, name.removesuffix(".md"), (ROOT / name).read_text(encoding="utf-8")))
    decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
    lines = [f"- [{_title(path)}]({path.name})" for path in decisions]
    files.append(_page(config, "decisions/index", "# Decisions\n\nWhy it is built this way.\n\n" + "\n".join(lines)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of the directory, and to whole directories, lead to the pages made above."""
    here = PurePosixPath(page.file.src_uri).parent
    generated = page.file.src_uri in ("CHANGELOG.md", "CONTRIBUTING.md")

    def target(match: re.Match[str]) -> str:
        ups, rest = match[2].count("../") - len(here.parts), match[3]
        if ups != 1:
            return match[0]
        return f"{match[1]}{'../' * len(here.parts)}{_name(rest)}"

    if generated:  # they lie beside the documents and speak of docs/...
        return re.sub(r"\]\((?:docs/)?([^)\s#]*[^)\s#/])(/?)(?=[)#])", lambda m: f"]({_inside(m[1] + m[2])}", markdown)
    markdown = re.sub(r"\]\(decisions/\)", "](decisions/index.md)", markdown)
    return LINK.sub(target, markdown)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The site is read without a network: nothing is loaded from elsewhere."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load {found[1]}")
    return output


def _inside(target: str) -> str:
    return target if "://" in target else _name(target)


def _name(target: str) -> str:
    """The page that shows a file or a directory of the repository."""
    if target.endswith("/"):
        return f"{target}index.md"
    return target if target.endswith((".md", ".png")) else f"{target}.md"


def _shown(directory: Path) -> Iterator[Path]:
    for path in directory.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and not path.name.endswith(".pyc"):
            yield path


def _page(config: Any, name: str, content: str) -> File:
    return File.generated(config, f"{name}.md", content=content, inclusion=InclusionLevel.NOT_IN_NAV)


def _source(path: Path) -> str:
    language = LANGUAGES.get(path.suffix, "text" if path.name != "Dockerfile" else "docker")
    return f"# {path.name}\n\n````{language}\n{path.read_text(encoding='utf-8')}````\n"


def _contents(folder: Path, inside: list[Path]) -> str:
    lines = [f"- [`{name}`]({name}.md)" for name in (path.relative_to(folder).as_posix() for path in inside)]
    return f"# {folder.relative_to(ROOT).as_posix()}/\n\n" + "\n".join(lines) + "\n"


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
