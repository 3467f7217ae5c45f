"""The pictures of `docs/images`, of an ordinary day of the demo's shop (M-96). `make docs PICTURES=1` writes them; in a
run of the tests they are only made, which shows that they can be made again."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.browser.rows import FAILED_TASK, ORDER_FAILED
from tests.browser.support import Visitors, Web

VARIABLE = "HORSIES_TEST_SCREENSHOTS"
ROOT = Path(__file__).parents[2]
LARGEST = 200_000
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
DARK: dict[str, Any] = {**DESK, "color_scheme": "dark"}
TELEPHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True}
PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("/", DESK),
    "tasks": ("/tasks", DESK),
    "task": (f"/tasks/{FAILED_TASK}", DESK),
    "workflow": (f"/workflows/{ORDER_FAILED}", DESK),
    "workers": ("/workers", {"viewport": {"width": 1280, "height": 380}}),
    "failures": ("/failures?window=1h", {"viewport": {"width": 1280, "height": 420}}),
    "dark": ("/", DARK),
    "narrow": ("/", TELEPHONE),
}


@pytest.mark.parametrize("name", PICTURES)
def test_m96_a_picture_is_made(filled: Web, visitors: Visitors, tmp_path: Path, name: str) -> None:
    path, options = PICTURES[name]
    visit = visitors.visit(filled.url, **options)
    page = visit.go(path)
    page.locator("#live[data-state=live]").wait_for()
    page.evaluate("document.fonts.ready")
    wanted = os.environ.get(VARIABLE)
    directory = ROOT / wanted if wanted else tmp_path
    directory.mkdir(parents=True, exist_ok=True)
    picture = page.screenshot(path=directory / f"dashboard-{name}.png")
    width, height = struct.unpack(">II", picture[16:24])
    scale = options.get("device_scale_factor", 1)
    assert (width, height) == tuple(scale * size for size in options["viewport"].values())
    assert 10_000 < len(picture) < LARGEST, "neither empty nor large"


@pytest.mark.parametrize("name", PICTURES)
def test_m96_a_picture_is_in_the_documentation(name: str) -> None:
    file = ROOT / "docs" / "images" / f"dashboard-{name}.png"
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert f"images/{file.name}" in (ROOT / "docs" / "dashboard.md").read_text()
