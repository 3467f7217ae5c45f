"""Pages follow what happens without being loaded again, and leave alone what the reader has opened, ticked or typed
(M-75, M-91, M-92, M-96)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.rows import fill
from tests.browser.support import Shop, Visit, Visitors, Web, a_worker

MARK = "window.hasNotBeenLoadedAgain = true"


def row(page: Page, task_id: str) -> Locator:
    return page.locator(f"#task-{task_id}")


def is_the_same_page(page: Page) -> bool:
    return bool(page.evaluate("window.hasNotBeenLoadedAgain === true"))


def test_m96_m75_a_task_that_is_sent_appears_and_its_state_follows(shop: Shop, visit: Visit) -> None:
    page = visit.go("/tasks")
    expect(page.locator("main")).to_contain_text("There are no tasks yet")
    visit.is_live()
    page.evaluate(MARK)
    task = shop.send("shop.report", '{"pages": 4}')
    expect(row(page, task)).to_contain_text("PENDING")
    with a_worker(shop.url, shop.cwd):
        expect(row(page, task)).to_contain_text("COMPLETED")
    assert is_the_same_page(page)


def test_m96_m75_a_task_page_follows_its_task_through_all_states(shop: Shop, visit: Visit) -> None:
    task = shop.send("shop.report", '{"pages": 20}')
    page = visit.go(f"/tasks/{task}")
    visit.is_live()
    page.evaluate(MARK)
    state = page.locator("h1 .state")
    expect(state).to_have_text("PENDING")
    with a_worker(shop.url, shop.cwd):
        shop.until(task, "RUNNING")
        with shop.kept_as_it_is(task):  # however slow the machine is, the page gets to see it
            expect(state).to_have_text("RUNNING")
        expect(state).to_have_text("COMPLETED")
    expect(page.locator(".logs")).to_contain_text("page 20 of 20")
    assert is_the_same_page(page)


def test_m91_m92_ages_grow_without_a_refresh(shop: Shop, visit: Visit) -> None:
    task = shop.send("shop.report", '{"pages": 4}')
    page = visit.go("/tasks")
    visit.is_live()
    page.route("**/tasks", lambda route: None)  # from here on, no refresh is answered; one may be under way
    age = row(page, task).locator("time[data-ago]").first
    for _ in range(3):
        expect(age).not_to_have_text(age.inner_text())
    expect(age).to_have_text(re.compile(r"^[0-9.]+ s ago$"))
    page.unroute("**/tasks")  # which lets them go on


def test_m96_m75_a_workflow_page_follows_its_nodes(shop: Shop, visit: Visit) -> None:
    workflow = shop.start_order(7, declines=1.0)
    page = visit.go(f"/workflows/{workflow}")
    visit.is_live()
    page.evaluate(MARK)
    expect(page.locator("h1 .state")).to_have_text("RUNNING")
    with a_worker(shop.url, shop.cwd):
        expect(page.locator("h1 .state")).to_have_text("FAILED")
    expect(page.locator("figure.graph .status-failed")).not_to_have_count(0)
    expect(page.get_by_role("button", name="Retry failed nodes")).to_be_visible()
    assert is_the_same_page(page)


def test_m96_a_refresh_keeps_what_the_reader_has_done(shop: Shop, web: Web, visitors: Visitors) -> None:
    fill(shop)
    visit = visitors.visit(web.url, viewport={"width": 1440, "height": 500})
    page = visit.go("/tasks")
    visit.is_live()
    ticked = page.locator("input[data-select]").nth(20)
    chosen = ticked.get_attribute("value")
    ticked.check()
    page.get_by_label("Error code").fill("half-typed")
    page.get_by_label("Error code").evaluate("field => field.setSelectionRange(2, 4)")
    ticked.scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 37)")
    where = page.evaluate("scrollY")
    assert where > 100
    page.evaluate("window.left = document.querySelector('[name=code]')")
    shop.do("UPDATE horsies_tasks SET status = 'CANCELLED' WHERE queue_name = 'demo-mail' AND status = 'PENDING'")
    expect(page.locator("tr[data-row] .state", has_text="CANCELLED")).to_have_count(12)
    expect(page.locator(f"input[data-select][value='{chosen}']")).to_be_checked()
    expect(page.locator("[data-selected-count]")).to_have_text("1")
    expect(page.get_by_label("Error code")).to_have_value("half-typed")
    expect(page.get_by_label("Error code")).to_be_focused()
    assert page.evaluate("[left.selectionStart, left.selectionEnd, left.isConnected]") == [2, 4, True]
    assert page.evaluate("scrollY") == where


def test_m96_rows_that_come_and_go_do_not_move_a_tick_to_another_task(shop: Shop, visit: Visit) -> None:
    for number in range(5):
        shop.given_task(f"t-{number}", error_code=None)
    page = visit.go("/tasks")
    visit.is_live()
    page.locator("input[value=t-2]").check()
    for number in (7, 8, 9):
        shop.given_task(f"t-{number}")
    expect(row(page, "t-9")).to_be_visible()
    shop.do("DELETE FROM horsies_tasks WHERE id IN ('t-3', 't-8')")
    shop.given_task("t-91")
    expect(row(page, "t-91")).to_be_visible()
    expect(row(page, "t-3")).to_have_count(0)
    ticked = page.locator("input[data-select]:checked").evaluate_all("all => all.map(one => one.value)")
    assert ticked == ["t-2"]


def test_m96_a_refresh_keeps_what_is_opened_and_closed(shop: Shop, visit: Visit) -> None:
    fill(shop)
    failed = shop.rows("SELECT id FROM horsies_tasks WHERE status = 'FAILED' AND retry_count = 2 ORDER BY id")[0]["id"]
    page = visit.go(f"/tasks/{failed}")
    visit.is_live()
    raw, first, second = (
        page.locator("details", has_text=text).last for text in ("Raw row", "Attempt 1:", "Attempt 3:")
    )
    raw.locator("summary").click()
    is_open = [attempt.evaluate("one => one.open") for attempt in (first, second)]
    first.locator("summary").click()
    second.locator("summary").click()
    shop.do("UPDATE horsies_tasks SET status = 'CANCELLED' WHERE id = %s", failed)
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")
    assert raw.evaluate("one => one.open")
    assert [attempt.evaluate("one => one.open") for attempt in (first, second)] == [not one for one in is_open]


def test_m96_a_refresh_keeps_where_a_graph_was_moved_and_how_large_it_is(shop: Shop, visit: Visit) -> None:
    fill(shop)
    workflow = shop.rows("SELECT id FROM horsies_workflows WHERE status = 'RUNNING'")[0]["id"]
    page = visit.go(f"/workflows/{workflow}")
    visit.is_live()
    for _ in range(6):
        page.get_by_role("button", name="Larger").click()
    graph = page.locator("figure.graph")
    graph.evaluate("one => one.scrollTo(90, 0)")
    width = page.locator("figure.graph svg").get_attribute("width")
    shop.do("UPDATE horsies_workflow_tasks SET status = 'FAILED' WHERE workflow_id = %s AND node_id = 'ship'", workflow)
    shop.do("UPDATE horsies_workflows SET status = 'FAILED' WHERE id = %s", workflow)
    expect(page.locator("h1 .state")).to_have_text("FAILED")
    assert page.locator("figure.graph svg").get_attribute("width") == width
    assert graph.evaluate("one => one.scrollLeft") == 90


def test_m92_p_stops_live_updates_and_continues_them(shop: Shop, visit: Visit) -> None:
    page = visit.go("/tasks")
    visit.is_live()
    page.keyboard.press("p")
    live = page.locator("#live")
    expect(live).to_contain_text("paused")
    expect(live).to_have_attribute("aria-pressed", "false")
    shop.given_task("t-1")
    other = visit.context.new_page()  # it follows, so the change has been told by then
    other.goto(f"{visit.url}/tasks")
    expect(row(other, "t-1")).to_be_visible()
    assert row(page, "t-1").count() == 0
    page.reload()
    expect(page.locator("#live")).to_contain_text("paused")
    expect(row(page, "t-1")).to_be_visible()
    page.keyboard.press("p")
    visit.is_live()
    shop.given_task("t-2")
    expect(row(page, "t-2")).to_be_visible()


def test_m92_a_refresh_that_was_under_way_does_not_change_a_page_that_was_stopped(shop: Shop, visit: Visit) -> None:
    page = visit.go("/tasks")
    visit.is_live()
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "x-horsies-refresh" in route.request.headers:
            held.append(route)
        else:
            route.continue_()

    page.route("**/tasks", hold)
    shop.given_task("t-1")
    visit.until(lambda: held, "the page asks")
    page.keyboard.press("p")
    expect(page.locator("#live")).to_contain_text("paused")
    for route in held:
        with page.expect_response("**/tasks"):
            route.continue_()
    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    assert row(page, "t-1").count() == 0
    page.keyboard.press("r")
    expect(row(page, "t-1")).to_be_visible()


def test_m75_while_the_stream_is_down_the_page_asks_and_then_follows_again(shop: Shop, web: Web, visit: Visit) -> None:
    page = visit.go("/tasks")
    visit.is_live()
    page.evaluate(MARK)
    visit.expects("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET")
    visit.expects("htmx:sendError|htmx:afterRequest")  # a page asks while nobody answers
    web.stop()
    expect(page.locator("#live")).to_contain_text("polling")
    shop.given_task("t-1")
    web.start()
    expect(row(page, "t-1")).to_be_visible()
    expect(page.locator("#live")).to_contain_text("live")
    shop.given_task("t-2")
    expect(row(page, "t-2")).to_be_visible()
    assert is_the_same_page(page)


def test_m75_a_stream_that_is_refused_for_a_while_is_asked_for_again(shop: Shop, visit: Visit) -> None:
    """A proxy answers in the place of a server that is just being started again."""
    refused = 0

    def refuse_twice(route: Route) -> None:
        nonlocal refused
        refused += 1
        if refused <= 2:
            route.fulfill(status=502, body="bad gateway")
        else:
            route.continue_()

    visit.expects("502")
    visit.page.route("**/api/events", refuse_twice)
    page = visit.go("/tasks")
    expect(page.locator("#live")).to_have_attribute("data-state", "timed")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # as if somebody had come back to it
    visit.until(lambda: refused == 2, "it is asked for")
    visit.is_live()
    shop.given_task("t-1")
    expect(row(page, "t-1")).to_be_visible()


def test_m75_while_nobody_answers_nothing_breaks(shop: Shop, web: Web, visit: Visit) -> None:
    page = visit.go("/tasks")
    visit.is_live()
    visit.expects("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET")
    visit.expects("htmx:sendError|htmx:afterRequest")
    web.stop()
    page.keyboard.press("r")
    expect(page.locator("#live")).to_contain_text("polling")
    visit.until(lambda: any("htmx:sendError" in one for one in visit.heard), "the page has asked")
    web.start()


def test_m75_what_changes_before_the_stream_is_open_is_not_missed(shop: Shop, web: Web, visit: Visit) -> None:
    """Between the making of a page and the opening of its stream there is time for a change."""

    def change(route: Route) -> None:
        shop.given_task("t-1")
        route.continue_()

    visit.page.route("**/api/events", change)
    page = visit.go("/tasks")
    expect(row(page, "t-1")).to_be_visible()


def test_m95_nobody_shares_an_answer_from_before_a_change(shop: Shop, web: Web, visitors: Visitors) -> None:
    """Two look at the same list; each is told of both tasks, and sees both, though they may share answers."""
    pages = [visitors.visit(web.url).go("/tasks") for _ in range(2)]
    for page in pages:
        page.locator("#live[data-state=live]").wait_for()
    for number in range(3):
        shop.given_task(f"t-{number}")
        pages[number % 2].locator(f"#task-t-{number}").wait_for()
    for page in pages:
        expect(page.locator("tr[data-row]")).to_have_count(3)


def test_m75_a_page_that_nobody_sees_holds_no_stream(shop: Shop, visit: Visit) -> None:
    """Nobody watching costs nothing (M-95)."""
    visit.go("/tasks")
    visit.is_live()
    watched = "SELECT count(*) AS n FROM horsies_waiting WHERE topic = 'monitor'"
    visit.until(lambda: shop.rows(watched)[0]["n"] == 1, "somebody watches")
    visit.page.goto("about:blank")
    visit.until(lambda: shop.rows(watched)[0]["n"] == 0, "nobody watches")


@pytest.mark.parametrize("path", ["/schedules", "/audit"])
def test_m75_what_no_notification_tells_of_is_asked_for(shop: Shop, visit: Visit, path: str) -> None:
    page = visit.go(path)
    page.evaluate(MARK)
    expect(page.locator("#live")).to_contain_text("polling")
    assert page.locator("#live").get_attribute("data-state") == "timed", "nothing is wrong"
    shop.given("horsies_audit", actor="ada", action="task.cancel", target_kind="task", outcome="done")
    shop.given("horsies_schedule_state", schedule_name="demo-newsletter", run_count=4711)
    said = "4,711" if path == "/schedules" else "task.cancel"
    expect(page.locator("main")).to_contain_text(said)
    assert is_the_same_page(page)


def test_m75_a_database_that_is_gone_is_told_and_the_page_continues_when_it_is_back(
    shop: Shop, visit: Visit, server_url: str
) -> None:
    page = visit.go("/tasks")
    visit.is_live()
    page.evaluate(MARK)
    visit.expects("503")
    with shop.out_of_reach(server_url):
        page.keyboard.press("r")
        told = page.locator(".toast.bad")
        expect(told).to_contain_text("could not be refreshed (503)")
        page.keyboard.press("r")
        expect(told).to_have_count(1)
    shop.given_task("t-1")
    page.keyboard.press("r")
    expect(row(page, "t-1")).to_be_visible()
    shop.given_task("t-2")
    expect(row(page, "t-2")).to_be_visible()
    assert is_the_same_page(page)
