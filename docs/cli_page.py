"""The page about the command line, from the commands themselves: usage, options, examples. See generate.py."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from horsies.cli.main import GROUPS
from horsies.cli.main import app as command_line
from horsies.cli.options import EXAMPLES

INTRODUCTION = """\
# Command line

Every command with its arguments, options and examples; `horsies COMMAND --help` says the same. `make docs` writes
this page from the code; a test keeps it up to date.

{index}

## What they have in common

**The app.** `MODULE` is `pkg.mod:app`, `pkg.mod`, `path/file.py:app` or `path/file.py`; modules in the current
directory can be imported. Without `:app` the module must contain exactly one app. A function that makes the app is
named with its parentheses, in quotes because of the shell: `horsies worker 'shop.app:create_app()'`. It is called
without arguments in every process. Name your app once, and no command needs the argument: in the environment variable
`HORSIES_APP`, or in the `pyproject.toml` of your project:

```toml
[tool.horsies]
app = "shop.tasks:app"
```

The nearest such table counts, in the current directory or above, and the command runs in its directory.

**The database.** A command uses the first of these: `--database-url`; the app's own database; the environment variable
`DATABASE_URL`; the embedded server in `.horsies/postgres`. The first line on standard error says which database is
used, and why. Where the module is optional, a command works without any app:
`horsies tasks --database-url postgresql://…`.

**Durations** `D` are seconds, or a number with `s`, `m` or `h` (`300`, `30s`, `5m`, `2h`); ages can also have `d`.

**Output.** The answer is on standard output, everything else on standard error. Tables are for people: on a narrow
terminal they leave out less important columns, never the error, and fold long cells. `--wide` shows everything, and
`--columns name,error` only what you name. In a pipe or a file tables are whole. `--json` is for programs: it prints one
document, whose keys are stable, with times like `2026-01-02T03:04:05.678900Z`. Errors look like those of a compiler,
with a code, notes and help.

**Exit codes.** 0 means success, or a clean end. 1 means an error; this includes a wrong command line, a check with
findings, and a task that could not be cancelled.

**Colours.** `HORSIES_FORCE_COLOR=1` forces colours. Otherwise `NO_COLOR` disables them. Otherwise they are used on a
terminal. A terminal obeys nothing else: control characters and marks that turn the direction of text, from whatever
row or argument, are printed as escapes such as `\\u001b`, and a newline inside a line as `\\n`.

**Completion.** `horsies --install-completion` installs completion for your current shell (bash, zsh, fish,
PowerShell), and `horsies --show-completion` prints the script. If the shell cannot be detected, as in a Dockerfile,
name it: `_HORSIES_COMPLETE=source_bash horsies > /etc/bash_completion.d/horsies` (or `source_zsh`, `source_fish`).
TAB completes commands, options, their values, and the modules below the current directory; it imports none of your
code.

"""


def page() -> str:
    """The whole document."""
    group: Any = typer.main.get_command(command_line)
    found = list(commands(group))
    parts = [INTRODUCTION.format(index=index(found))]
    for name, command in found:
        parts.append(f"## `horsies {name}`\n\n```text\n{usage(name, command)}\n```\n\n{description(command)}\n\n")
        parts.append(table(("option", "default", "meaning"), options(command)))
        parts.append(examples(name))
    return "".join(parts).rstrip() + "\n"


def index(found: list[tuple[str, Any]]) -> str:
    """A table for each heading of the help."""
    parts = []
    for heading, names in GROUPS.items():
        rows = [
            f"| [`horsies {name}`](#horsies-{name.replace(' ', '-')}) | {in_short(command)} |"
            for first in names
            for name, command in found
            if name.split()[0] == first
        ]
        parts.append("\n".join([f"| {heading.lower()} | what it does |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Each with its whole name; what only groups others has no section of its own."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def usage(name: str, command: Any) -> str:
    words = [argument(option) for option in command.params if option.param_type_name == "argument"]
    return " ".join(["horsies", name, "[OPTIONS]", *words])


def argument(option: Any) -> str:
    word = option.metavar or option.name.upper()
    return word if option.required else f"[{word}]"


def description(command: Any) -> str:
    """Its paragraphs, each on a line."""
    text = inspect.getdoc(command.callback) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def in_short(command: Any) -> str:
    first = description(command).partition("\n\n")[0].partition(". ")[0]
    return str(command.short_help or first).removesuffix(".")


def options(command: Any) -> Iterator[tuple[str, ...]]:
    for option in command.params:
        if option.param_type_name == "argument":
            unset = option.show_default if isinstance(option.show_default, str) else "none"
            yield f"`{argument(option)}`", "required" if option.required else unset, option.help or ""
        elif option.name != "help" and not option.hidden:
            names = " / ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            unset = option.show_default if isinstance(option.show_default, str) else "none"
            default = unset if option.default is None else "off" if option.default is False else f"`{option.default}`"
            yield names, default, option.help or ""


def examples(name: str) -> str:
    if not (known := EXAMPLES.get(name)):
        return ""
    lines = "\n".join(f"# {meaning}\n{typed}" for meaning, typed in known)
    return f"```sh\n{lines}\n```\n\n"


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"
