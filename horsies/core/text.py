"""Foreign text for people: whatever a row, an exception or an argument contains, a terminal shows it and does not obey
it, and it cannot pass for a line of ours.

Control characters (C0, DEL, C1), line and paragraph separators, marks that turn the direction of text, invisible marks
and lone surrogates become the escapes of JSON: `\\u001b`, `\\n`, `\\u202e`. So a JSON text is still the same JSON
afterwards. Everything else stays, in any script; the joiners of Persian and of emoji too.
"""

import json
import re

_HIDDEN = "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_OBEYED = re.compile(f"[\x00-\x1f\x7f-\x9f{_HIDDEN}\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}\ud800-\udfff]")  # without tab and newline


def visible(text: str) -> str:
    """The text on one line, with an escape for each character that a terminal would obey."""
    return _OBEYED.sub(_escape, text)


def visible_lines(text: str, indent: str = "") -> str:
    """The same for a text of several lines: its lines and tabs are kept, and all lines but the first are indented."""
    return _OBEYED_IN_LINES.sub(_escape, text.replace("\r\n", "\n")).replace("\n", f"\n{indent}")


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]
