"""`horsies migrate-from`: convert the source of a project that uses another queue (X-42). The patch is the answer, on
standard output; what is left to do is said on standard error, so that a patch in a file is only a patch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from horsies.cli import output
from horsies.migrate.findings import Library

if TYPE_CHECKING:
    from horsies.migrate.conversion import Conversion

_SHOWN = {"by hand": "to do by hand", "differs": "changed, and different now"}


def migrate_from(
    library: Annotated[Library, typer.Argument(help="What the project uses now.")],
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Modules, files or directories: shop.tasks, shop/, tasks.py."),
    ],
    write: Annotated[bool, typer.Option("--write", help="Change the files instead of printing a patch.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --write: also files that git has not committed.")
    ] = False,
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:NAME", help="The app of shared tasks, if it is in none of the sources."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON instead of the patch.")] = False,
) -> int:
    """Convert tasks, sends, schedules and workflows. The sources are read, never imported or run. The patch is for `git
    apply` or `patch -p1`; the report says what is left. The exit code is 1 if something is left to do by hand."""
    from horsies.migrate import conversion, files, patch

    root = Path.cwd()
    found = files.find(sources, root)
    done = conversion.convert(library, found, app)
    if write:
        if not force:
            files.refuse_uncommitted(done.changed, root)
        files.write(done.changed, root)
    elif not as_json:
        files.refuse_outside(done.changed)
        output.write_bytes(patch.patch(done.changed))
    page = library.page
    if as_json:
        output.print_json(_as_json(done, page, write))
    else:
        _report(done, page, write)
    return 1 if done.by_hand else 0


def _as_json(done: "Conversion", page: str, written: bool) -> dict[str, object]:
    return {
        "files_read": done.read,
        "changed": [one.path for one in done.changed],
        "written": written,
        "findings": [finding.as_json(page) for finding in done.findings],
    }


def _report(done: "Conversion", page: str, written: bool) -> None:
    for kind, heading in _SHOWN.items():
        found = [finding for finding in done.findings if finding.kind == kind]
        if found:
            output.say(f"{heading}:")
        for one in found:
            output.say(f"  {one.path}:{one.line}: {one.what}")
            output.say(f"      {one.instead} (docs/{page}.md#{one.topic})")
    changed = "changed" if written else "would change"
    left = output.count(len(done.by_hand), "thing")
    output.say(f"{output.count(done.read, 'file')} read, {len(done.changed)} {changed}, {left} left to do by hand")
