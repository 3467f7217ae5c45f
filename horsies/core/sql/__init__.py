"""Every statement of the engine is in a `.sql` file in this directory, one statement per file; `load` reads it once."""

import re
from functools import cache
from pathlib import Path

_HOME = Path(__file__).parent
_COMMENT = re.compile(r"^\s*--.*\n?|\s+--.*$|^\s+", re.MULTILINE)


@cache
def load(name: str) -> str:
    """The text of `<name>.sql`, for example `load("tasks/claim")`. Frequent statements are returned without comments
    and indentation, because psycopg caches its analysis of a text only if it is short."""
    text = (_HOME / f"{name}.sql").read_text(encoding="utf-8")
    return text if name.startswith("schema/") else _COMMENT.sub("", text)
