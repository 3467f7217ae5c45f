"""Every statement the engine runs lives beside this file, one statement per `.sql` file; `load` reads it once."""

from functools import cache
from pathlib import Path

_HOME = Path(__file__).parent


@cache
def load(name: str) -> str:
    """The text of `<name>.sql`, for example `load("tasks/claim")`."""
    return (_HOME / f"{name}.sql").read_text(encoding="utf-8")
