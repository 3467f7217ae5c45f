"""Who may only look is offered nothing else; what is made by hand or comes from elsewhere is refused (M-62, M-93)."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.rows import FAILED_TASK, ORDER_RUNNING, SCREENS, STRANDED_TASK, fill
from tests.browser.support import Shop, Visit, Visitors, Web

# As our own page would send it.
BY_HAND = """
async ([path, body]) => (await fetch(path, { method: "POST", body: JSON.stringify(body),
  headers: { "Content-Type": "application/json", "X-Horsies-Intent": "action" } })).status
"""
ACTIONS = [
    (f"/api/tasks/{STRANDED_TASK}/cancel", {"include_running": False}),
    (f"/api/tasks/{FAILED_TASK}/rerun", {}),
    ("/api/bulk/cancel", {"ids": [STRANDED_TASK]}),
    (f"/api/workflows/{ORDER_RUNNING}/cancel", {}),
    ("/api/recovery/sweep", {"dry_run": False}),
    ("/api/schedules/demo-stock-check/trigger", {}),
]


@pytest.fixture
def viewing(shop: Shop) -> Iterator[Web]:
    fill(shop)
    with Web(shop.url, shop.cwd) as web:
        yield web


@pytest.fixture
def only_looks(viewing: Web, visitors: Visitors) -> Visit:
    return visitors.visit(viewing.url)


def everything(shop: Shop) -> list[object]:
    """What an action could have changed."""
    counted = "SELECT status, queue_name, count(*) AS n FROM horsies_tasks GROUP BY 1, 2 ORDER BY 1, 2"
    flows = "SELECT id, status FROM horsies_workflows ORDER BY id"
    return [shop.rows(counted), shop.rows(flows), shop.audit()]


def test_m62_who_may_only_look_sees_everything_and_no_button(only_looks: Visit) -> None:
    for path in SCREENS.values():
        page = only_looks.go(path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        offered = set(page.locator("main button:visible").all_inner_texts())
        assert offered <= {"Filter", "Copy id", "+", "−", "1:1"}, path
        assert page.locator("input[type=checkbox][data-select]").count() == 0
        only_looks.check()


@pytest.mark.parametrize(("path", "body"), ACTIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_m62_a_request_made_by_hand_is_refused(
    shop: Shop, only_looks: Visit, path: str, body: dict[str, object]
) -> None:
    page = only_looks.go("/tasks")
    before = everything(shop)
    only_looks.expects("403")
    assert page.evaluate(BY_HAND, [path, body]) == 403
    assert everything(shop) == before


def test_m62_a_dialog_that_is_asked_for_by_hand_is_refused(only_looks: Visit) -> None:
    only_looks.expects("403")
    page = only_looks.go(f"/dialogs/cancel-task?id={STRANDED_TASK}")
    expect(page.locator("body")).to_contain_text("403")
    expect(page.locator("form")).to_have_count(0)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The address of another site, whose page is empty."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title><body>elsewhere")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_m93_another_site_can_neither_act_nor_read_nor_frame(
    shop: Shop, web: Web, visit: Visit, elsewhere: str
) -> None:
    shop.given_task("t-0", kwargs='{"secret": "hidden-in-the-frame"}')
    visit.expects(".*")
    page = visit.page
    page.goto(elsewhere)
    cancel = f"{web.url}/api/tasks/t-0/cancel"
    tried = page.evaluate(
        """async (url) => Promise.all([
          fetch(url, { method: "POST", mode: "no-cors", body: "{}" }).then((answer) => answer.type, () => "refused"),
          fetch(url, { method: "POST", headers: { "X-Horsies-Intent": "action" }, body: "{}" })
            .then((answer) => answer.status, () => "refused"),
          fetch(url.replace("/cancel", "")).then((answer) => answer.text(), () => "refused"),
        ])""",
        cancel,
    )
    assert tried == ["refused", "refused", "refused"]
    with page.expect_response(cancel) as answered:
        page.evaluate(
            """(url) => { const form = document.createElement("form"); form.method = "post"; form.action = url;
               document.body.append(form); form.submit(); }""",
            cancel,
        )
    assert answered.value.status in (403, 415)
    page.wait_for_url(cancel)
    page.goto(elsewhere)
    page.evaluate(
        """(url) => new Promise((done) => { const frame = document.createElement("iframe"); frame.src = url;
           frame.onload = done; document.body.append(frame); })""",
        f"{web.url}/tasks/t-0",
    )
    framed = [frame for frame in page.frames if frame is not page.main_frame]
    assert all("hidden-in-the-frame" not in frame.content() for frame in framed)
    assert shop.status("t-0") == "PENDING"
    assert shop.audit() == []
