"""What can be done to tasks, through its dialog, which tells first what would happen; and what came of it in the
database and in the record (M-48, M-49, M-91, M-94, M-96)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import act, asked, button
from tests.browser.support import Shop, Visit, a_worker


def tick(page: Page, *ids: str) -> None:
    for task_id in ids:
        page.locator(f"input[data-select][value='{task_id}']").check()


def originals(shop: Shop) -> dict[str, str]:
    """The new tasks by the ones that they repeat."""
    rows = shop.rows("SELECT id, task_options FROM horsies_tasks WHERE task_options LIKE '%%rerun_of%%'")
    return {json.loads(row["task_options"])["rerun_of"]: row["id"] for row in rows}


def test_m96_one_waiting_task_is_cancelled(shop: Shop, visit: Visit) -> None:
    task = shop.send("shop.archive", '{"order": 1}')
    page = visit.go(f"/tasks/{task}")
    act(page, button(page, "Cancel…"), "Cancel it", "The task is cancelled.", "shop.archive", f"{task} is PENDING")
    assert shop.status(task) == "CANCELLED"
    assert shop.audit() == [("task.cancel", [task], "done")]
    expect(page.locator("h1 .state")).to_have_text("CANCELLED")
    expect(page.get_by_role("region", name="What was done to it here")).to_contain_text("task.cancel")
    expect(button(page, "Cancel…")).to_have_count(0)
    expect(page.locator("#page:focus, #page :focus")).to_have_count(1)


def test_m96_one_running_task_is_cancelled_and_its_code_is_stopped(shop: Shop, visit: Visit) -> None:
    task = shop.send("shop.report", '{"pages": 4000}')
    with a_worker(shop.url, shop.cwd):
        shop.until(task, "RUNNING")
        page = visit.go(f"/tasks/{task}")
        opener = button(page, "Cancel and stop its code…")
        act(page, opener, "Cancel and stop its code", "The task is cancelled.", "its code is stopped")
        shop.until(task, "CANCELLED")
        other = shop.send("shop.report", '{"pages": 1}')
        shop.until(other, "COMPLETED")
    assert shop.audit() == [("task.cancel", [task], "done")]


def test_m96_many_tasks_are_cancelled_after_a_dry_run(shop: Shop, visit: Visit) -> None:
    for number in range(3):
        shop.given_task(f"t-{number}")
    shop.given_task("t-ended", "COMPLETED")
    shop.given_task("t-other")
    page = visit.go("/tasks")
    expect(button(page, "Cancel…")).to_be_disabled()
    tick(page, "t-0", "t-1", "t-2", "t-ended")
    expect(page.get_by_role("group", name="Selected tasks")).to_contain_text("4 selected")
    with asked(page, button(page, "Cancel…")) as dialog:
        expect(dialog).to_contain_text("Cancel 4 tasks?")
        expect(dialog).to_contain_text("3 of the tasks would be changed.")
        expect(dialog).to_contain_text("1 would be left alone: they have ended")
        expect(dialog.locator("tbody tr")).to_have_count(3)
        assert {shop.status(f"t-{number}") for number in range(3)} == {"PENDING"}, "a dry run changes nothing"
        assert shop.audit() == []
        dialog.get_by_role("button", name="Cancel them").click()
    said = "The tasks are cancelled. 3 changed, 1 left alone."
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
    assert [shop.status(f"t-{number}") for number in range(3)] == ["CANCELLED"] * 3
    assert (shop.status("t-ended"), shop.status("t-other")) == ("COMPLETED", "PENDING")
    [(action, targets, outcome)] = shop.audit()
    assert (action, outcome) == ("task.cancel", "done") and {"t-0", "t-1", "t-2"} <= set(targets)
    expect(page.locator("input[data-select]:checked")).to_have_count(0)
    expect(button(page, "Cancel…")).to_be_disabled()


def test_m96_running_tasks_are_left_alone_if_one_says_so(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-waits")
    shop.given_task("t-runs", "RUNNING")
    page = visit.go("/tasks")
    page.get_by_label("Select all on this page").check()
    with asked(page, button(page, "Cancel…")) as dialog:
        dialog.get_by_label("also those that are running").uncheck()
        dialog.get_by_role("button", name="Cancel them").click()
    expect(page.locator("#task-t-waits .state")).to_have_text("CANCELLED")
    assert (shop.status("t-waits"), shop.status("t-runs")) == ("CANCELLED", "RUNNING")


def test_m96_one_task_is_run_again(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-failed", "FAILED", kwargs="{}")
    page = visit.go("/tasks/t-failed")
    act(page, button(page, "Run again…"), "Run it again", "A new task was sent.", "queue demo-orders", "stays as it is")
    expect(page.get_by_text("Repeated as")).to_contain_text("PENDING")
    with asked(page, button(page, "Run again…")) as dialog:
        expect(dialog).to_contain_text("It was run again before, as")
        dialog.get_by_role("button", name="Leave it as it is").click()
    page.get_by_role("status").get_by_role("link", name="Show it").click()
    expect(page.locator("dt", has_text="Repeats")).to_have_count(1)
    visit.go("/tasks/t-failed")
    new = originals(shop)["t-failed"]
    assert (shop.status("t-failed"), shop.status(new)) == ("FAILED", "PENDING")
    assert shop.audit() == [("task.rerun", ["t-failed"], "done")]
    visit.go(f"/tasks/{new}")
    page.get_by_role("link", name="t-failed").click()
    expect(page.locator("h1 .state")).to_have_text("FAILED")


def test_m96_a_double_click_does_it_once(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-failed", "FAILED", kwargs="{}")
    page = visit.go("/tasks/t-failed")
    with asked(page, button(page, "Run again…")) as dialog:
        dialog.get_by_role("button", name="Run it again").dblclick()
    expect(page.get_by_role("status").filter(has_text="A new task was sent.")).to_be_visible()
    page.reload()
    assert len(shop.rows("SELECT id FROM horsies_tasks")) == 2
    assert shop.audit() == [("task.rerun", ["t-failed"], "done")]


def test_m96_many_tasks_are_run_again(shop: Shop, visit: Visit) -> None:
    for number in range(3):
        shop.given_task(f"t-{number}", "FAILED", kwargs="{}")
    shop.given_task("t-fine", "COMPLETED")
    page = visit.go("/tasks")
    page.get_by_label("Select all on this page").check()
    said = ("3 of the tasks would be changed.", "1 would be left alone: they have succeeded")
    act(page, button(page, "Run again…"), "Run them again", "New tasks were sent.", "Run 4 tasks again?", *said)
    assert set(originals(shop)) == {"t-0", "t-1", "t-2"}
    expect(page.locator("tr[data-row]")).to_have_count(7)
    assert [(action, outcome) for action, _, outcome in shop.audit()] == [("task.rerun", "done")]
    tick(page, "t-0", "t-1")
    with asked(page, button(page, "Run again…")) as dialog:
        expect(dialog).to_contain_text("0 of the tasks would be changed.")
        expect(dialog).to_contain_text("2 would be left alone: they were run again before.")
        dialog.get_by_role("button", name="Close").click()


def test_m96_a_group_of_failures_is_run_again(shop: Shop, visit: Visit) -> None:
    for number in range(12):
        shop.given_task(f"t-{number:02}", "FAILED", kwargs="{}")
    shop.given_task("t-other", "FAILED", error_code="SMTP_BUSY")
    shop.given(
        "horsies_rollup",
        span=60,
        start_at="now",
        queue_name="demo-orders",
        task_name="shop.check_stock",
        error_code="CARD_DECLINED",
        failed=12,
        example_id="t-00",
    )
    page = visit.go("/failures?window=1h")
    line = page.locator("tr[data-row]", has_text="CARD_DECLINED")
    expect(line).to_contain_text("12")
    said = ("12 of the tasks would be changed.", "and 2 more")
    act(page, line.get_by_role("button", name="Run again"), "Run them again", "New tasks were sent.", *said)
    assert set(originals(shop)) == {f"t-{number:02}" for number in range(12)}
    assert [(action, outcome) for action, _, outcome in shop.audit()] == [("task.rerun", "done")]
    expect(line).to_contain_text("12 run again")
    with asked(page, line.get_by_role("button", name="Run again")) as dialog:
        expect(dialog).to_contain_text("12 would be left alone: they were run again before.")
        dialog.get_by_role("button", name="Close").click()
    assert len(shop.rows("SELECT id FROM horsies_tasks")) == 25


@pytest.mark.parametrize("code", ["CARD\nDECLINED", "CARD ", ' "CARD", '])
def test_m96_a_group_with_an_odd_code_is_run_again_and_no_other(shop: Shop, visit: Visit, code: str) -> None:
    """A code is any text: what the dialog sends names this one, not the parts of it."""
    shop.given_task("t-odd", "FAILED", error_code=code, kwargs="{}")
    for other in ("CARD", "DECLINED"):
        shop.given_task(f"t-{other}", "FAILED", error_code=other, kwargs="{}")
    group = {"span": 60, "start_at": "now", "queue_name": "demo-orders", "task_name": "shop.check_stock"}
    shop.given("horsies_rollup", **group, error_code=code, failed=1, example_id="t-odd")
    page = visit.go("/failures?window=1h")
    opener = page.get_by_role("button", name="Run again")
    act(page, opener, "Run them again", "New tasks were sent. 1 changed.", "1 of the tasks would be changed.", "t-odd")
    assert set(originals(shop)) == {"t-odd"}
    assert shop.audit() == [("task.rerun", ["t-odd"], "done")]


def test_m96_a_group_of_failures_without_a_code_is_only_shown(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-plain", "FAILED", error_code=None)
    group = {"span": 60, "start_at": "now", "queue_name": "demo-orders", "task_name": "shop.check_stock"}
    shop.given("horsies_rollup", **group, error_code="", failed=1, example_id="t-plain")
    page = visit.go("/failures?window=1h")
    line = page.locator("tr[data-row]")
    expect(line).to_contain_text("without a code")
    expect(line.get_by_role("button")).to_have_count(0)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("tr[data-row]")).to_contain_text("shop.check_stock")
    page.wait_for_url(re.compile("uncoded=1$"))


def test_m96_tasks_are_moved_to_another_queue_and_priority(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-0")
    shop.given_task("t-1", "RUNNING")
    page = visit.go("/tasks")
    tick(page, "t-0", "t-1")
    with asked(page, button(page, "Move…")) as dialog:
        expect(dialog).to_contain_text("1 of the tasks would be changed.")
        expect(dialog).to_contain_text("1 would be left alone: they do not wait any more")
        dialog.get_by_label("New queue").fill("demo-archive")
        dialog.get_by_label("New priority").fill("7")
        dialog.get_by_role("button", name="Move them").click()
    expect(page.locator("#task-t-0")).to_contain_text("archive")
    moved, held = shop.task("t-0"), shop.task("t-1")
    assert (moved["queue_name"], moved["priority"], held["queue_name"]) == ("demo-archive", 7, "demo-orders")
    assert [(action, outcome) for action, _, outcome in shop.audit()] == [("task.move", "done")]


def test_m96_tasks_of_priority_1_are_moved(shop: Shop, visit: Visit) -> None:
    """The first of all, and one that waits behind it: the dialog does not know yet where they shall go."""
    shop.given_task("t-first", priority=1)
    shop.given_task("t-later", priority=50)
    page = visit.go("/tasks")
    page.get_by_label("Select all on this page").check()
    with asked(page, button(page, "Move…")) as dialog:
        expect(dialog).to_contain_text("2 of the tasks would be changed.")
        expect(dialog).not_to_contain_text("left alone")
        dialog.get_by_label("New queue").fill("demo-archive")
        dialog.get_by_role("button", name="Move them").click()
    said = "The tasks are moved. 2 changed."
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
    assert [(shop.task(one)["queue_name"], shop.task(one)["priority"]) for one in ("t-first", "t-later")] == [
        ("demo-archive", 1),
        ("demo-archive", 50),
    ]
    tick(page, "t-first", "t-later")
    with asked(page, button(page, "Move…")) as dialog:
        dialog.get_by_label("New priority").fill("1")
        dialog.get_by_role("button", name="Move them").click()
    said = "The tasks are moved. 1 changed, 1 left alone."
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()
    assert shop.task("t-later")["priority"] == 1


def test_m96_one_task_is_moved_from_its_own_page(shop: Shop, visit: Visit) -> None:
    shop.given_task("t-0")
    page = visit.go("/tasks/t-0")
    with asked(page, button(page, "Move…")) as dialog:
        expect(dialog.locator("datalist option").first).to_be_attached()
        dialog.get_by_label("New queue").fill("nobody-serves-this")
        expect(dialog.get_by_text("no live worker serves it")).to_be_visible()
        dialog.get_by_label("New queue").fill("")
        expect(dialog.get_by_text("no live worker serves it")).to_be_hidden()
        expect(dialog.get_by_role("button", name="Move it")).to_be_visible()
        dialog.get_by_label("New queue").fill("demo-mail")
        dialog.get_by_label("New queue").press("Enter")
    expect(page.get_by_role("region", name="Facts")).to_contain_text("mail")
    assert shop.task("t-0")["queue_name"] == "demo-mail"


def leave_by_escape(page: Page) -> None:
    page.keyboard.press("Escape")


def leave_by_button(page: Page) -> None:
    page.get_by_role("button", name="Leave it as it is").click()


@pytest.mark.parametrize("leave", [leave_by_escape, leave_by_button])
def test_m96_whoever_leaves_a_dialog_changes_nothing(shop: Shop, visit: Visit, leave: Callable[[Page], None]) -> None:
    shop.given_task("t-0")
    shop.given_task("t-failed", "FAILED")
    page = visit.go("/tasks")
    tick(page, "t-0", "t-failed")
    for name in ("Cancel…", "Run again…", "Move…"):
        with asked(page, button(page, name)):
            leave(page)
        expect(button(page, name)).to_be_focused()
        expect(page.locator("input[data-select]:checked")).to_have_count(2)
    assert (shop.status("t-0"), shop.status("t-failed")) == ("PENDING", "FAILED")
    assert len(shop.rows("SELECT id FROM horsies_tasks")) == 2 and shop.audit() == []


def test_m96_what_has_happened_meanwhile_is_told_and_not_undone(shop: Shop, visit: Visit) -> None:
    """The dialog is open while a worker ends the task: the answer is a refusal, which is written down too."""
    shop.given_task("t-0")
    page = visit.go("/tasks/t-0")
    button(page, "Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    shop.do("UPDATE horsies_tasks SET status = 'COMPLETED' WHERE id = 't-0'")
    visit.expects("409")
    dialog.get_by_role("button", name="Cancel it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("COMPLETED")
    assert shop.status("t-0") == "COMPLETED"
    [(action, targets, outcome)] = shop.audit()
    assert (action, targets) == ("task.cancel", ["t-0"]) and outcome != "done"


def test_m96_a_refusal_can_be_read_while_the_dialog_stays_open(shop: Shop, visit: Visit) -> None:
    """A dialog is above the page; what is said must not be behind it."""
    shop.given_task("t-0")
    page = visit.go("/tasks/t-0")
    button(page, "Move…").click()
    dialog = page.get_by_role("dialog")
    visit.expects("422|409")
    dialog.get_by_role("button", name="Move it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("queue")
    dialog.get_by_label("New priority").fill("1000000")
    dialog.get_by_role("button", name="Move it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("priority")
    expect(dialog.get_by_role("alert")).to_have_count(1)
    expect(dialog.get_by_label("New priority")).to_have_value("1000000")
    dialog.get_by_label("New priority").fill("9")
    dialog.get_by_role("button", name="Move it").click()
    expect(dialog).to_have_count(0)
    assert shop.task("t-0")["priority"] == 9


def test_m96_a_task_that_is_due_later_is_run_now(shop: Shop, visit: Visit) -> None:
    task = shop.send("shop.report", '{"pages": 1}')
    shop.do("UPDATE horsies_tasks SET enqueued_at = now() + interval '29 days'")
    page = visit.go(f"/tasks/{task}")
    expect(page.get_by_role("region", name="Why it is not running")).to_contain_text("it is not due until")
    act(page, button(page, "Run now…"), "Run it now", "The task is due now.", "It becomes due at once")
    expect(button(page, "Run now…")).to_have_count(0)
    with a_worker(shop.url, shop.cwd):
        shop.until(task, "COMPLETED")
    expect(page.locator("h1 .state")).to_have_text("COMPLETED")
    assert shop.audit() == [("task.run_now", [task], "done")]
