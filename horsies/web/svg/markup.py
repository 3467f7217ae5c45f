"""The writing of SVG: elements, attributes and texts.

Everything that becomes part of a picture passes through `tag` and `text`, so escaping is done in one place. Texts of
rows are foreign: they are cut, their control characters and marks of direction are made visible, and they are escaped.
A text that already is markup is an `Svg`, and the type checker tells the two apart.
"""

import html
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from horsies.core.text import visible

LONGEST_TEXT = 300  # of a tooltip
LONGEST_URL = 4_000
ELLIPSIS = "…"

_PLAIN = re.compile(r"[\x20-\x7e…–·×]*")
_HARMLESS = re.compile(r"[\w\-. ,/#()]*", re.ASCII)
_NOT_XML = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")  # an XML parser refuses some of them, and none means anything
_RELATIVE = re.compile(r"(?!//)[\w\-.~/%?#&=+,:@!$*;]*", re.ASCII)
_SCHEME = re.compile(r"[^/?#]*:")

_NARROW = frozenset("iljtfrI.,:;!|'`()[]{}/\\ -1")
_BROAD = frozenset("mwMW@%<>=+~#^&")


class Svg(str):
    """Markup that is already escaped. A template that escapes texts leaves it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def tag(name: str, attributes: Mapping[str, Any], *children: Svg) -> Svg:
    """An element. Attributes that are None are left out."""
    written = "".join(f' {key}="{attribute(value)}"' for key, value in attributes.items() if value is not None)
    return Svg(f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>")


def picture(
    attributes: Mapping[str, Any], title: str, description: str, *children: Svg, has_links: bool = False
) -> Svg:
    """A whole picture with its name and what it shows in words.

    A picture with links is a group: readers of screens do not look for links inside of an image.
    """
    head = {"xmlns": "http://www.w3.org/2000/svg", "role": "group" if has_links else "img", **attributes}
    return tag("svg", head, tag("title", {}, text(title)), tag("desc", {}, text(description, most=2_000)), *children)


def text(value: str, most: int = LONGEST_TEXT) -> Svg:
    """A foreign text, escaped and cut after `most` characters."""
    return Svg(html.escape(clean(value, most), quote=True))


def label(value: str, attributes: Mapping[str, Any], width: float, size: float) -> Svg:
    """A text element that stays within `width`. It has the whole text as its tooltip if it had to be cut.

    The width of a text in an unusual script is a guess, so such a text is also clipped.
    """
    known = clean(value)
    shown = fit(known, width, size)
    tooltip = (tag("title", {}, text(value)),) if shown != known else ()
    if _PLAIN.fullmatch(shown):
        return tag("text", attributes, Svg(html.escape(shown)), *tooltip)
    x, y = float(attributes.get("x", 0)), float(attributes.get("y", 0))
    left = {"middle": width / 2, "end": width}.get(attributes.get("text-anchor", ""), 0.0)
    inner = {**attributes, "x": left, "y": size * 1.2}
    frame = {"x": x - left, "y": y - size * 1.2, "width": width, "height": size * 1.6, "overflow": "hidden"}
    return tag("svg", frame, tag("text", inner, Svg(html.escape(shown)), *tooltip))


def clean(value: str, most: int = LONGEST_TEXT) -> str:
    """The text on one line, cut, with an escape for each character that is obeyed instead of shown."""
    cut = value[:most]
    return visible(_NOT_XML.sub("\ufffd", cut)) + (ELLIPSIS if len(value) > most else "")


def fit(value: str, width: float, size: float) -> str:
    """The text, or as much of its beginning as fits into `width` with an ellipsis."""
    if text_width(value, size) <= width:
        return value
    room = width - size * 0.9
    for place, letter in enumerate(value):
        room -= _letter_width(letter) * size
        if room < 0:
            return value[:place].rstrip() + ELLIPSIS
    return value


def text_width(value: str, size: float) -> float:
    """About the width of the text in a usual font without serifs, rather too large than too small."""
    return sum(map(_letter_width, value)) * size


def _letter_width(letter: str) -> float:
    if letter in _NARROW:
        return 0.38
    if letter in _BROAD:
        return 0.95
    if letter < "\x7f":
        return 0.74 if letter.isupper() else 0.64
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.1
    return 0.4 if unicodedata.combining(letter) else 0.75


def attribute(value: Any) -> str:
    """The value as the text of an attribute."""
    if isinstance(value, float):
        return number(value)
    if _HARMLESS.fullmatch(written := str(value)):
        return written
    return html.escape(clean(written, 10_000_000), quote=True)


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    if not math.isfinite(value):
        return "0"
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def relative(url: str | None) -> str | None:
    """The address, if it is one within this site; nothing else may become a link."""
    if not url or len(url) > LONGEST_URL or not _RELATIVE.fullmatch(url) or _SCHEME.match(url):
        return None
    return url
