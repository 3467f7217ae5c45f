"""Foreign text for people (M-12)."""

from __future__ import annotations

import json
import sys
import unicodedata

from horsies.core.text import visible, visible_lines
from tests import hostile_support as hostile
from tests.each import each

ALL = "".join(map(chr, range(sys.maxunicode + 1)))


def test_m12_no_character_is_left_that_a_terminal_obeys() -> None:
    assert hostile.obeyed(visible(ALL), allowed="") == set()
    assert hostile.obeyed(visible_lines(ALL), allowed="\n\t") == set()
    assert hostile.obeyed(ALL), "the look itself finds something"


def test_m12_printable_text_stays_in_every_script() -> None:
    kept = "".join(char for char in ALL if char.isprintable() or char in "\u200c\u200d\xa0")
    assert visible(kept) == visible_lines(kept) == kept
    for text in ("müde", "疲れた", "می\u200cخواهم", "👩\u200d🚀", "שלום", "C:\\new\\table"):
        assert visible(text) == text


@each(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\u001b[31mb"),
        ("\x9b2J", r"\u009b2J"),
        ("\x7f", r"\u007f"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("one\ntwo\r\n\tthree", r"one\ntwo\r\n\tthree"),
        ("\ud800", r"\ud800"),
        ("\x85\u2028\u2029", r"\u0085\u2028\u2029"),
    ],
)
def test_m12_what_is_obeyed_is_shown(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_m12_lines_are_kept_and_indented() -> None:
    assert visible_lines("a\r\nb\n\tc\x1b\u2028d", "  ") == "a\n  b\n  \tc\\u001b\\u2028d"


def test_m12_json_stays_the_same_json() -> None:
    value = {hostile.LONG: [hostile.LONG, "\U000e0041 \ufeff", 'C:\\"']}
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert json.loads(visible(text)) == value


def test_the_look_of_the_tests_agrees_with_unicode() -> None:
    """A mark of direction, invisible or not: none may be missing from the look."""
    turning = {
        char
        for char in ALL
        if unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    }
    assert turning and turning <= hostile.obeyed("".join(turning))
