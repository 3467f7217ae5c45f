"""Which texts PostgreSQL takes."""

from __future__ import annotations


def can_be_stored(text: object) -> bool:
    """Whether a column can hold this: a text without NUL that UTF-8 can write."""
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return False
    return True
