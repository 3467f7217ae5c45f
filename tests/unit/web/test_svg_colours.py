"""The colours of pictures can be told from what is behind them, in both themes; texts and marks are written safely."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import horsies.web.svg
from horsies.web.svg import scales
from horsies.web.svg.markup import Svg, attribute, clean, fit, number, tag, text, text_width
from horsies.web.svg.states import URGENCY, status_class
from tests.each import each

CSS = (Path(horsies.web.svg.__file__).parents[1] / "static" / "svg.css").read_text(encoding="utf-8")
COLOUR = re.compile(r"--svg-([\w-]+): (#[0-9a-f]{6});")
LIGHT, DARK = (dict(COLOUR.findall(part)) for part in CSS.split("@media", 1))
STATES = ("failed", "cancelled", "running", "waiting", "queued", "pending", "completed", "skipped")


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@each("theme", [LIGHT, DARK], ids=["light", "dark"])
@each(
    ("ink", "paper"),
    [
        ("ink", "paper"),
        ("muted", "paper"),
        ("ink", "failed-paper"),
        ("ink", "running-paper"),
        ("muted", "running-paper"),
        ("failed", "failed-paper"),
        ("failed", "paper"),
        ("running", "paper"),
        ("on-mark", "failed"),
        ("on-mark", "running"),
    ],
)
def test_m92_texts_can_be_read(theme: dict[str, str], ink: str, paper: str) -> None:
    assert contrast(theme[ink], theme[paper]) >= 4.5


@each("theme", [LIGHT, DARK], ids=["light", "dark"])
@each("state", [*STATES, "line"])
def test_m92_marks_can_be_seen(theme: dict[str, str], state: str) -> None:
    assert contrast(theme[state], theme["paper"]) >= 3
    if state != "line":
        assert contrast(theme[state], theme["faint"]) >= 3, "a sign on the stripe of a box"


def test_m92_both_themes_have_the_same_colours() -> None:
    assert set(LIGHT) == set(DARK)
    assert set(re.findall(r"var\(--svg-([\w-]+)\)", CSS)) <= set(LIGHT)


def test_m92_every_state_has_a_colour() -> None:
    assert [status for status in (*URGENCY, "ODD") if f".{status_class(status)}" not in CSS] == []


def test_m93_the_style_sheet_loads_nothing() -> None:
    assert "url(" not in CSS
    assert "@import" not in CSS


def test_m93_a_template_takes_markup_as_it_is_and_texts_as_texts() -> None:
    part = tag("g", {"class": 'a"b', "x": None, "y": 1.25}, text("<b>"))
    assert part == '<g class="a&quot;b" y="1.2">&lt;b&gt;</g>'
    assert part.__html__() == part
    assert type(part.__html__()) is str
    assert not isinstance(part + "<b>", Svg), "what is put together elsewhere is escaped again"


@each(("value", "written"), [(1.0, "1"), (-0.04, "0"), (1.26, "1.3"), (float("nan"), "0"), (float("-inf"), "0")])
def test_m91_numbers_are_short(value: float, written: str) -> None:
    assert number(value) == written
    assert attribute(value) == written


@given(st.text(), st.floats(0, 300))
def test_m91_a_label_fits(words: str, width: float) -> None:
    shown = fit(words, width, 12)
    assert text_width(shown, 12) <= max(width, 12)
    assert shown == words or shown.endswith("…")
    assert shown == words or words.startswith(shown[:-1])


@given(st.text(st.characters()))
def test_m93_no_character_is_obeyed(words: str) -> None:
    assert clean(words).isprintable() or not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e]", clean(words))
    clean(words).encode()


@given(st.floats(0.0001, 20_000), st.floats(1, 1.2))
def test_m91_the_larger_of_two_numbers_is_not_written_as_the_smaller(value: float, factor: float) -> None:
    first, second = (float(scales._short(one)) for one in (value, value * factor))
    assert first <= second
