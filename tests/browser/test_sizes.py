"""Much is shown as well as little: a hundred thousand tasks, and a workflow of 500 nodes (M-91, M-95, M-96)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.axe import violations
from tests.browser.layout import faults
from tests.browser.rows import LARGE, fill_with_a_large_workflow, fill_with_many
from tests.browser.support import NARROW, Shop, Visit, Visitors, Web


@pytest.fixture
def many(shop: Shop, visit: Visit) -> Visit:
    fill_with_many(shop)
    return visit


def test_m96_m95_a_hundred_thousand_tasks_are_a_page_like_any_other(shop: Shop, many: Visit) -> None:
    page = many.go("/tasks")
    expect(page.locator("tr[data-row]")).to_have_count(50)
    expect(page.locator("caption")).to_have_text("10,000+ tasks")
    assert page.evaluate("document.querySelectorAll('*').length") < 5_000
    assert faults(page) == []
    seen: set[str] = set()
    for _ in range(5):
        shown = page.locator("input[data-select]").evaluate_all("all => all.map(one => one.value)")
        assert len(shown) == 50 and not seen & set(shown)
        seen |= set(shown)
        page.get_by_role("link", name="Next page").click()
        page.wait_for_load_state()
    page.get_by_role("link", name="Failed", exact=True).click()
    expect(page.locator("tr[data-row] .state").first).to_have_text("FAILED")
    page.get_by_label("Order").select_option("oldest first")
    expect(page.locator("tr[data-row]")).to_have_count(50)
    many.is_live()
    shop.given_task("0199c001-new", "FAILED")
    page.goto(f"{many.url}/tasks")
    expect(page.locator("#task-0199c001-new")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/queues", "/failures", "/queues/demo-mail"])
def test_m96_m95_every_count_of_many_can_be_read(many: Visit, path: str) -> None:
    page = many.go(path)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert faults(page) == []


def test_m96_all_tasks_of_a_page_are_cancelled_among_many(shop: Shop, many: Visit) -> None:
    page = many.go("/tasks?status=PENDING&sort=next")
    page.get_by_label("Select all on this page").check()
    page.get_by_role("group", name="Selected tasks").get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("50 of the tasks would be changed.")
    dialog.get_by_role("button", name="Cancel them").click()
    expect(page.get_by_role("status").filter(has_text="50 changed")).to_be_visible()
    assert shop.rows("SELECT count(*) AS n FROM horsies_tasks WHERE status = 'CANCELLED'")[0]["n"] == 50


@pytest.fixture(scope="module")
def large(module_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    cwd = tmp_path_factory.mktemp("large")
    with Shop(module_url, cwd) as shop:
        fill_with_a_large_workflow(shop)
        with Web(module_url, cwd, "--enable-actions") as web:
            yield web


def graph(page: Page) -> Locator:
    return page.locator("figure.graph")


def is_in_view(page: Page, selector: str) -> bool:
    """Whether a box of the graph can be seen in it."""
    return bool(
        page.evaluate(
            """(selector) => {
              const box = document.querySelector(selector).getBoundingClientRect();
              const frame = document.querySelector("figure.graph").getBoundingClientRect();
              return box.right > frame.left && box.left < frame.right && box.bottom > Math.max(0, frame.top)
                && box.top < Math.min(frame.bottom, innerHeight);
            }""",
            selector,
        )
    )


def test_m96_m91_a_large_graph_is_folded_and_shows_its_failures(large: Web, visitors: Visitors) -> None:
    page = visitors.visit(large.url).go(f"/workflows/{LARGE}")
    expect(page.locator("h1")).to_contain_text("season FAILED")
    assert graph(page).locator(".node, .group").count() < 400
    expect(graph(page).locator(".status-failed")).not_to_have_count(0)
    expect(page.locator("main")).to_contain_text("500, 5 failed")
    assert violations(page) == []
    assert faults(page) == []
    assert faults(visitors.visit(large.url, viewport=NARROW).go(f"/workflows/{LARGE}")) == []


def test_m92_m91_n_leads_to_each_failed_node_in_turn(large: Web, visitors: Visitors) -> None:
    visit = visitors.visit(large.url)
    page = visit.go(f"/workflows/{LARGE}")
    visited: list[str] = []
    for _ in range(4):
        page.keyboard.press("n")
        target = page.evaluate("location.hash")
        assert is_in_view(page, target), target
        assert page.evaluate("(id) => document.querySelector(id).matches('.status-failed, .status-failed *')", target)
        assert page.evaluate("(id) => document.querySelector(id).contains(document.activeElement)", target)
        visited.append(target)
    assert visited == ["#node-25", "#node-116", "#map-202", "#node-25"]
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("step 2.4 FAILED")
    page.get_by_role("link", name="Back to the workflow").click()
    expect(page).to_have_url(f"{large.url}/workflows/{LARGE}#node-25")
    page.locator("#node-25").wait_for(state="attached")
    visit.until(lambda: is_in_view(page, "#node-25"), "the browser has gone to the node")  # after the page is there


def test_m91_a_graph_is_moved_with_the_mouse_and_with_keys(large: Web, visitors: Visitors) -> None:
    visit = visitors.visit(large.url)
    page = visit.go(f"/workflows/{LARGE}")
    graph(page).scroll_into_view_if_needed()
    place = "one => [one.scrollLeft, one.scrollTop]"
    free = page.evaluate(
        """() => { const frame = document.querySelector("figure.graph").getBoundingClientRect();
          for (let x = frame.left + 300; x < frame.right; x += 7)
            for (let y = frame.top + 20; y < frame.bottom; y += 7) {
              const there = document.elementFromPoint(x, y);
              if (there && !there.closest("a") && there.closest("figure.graph")) return [x, y];
            } }"""
    )
    page.mouse.move(*free)
    page.mouse.down()
    page.mouse.move(free[0] - 200, free[1] - 60, steps=5)
    page.mouse.up()
    assert graph(page).evaluate(place) == [200, 60]
    graph(page).focus()
    page.keyboard.press("ArrowRight")
    visit.until(lambda: graph(page).evaluate("one => one.scrollLeft") > 200, "it moves to the right")


def test_m91_a_graph_becomes_larger_and_smaller(large: Web, visitors: Visitors) -> None:
    visit = visitors.visit(large.url)
    page = visit.go(f"/workflows/{LARGE}")
    picture = graph(page).locator("svg")

    def width() -> float:
        return float(picture.evaluate("one => one.getBoundingClientRect().width"))

    first = width()
    page.get_by_role("button", name="Larger").click()
    assert width() == pytest.approx(first * 1.25, rel=0.01)
    for _ in range(3):
        page.get_by_role("button", name="Smaller").click()
    assert width() < first
    page.get_by_role("button", name="1:1").click()
    assert width() == pytest.approx(first, rel=0.01)
    graph(page).hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    visit.until(lambda: width() > first + 1, "the wheel makes it larger")


def test_m91_a_map_is_unfolded_and_folded_again_by_the_address(large: Web, visitors: Visitors) -> None:
    page = visitors.visit(large.url).go(f"/workflows/{LARGE}")
    page.locator("#map-202 > a").first.click()
    expect(page).to_have_url(f"{large.url}/workflows/{LARGE}?open=map-202#graph")
    cells = page.locator("#map-202 .cell")
    expect(cells).not_to_have_count(0)
    expect(page.locator("#map-202 .cell.status-failed")).to_have_count(2)
    colleague = visitors.visit(large.url)
    colleague.page.goto(page.url)
    expect(colleague.page.locator("#map-202 .cell.status-failed")).to_have_count(2)
    page.get_by_role("link", name="Fold all").click()
    expect(page.locator("#map-202 .cell")).to_have_count(0)


def test_m91_the_table_of_a_large_workflow_begins_with_what_failed(large: Web, visitors: Visitors) -> None:
    page = visitors.visit(large.url).go(f"/workflows/{LARGE}")
    lines = page.get_by_role("region", name="Nodes").locator("tr[data-row]")
    expect(lines).to_have_count(200)
    states = lines.locator(".state").all_inner_texts()
    assert states[:5] == ["FAILED"] * 5 and "FAILED" not in states[5:]
