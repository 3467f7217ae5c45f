"""The pure parts of `make bench ONLY=web`: which pages are asked for, and what a viewer understands of HTTP."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from benchmarks.scale import history, viewers, web
from benchmarks.scale.history import Past
from horsies.web.pages import SCREENS

PAST = Past("c0ffee-completed", "c0ffee-failed", "c0ffee-waiting", "small", "large")
NOT_MEASURED = {"/workers/ping"}  # it waits for answers, as long as it is told to


def test_m95_every_screen_is_measured() -> None:
    paths = {urlsplit(path).path for path in web.addresses(PAST, "w1").values()}
    for screen in SCREENS:
        if screen.acts or screen.path in NOT_MEASURED or screen.path.startswith("/dialogs"):
            continue
        pattern = re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(screen.path))
        assert any(re.fullmatch(pattern, path) for path in paths), screen.path


def test_m95_ten_people_watch() -> None:
    assert len(web.WATCHED) == 10
    assert (web.PAGE.limit, web.PAGE.sense, web.KEPT.limit, web.KEPT.sense) == (150, "under", 0.98, "at least")
    assert sum(share for share, _ in history.MIX) == pytest.approx(1.0)


def test_a_viewer_asks_as_a_browser_does() -> None:
    asked = viewers.request(("127.0.0.1", 8600), "/tasks?status=FAILED", Accept="text/html")
    assert asked == b"GET /tasks?status=FAILED HTTP/1.1\r\nHost: 127.0.0.1:8600\r\nAccept: text/html\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nX-Horsies-Wait: 1500\r\n\r\n"
    assert viewers.headers_of(head) == {"content-length": "12", "x-horsies-wait": "1500"}


def test_a_page_says_how_it_is_refreshed() -> None:
    assert viewers.data_of(b'<main id="page" data-topics="tasks workers" data-ids="" data-poll="15">') == (
        frozenset({"tasks", "workers"}),
        15.0,
    )
    assert viewers.data_of(b"<main>") == (frozenset(), 0.0)
