"""Which texts PostgreSQL accepts."""

from __future__ import annotations


def can_be_stored(text: object) -> bool:
    """Whether a column can store this: a text without NUL that can be encoded as UTF-8."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False
    return True
