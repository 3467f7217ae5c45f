"""Nothing from a row is ever HTML, obeyed, or able to break a page (M-93): every text of every row is hostile, and the
browser executes none of it, also when a page refreshes itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import button
from tests.browser.layout import faults
from tests.browser.rows import SCREENS, fill
from tests.browser.support import NARROW, WIDE, Shop, Visit, Visitors, Web

HACK = "window.hacked=(window.hacked||0)+1"
HOSTILE = (
    f"<script>{HACK}</script>",
    f'"><img src=x onerror="{HACK}">',
    f"' onmouseover='{HACK}' autofocus onfocus='{HACK}",
    f"javascript:{HACK}",
    f"</title></textarea></svg></script><svg onload={HACK}>",
    f"<a href='javascript:{HACK}'>click me</a><div hx-get=/logout hx-trigger=load hx-on:click='{HACK}'>",
    "{{ 7 * 7 }} ${7*7} <%= 7 * 7 %>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b31m",
    "left\u202etfel\u2066 \u200fright \u2028 next",
    "a" * 300,
    "Ω漢字🐴 é" * 20,
)
MEGABYTES = 3_000_000
TEXTS = {
    "horsies_tasks": ("task_name", "queue_name", "claimed_by_worker_id", "worker_hostname", "worker_process_name"),
    "horsies_workers": ("hostname",),
    "horsies_workflows": ("name", "error_code"),
    "horsies_workflow_tasks": ("task_name", "error_code"),
    "horsies_audit": ("actor", "action", "outcome"),
    "horsies_rollup": ("task_name", "error_code"),
}
LONGEST = {"queue_name": 100, "actor": 200, "action": 60, "outcome": 30}


def make_hostile(shop: Shop) -> None:
    """Each row has one of the texts in each of its columns, the rows of a table in turn."""
    texts = [text.replace("\0", "") for text in HOSTILE]
    for table, columns in TEXTS.items():
        for column in columns:
            cut = LONGEST.get(column, 250)
            shop.do(
                f"UPDATE {table} t SET {column} = left((%s::text[])[1 + r.n %% {len(texts)}], {cut}) FROM"  # noqa: S608
                f" (SELECT ctid, row_number() OVER () AS n FROM {table}) r WHERE r.ctid = t.ctid AND {column} <> ''",
                texts,
            )
    document = json.dumps({"ok": {text: [text, {"deep": text}] for text in texts}})
    everywhere = " ".join(texts)
    shop.do(
        "UPDATE horsies_tasks SET args = %s, kwargs = %s, task_options = %s, failed_reason = %s,"
        " error_code = CASE WHEN error_code IS NOT NULL THEN %s END, result = CASE WHEN status = 'FAILED' THEN %s END",
        json.dumps(texts),
        document,
        document,
        everywhere,
        HOSTILE[0],
        json.dumps({"err": {"error_code": HOSTILE[1], "message": everywhere, "exception": {"traceback": everywhere}}}),
    )
    shop.do("UPDATE horsies_task_attempts SET error_message = %s, error_code = %s", everywhere, HOSTILE[4])
    shop.do("UPDATE horsies_task_progress SET message = %s", everywhere[:400])
    shop.do("UPDATE horsies_task_logs SET lines = %s", json.dumps([[1.0, HOSTILE[0], HOSTILE[1], everywhere]]))
    shop.do("UPDATE horsies_workflow_tasks SET node_id = left(%s || task_index, 140)", HOSTILE[1][:100])
    shop.do("UPDATE horsies_workflow_tasks SET result = %s", document)
    shop.do("UPDATE horsies_workflows SET error = %s", document)
    shop.do("UPDATE horsies_audit SET details = %s, target_ids = %s", json.dumps({"x": everywhere}), texts[:4])
    shop.given("horsies_schedule_state", schedule_name=HOSTILE[1], run_count=1, last_task_id="<b>none</b>")


@pytest.fixture(scope="module")
def hostile(module_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    cwd = tmp_path_factory.mktemp("hostile")
    with Shop(module_url, cwd) as shop:
        fill(shop)
        make_hostile(shop)
        with Web(module_url, cwd, "--enable-actions") as web:
            yield web


def address_of(name: str) -> str:
    return SCREENS[name] if name != "queue" else f"/queues/{quote(HOSTILE[7], safe='')}"


def is_unharmed(page: Page) -> None:
    """Nothing was executed, nothing was added, and no link does anything but lead somewhere here."""
    assert page.evaluate("window.hacked") is None
    assert page.locator("main script, main img, main iframe, main [onload], main [onerror]").count() == 0
    hrefs = page.locator("[href], [src], [action], [hx-get], [hx-post]").evaluate_all(
        "all => all.flatMap((one) => ['href', 'src', 'action', 'hx-get', 'hx-post'].map((name) =>"
        " one.getAttribute(name)).filter((value) => value !== null))"
    )
    assert [href for href in hrefs if not href.startswith(("/", "#", "?"))] == []
    texts = page.locator("main").inner_text()
    assert not {character for character in texts if character in "\x1b\x9b\x07\u202e\u2066\u200f\u2028"}
    assert "49" not in page.title()


@pytest.mark.parametrize("name", SCREENS)
def test_m93_hostile_texts_are_only_texts(hostile: Web, visitors: Visitors, name: str) -> None:
    visit = visitors.visit(hostile.url)
    page = visit.go(address_of(name))
    page.locator("main details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    is_unharmed(page)
    with page.expect_response(lambda answer: answer.request.resource_type == "xhr"):
        page.keyboard.press("r")
    for part in page.locator("main tbody tr").all()[:3]:
        part.hover()
    is_unharmed(page)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=lambda size: str(size["width"]))
@pytest.mark.parametrize("name", SCREENS)
def test_m92_hostile_texts_do_not_break_the_layout(
    hostile: Web, visitors: Visitors, name: str, size: dict[str, int]
) -> None:
    page = visitors.visit(hostile.url, viewport=size).go(address_of(name))
    assert faults(page) == []


def test_m93_hostile_texts_in_dialogs_are_only_texts(hostile: Web, visitors: Visitors) -> None:
    page = visitors.visit(hostile.url).go("/tasks")
    page.get_by_label("Select all on this page").check()
    for name in ("Cancel…", "Run again…", "Move…"):
        button(page, name).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        is_unharmed(page)
        assert dialog.locator("script, img, svg").count() == 0
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_m93_hostile_addresses_are_only_texts(hostile: Web, visitors: Visitors) -> None:
    visit = visitors.visit(hostile.url)
    visit.expects("404|422|ERR_INVALID")
    for text in HOSTILE[:9]:
        for path in ("/tasks?name={}&code={}", "/tasks/{}", "/queues/{}", "/workers/{}", "/workflows?name={}", "/{}"):
            page = visit.go(path.replace("{}", quote(text, safe="")))
            assert page.evaluate("window.hacked") is None, path
            assert page.locator("img, [onerror]").count() == 0


ODD_IDS = ("b?c=d#e", "<i>x", "with space", 'quote"d', "Ω漢🐴", "100%25", "semi;colon&amp;")


@pytest.mark.parametrize("task_id", ODD_IDS)
def test_m91_a_task_with_an_odd_id_can_be_opened_and_cancelled(shop: Shop, visit: Visit, task_id: str) -> None:
    shop.given_task(task_id, queue_name="b ?#")
    page = visit.go("/tasks")
    page.locator("tr[data-row] a[data-open]").click()
    expect(page.locator("main")).to_contain_text(task_id)
    button(page, "Cancel…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel it").click()
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")
    assert shop.status(task_id) == "CANCELLED"
    visit.go("/queues")
    visit.check()


def test_m93_megabytes_are_cut_and_do_not_freeze_the_page(shop: Shop, visit: Visit) -> None:
    long = "x" * MEGABYTES
    wide = json.dumps({"ok": [{"number": number} for number in range(20_000)]})
    deep = "[" * 900 + "]" * 900
    shop.given_task("t-long", "FAILED", args=deep, kwargs=wide, result=json.dumps({"err": {"message": long}}))
    shop.do("UPDATE horsies_tasks SET failed_reason = %s", "line\n" * 100_000)
    page = visit.go("/tasks/t-long")
    expect(page.locator("h1 .state")).to_have_text("FAILED")
    assert len(page.content()) < MEGABYTES
    assert page.evaluate("document.querySelectorAll('*').length") < 20_000
    expect(page.locator("main")).to_contain_text("more characters")
    assert faults(page) == []
