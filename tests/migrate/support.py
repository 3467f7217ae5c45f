"""Conversions of a few lines of source. Each finding of each of them leads to a heading of the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from horsies.migrate.conversion import Conversion, Given, convert
from horsies.migrate.findings import Library

ROOT = Path(__file__).parents[2]
CELERY_APP = 'from celery import Celery\n\napp = Celery("shop", broker="redis://localhost/0")\n'
PROCRASTINATE_APP = (
    "from procrastinate import App, PsycopgConnector\n\napp = App(connector=PsycopgConnector())\n"
)  # fmt: skip


def page_of(library: Library) -> str:
    return (ROOT / f"docs/{library.page}.md").read_text()


def headings(library: Library) -> set[str]:
    found = re.findall(r"^#{2,3} (.+)$", page_of(library), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-") for one in found}


def converted(source: str, library: Library = Library.CELERY, **others: str) -> tuple[str, Conversion]:
    """The new text of `shop.tasks` and all of the conversion; `app` is `shop.app`, unless it is given."""
    files = {"app": CELERY_APP if library is Library.CELERY else PROCRASTINATE_APP, **others, "tasks": source}
    return _converted(files, library)


def converted_alone(source: str, library: Library = Library.CELERY) -> tuple[str, Conversion]:
    """The same for a file without its app, which is only named: `--app shop.app:app`."""
    return _converted({"tasks": source}, library, "shop.app:app")


def _converted(files: dict[str, str], library: Library, app: str | None = None) -> tuple[str, Conversion]:
    given = [Given(f"shop/{name}.py", f"shop.{name}", text.encode()) for name, text in files.items()]
    done = convert(library, given, app)
    for finding in done.findings:
        assert finding.topic in headings(library), finding
    for one in done.changed:
        ast.parse(one.after)
    after = next((one.after.decode() for one in done.changed if one.path == "shop/tasks.py"), files["tasks"])
    return after, done


def about(done: Conversion, path: str = "shop/tasks.py") -> list[str]:
    return [f"{finding.kind.value}: {finding.what}" for finding in done.findings if finding.path == path]


def rows(library: Library) -> dict[str, str]:
    """The words of a page: what it is in the old library, and what the converter does with it."""
    table = page_of(library).partition("| converted |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table]
    return {row[0]: row[-1] for row in cells}
