"""Payloads as trees (M-91, M-93): typed, folded, bounded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from horsies.web import payloads
from horsies.web.payloads import PayloadNode, tree, tree_of
from tests.each import each

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=10), inner, max_size=8),
    max_leaves=60,
)


def leaves(node: PayloadNode) -> list[PayloadNode]:
    return [one for one in node.walk() if not one.is_branch]


@settings(deadline=None)
@given(JSON)
def test_m91_a_small_payload_is_whole(value: Any) -> None:
    made = tree(json.dumps(value))
    assert made is not None
    assert sum(node.more for node in made.walk()) == 0
    shown = sum(1 for _ in made.walk())
    assert shown <= payloads.MOST_NODES
    assert all(node.is_open for node in made.walk() if node.is_branch) or shown > payloads.OPEN_NODES


def test_m91_leaves_have_their_types() -> None:
    made = tree('{"a": 1, "b": "text", "c": null, "d": [true, 2.5]}')
    assert made is not None
    found = [(leaf.key, leaf.kind, leaf.text) for leaf in leaves(made)]
    assert found == [
        ("a", "number", "1"),
        ("b", "text", "text"),
        ("c", "word", "null"),
        ("0", "word", "true"),
        ("1", "number", "2.5"),
    ]


def test_m91_no_payload_is_none_and_what_is_no_json_is_shown_as_it_is() -> None:
    assert tree(None) is None
    made = tree("not json <script>")
    assert made == PayloadNode("raw", None, "not json <script>", 17)


@each(
    "text",
    [
        json.dumps(list(range(100_000))),
        json.dumps({str(n): [n] * 50 for n in range(1_000)}),
        "[" * 900 + "]" * 900,
        "[" * 100_000 + "]" * 100_000,
        json.dumps("x" * 10**6),
        "x" * 3_000_000,
        "9" * 5_000,
    ],
)
def test_m93_whatever_a_row_contains_the_tree_is_bounded_and_says_what_is_missing(text: str) -> None:
    made = tree(text)
    assert made is not None
    nodes = list(made.walk())
    assert len(nodes) <= payloads.MOST_NODES + payloads.MOST_MEMBERS
    assert all(len(node.text) <= 6 * payloads.LONGEST_LEAF for node in nodes)
    assert any(node.more for node in nodes) or len(text) == 5_000


@each("hostile", ["\x1b[31m", "\u202e", "\x00", "\ud800"])
def test_m93_control_characters_are_visible_in_keys_and_texts(hostile: str) -> None:
    made = tree_of({hostile: hostile})
    [leaf] = leaves(made)
    assert hostile not in leaf.text and hostile not in (leaf.key or "")
    leaf.text.encode()


def test_m91_a_large_payload_is_folded_below_its_first_level() -> None:
    made = tree_of({"many": list(range(100)), "few": {"a": 1}})
    assert made.is_open and not any(member.is_open for member in made.members)
