"""Reads a picture as a browser would, and checks what no picture may contain."""

from __future__ import annotations

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "desc", "g", "a", "path", "rect", "text"}
ATTRIBUTES = {
    "class",
    "d",
    "data-from",
    "data-to",
    "font-size",
    "height",
    "href",
    "id",
    "overflow",
    "preserveAspectRatio",
    "role",
    "rx",
    "text-anchor",
    "transform",
    "viewBox",
    "width",
    "x",
    "y",
}
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
_NUMBER = re.compile(r"-?\d+(\.\d)?")


def read(picture: str) -> ElementTree.Element:
    """The picture as a tree: it is well-formed and has nothing but shapes, texts and relative links."""
    picture.encode()
    assert not _OBEYED.search(picture)
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES
        for name in ("x", "y", "width", "height", "rx", "font-size"):
            assert _NUMBER.fullmatch(element.get(name, "0")), element.attrib
        assert not re.match(r"\s*([a-zA-Z][\w+.-]*:|//|\\)", element.get("href", "")), element.get("href")
    assert root.get("role") == ("group" if links(root) else "img"), "links inside of an image are not found"
    assert root[0].tag == f"{SVG}title"
    assert root[1].tag == f"{SVG}desc"
    assert root[0].text
    assert root[1].text
    assert re.fullmatch(r"0 0 [\d.]+ [\d.]+", root.get("viewBox", ""))
    ids = [one for element in root.iter() if (one := element.get("id"))]
    assert len(ids) == len(set(ids))
    return root


def links(root: ElementTree.Element) -> list[str]:
    return [one.get("href", "") for one in root.iter(f"{SVG}a")]


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


def by_id(root: ElementTree.Element, name: str) -> ElementTree.Element:
    return next(element for element in root.iter() if element.get("id") == name)


def description(root: ElementTree.Element) -> str:
    return root[1].text or ""
