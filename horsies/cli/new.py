"""`horsies new`: a project that starts with `horsies dev` and whose tests pass (X-32). `dev/new.py` writes it."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from horsies.cli import output
from horsies.core.distribution import requirement
from horsies.dev.new import Template, create, is_extra_missing, missing_for


def new(
    directory: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="Where to write it: a new or empty directory.")
    ],
    template: Annotated[
        Template, typer.Option("--template", "-t", case_sensitive=False, help="What the project is made with.")
    ] = Template.MINIMAL,
) -> int:
    """Write a new project: an app with tasks, a schedule and tests.

    Its package has the name of the directory. The project starts with horsies dev, and pytest runs its tests.
    """
    for file in create(directory, template):
        output.write(os.path.relpath(file))
    missing = [*([requirement("dev")] if is_extra_missing() else ()), *missing_for(template)]
    steps = [
        f"cd {shlex.quote(str(directory))}",
        *([f"pip install {shlex.join(missing)}"] if missing else ()),
        "horsies dev",
    ]
    output.say(f"next: {' && '.join(steps)} (README.md says more)")
    return 0
