"""`llms.txt` and `llms-full.txt` at the root of the site (X-41): every page of the navigation with one line about it,
and the text of all pages, for programs that read documentation. A hook of MkDocs, of which the functions below need
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 240  # characters of the line about a page
_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")


@dataclass(frozen=True)
class Entry:
    """A page: the section it is in, its title there, its source, and its text."""

    section: str
    title: str
    source: str
    text: str

    @property
    def address(self) -> str:
        return self.source.removesuffix(".md") + ".html"


def on_post_build(config: Any) -> None:
    """Written when the pages are, so that every link can be checked."""
    site, found = Path(config.site_dir), list(entries(config.nav, Path(config.docs_dir)))
    if missing := [one.address for one in found if not (site / one.address).is_file()]:
        raise RuntimeError(f"llms.txt would name pages that do not exist: {missing}")
    (site / "llms.txt").write_text(short(config.site_name, config.site_description, found), encoding="utf-8")
    (site / "llms-full.txt").write_text(full(config.site_name, found), encoding="utf-8")


def entries(nav: Any, docs: Path, section: str = "Start", title: str | None = None) -> Iterator[Entry]:
    """The pages of the navigation, in its order."""
    if isinstance(nav, str):
        text = (docs / nav).read_text(encoding="utf-8")
        yield Entry(section, title or text.partition("\n")[0].lstrip("# "), nav, text)
    elif isinstance(nav, dict):
        for name, below in nav.items():
            if isinstance(below, str):
                yield from entries(below, docs, section, name)
            else:
                yield from entries(below, docs, name)
    else:
        for one in nav:
            yield from entries(one, docs, section)


def short(name: str, description: str, found: list[Entry]) -> str:
    lines = [f"# {name}", "", f"> {description}", "", "The text of all pages: [llms-full.txt](llms-full.txt)"]
    section = None
    for one in sorted(found, key=lambda entry: _order(found, entry.section)):
        if one.section != section:
            section = one.section
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{one.title}]({one.address}): {about(one.text)}")
    return "\n".join(lines) + "\n"


def full(name: str, found: list[Entry]) -> str:
    """The reference is left out: its text is made from the code when the site is built."""
    parts = [f"<!-- {one.address} -->\n\n{one.text.strip()}\n" for one in found if "\n::: " not in one.text]
    return f"# {name}: all pages\n\n" + "\n\n".join(parts)


def about(text: str) -> str:
    """The first sentence of a page, without marks; if it begins with a heading, its headings."""
    intro, *parts = re.split(r"^## ", _BLOCK.sub("", text), flags=re.MULTILINE)
    for part in intro.split("\n\n")[1:]:
        words = " ".join(_LINK.sub(r"\1", part).replace("**", "").split())
        if words and not words.startswith(("#", "|", "<", "-", "!", ":::")):
            return _short(re.split(r"(?<=[.:!?]) (?=[A-Z`])", words)[0].rstrip(":"))
    return _short("; ".join(part.partition("\n")[0] for part in parts) or "reference")


def _short(words: str) -> str:
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def _order(found: list[Entry], section: str) -> int:
    return next(place for place, one in enumerate(found) if one.section == section)
