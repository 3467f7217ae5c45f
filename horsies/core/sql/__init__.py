"""Every statement the engine runs lives beside this file, one statement per `.sql` file; `load` reads it once."""

import re
from functools import cache
from pathlib import Path

_HOME = Path(__file__).parent
_COMMENT = re.compile(r"^\s*--.*\n?|\s+--.*$|^\s+", re.MULTILINE)


@cache
def load(name: str) -> str:
    """The text of `<name>.sql`, for example `load("tasks/claim")`. What runs often comes without comments and
    indentation: psycopg keeps what it has found out about a text only if that is short."""
    text = (_HOME / f"{name}.sql").read_text(encoding="utf-8")
    return text if name.startswith("schema/") else _COMMENT.sub("", text)
