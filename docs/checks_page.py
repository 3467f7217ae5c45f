"""The table of codes in the page about checks, from the codes themselves; the rest of the page is written by hand. See
generate.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from horsies import ErrorCode

PAGE = Path(__file__).with_name("checks.md")
BEGIN, END = "<!-- codes: written by `make docs` -->\n", "<!-- end of codes -->\n"


def page() -> str:
    """The whole document."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit("docs/checks.md has no place for the table of codes")
    shown = set(re.findall(r"^### (HRS-\d+)$", after, re.MULTILINE))
    lines = ["| code | name | what it says |", "| --- | --- | --- |"]
    for code in sorted(ErrorCode):
        number = f"[{code}](#{code.lower()})" if code in shown else str(code)
        lines.append(f"| {number} | `{code.name}` | {code.meaning} |")
    table = "\n".join(lines)
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"
