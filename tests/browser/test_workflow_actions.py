"""What can be done to workflows, workers and schedules, through its dialog, and what came of it (M-91, M-94, M-96)."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.actions import act, asked, button
from tests.browser.rows import ORDER_FAILED, ORDER_RUNNING, fill
from tests.browser.support import Shop, Visit, a_worker
from tests.support import eventually_sync


def workflow_status(shop: Shop, workflow_id: str) -> str:
    return str(shop.rows("SELECT status FROM horsies_workflows WHERE id = %s", workflow_id)[0]["status"])


def node_statuses(shop: Shop, workflow_id: str) -> dict[str, str]:
    rows = shop.rows("SELECT node_id, status FROM horsies_workflow_tasks WHERE workflow_id = %s", workflow_id)
    return {row["node_id"]: row["status"] for row in rows}


def test_m96_a_workflow_is_paused_resumed_and_cancelled(shop: Shop, visit: Visit) -> None:
    workflow = shop.start_order(7)
    page = visit.go(f"/workflows/{workflow}")
    state = page.locator("h1 .state")
    act(
        page, button(page, "Pause…"), "Pause it", "The workflow is paused.", f"{workflow} is RUNNING", "no further node"
    )
    expect(state).to_have_text("PAUSED")
    assert workflow_status(shop, workflow) == "PAUSED"
    act(page, button(page, "Resume…"), "Resume it", "The workflow continues.", "The workflow continues.")
    expect(state).to_have_text("RUNNING")
    act(page, button(page, "Cancel…"), "Cancel it", "The workflow is cancelled.", "5 open nodes")
    expect(state).to_have_text("CANCELLED")
    assert workflow_status(shop, workflow) == "CANCELLED"
    actions = ("workflow.pause", "workflow.resume", "workflow.cancel")
    assert shop.audit() == [(action, [workflow], "done") for action in actions]
    expect(button(page, "Cancel…")).to_have_count(0)
    expect(page.get_by_role("region", name="What was done to it here").locator("tbody tr")).to_have_count(3)


def test_m96_the_failed_nodes_of_a_workflow_run_again(shop: Shop, visit: Visit) -> None:
    workflow = shop.start_order(7, declines=1.0)
    with a_worker(shop.url, shop.cwd):
        eventually_sync(lambda: workflow_status(shop, workflow) == "FAILED", 30, what="the bank refuses")
        page = visit.go(f"/workflows/{workflow}")
        opener = button(page, "Retry failed nodes…")
        act(
            page,
            opener,
            "Retry",
            "The failed node runs again.",
            "1 failed node",
            "CARD_DECLINED",
            "What succeeded is kept",
        )
        earlier = "SELECT previous_task_ids FROM horsies_workflow_tasks WHERE workflow_id = %s AND node_id = 'charge'"
        eventually_sync(lambda: len(shop.rows(earlier, workflow)[0]["previous_task_ids"]) == 1, what="another try")
        eventually_sync(lambda: workflow_status(shop, workflow) == "FAILED", 30, what="the bank refuses again")
    assert shop.audit() == [("workflow.retry", [workflow], "done")]


def test_m96_one_node_runs_again(shop: Shop, visit: Visit) -> None:
    workflow = shop.start_order(7, declines=1.0)
    with a_worker(shop.url, shop.cwd):
        eventually_sync(lambda: workflow_status(shop, workflow) == "FAILED", 30, what="the bank refuses")
    shop.do("UPDATE horsies_workflow_tasks SET task_kwargs = '{\"declines\": 0.0}' WHERE node_id = 'charge'")
    page = visit.go(f"/workflows/{workflow}")
    page.locator("figure.graph").get_by_role("link", name="charge: failed").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("charge FAILED")
    act(page, button(page, "Retry this node…"), "Retry", "The failed node runs again.", "1 failed node", "charge")
    with a_worker(shop.url, shop.cwd):
        eventually_sync(lambda: workflow_status(shop, workflow) == "COMPLETED", 30, what="the bank pays")
    expect(page.get_by_role("heading", level=1)).to_contain_text("charge COMPLETED")
    assert shop.audit() == [("workflow.retry", [workflow], "done")]


def test_m96_whoever_leaves_the_dialog_of_a_workflow_changes_nothing(shop: Shop, visit: Visit) -> None:
    fill(shop)
    before = shop.audit()
    for workflow, names in ((ORDER_RUNNING, ("Pause…", "Cancel…")), (ORDER_FAILED, ("Retry failed nodes…",))):
        page = visit.go(f"/workflows/{workflow}")
        for name in names:
            with asked(page, button(page, name)) as dialog:
                dialog.get_by_role("button", name="Leave it as it is").click()
            expect(button(page, name)).to_be_focused()
    assert (workflow_status(shop, ORDER_RUNNING), workflow_status(shop, ORDER_FAILED)) == ("RUNNING", "FAILED")
    assert shop.audit() == before


def test_m96_dead_workers_are_swept_after_a_dry_run(shop: Shop, visit: Visit) -> None:
    shop.given("horsies_workers", worker_id="alive", hostname="a")
    page = visit.go("/workers")
    with asked(page, button(page, "Sweep dead workers…")) as dialog:
        expect(dialog).to_contain_text("No worker counts as dead")
        expect(dialog.get_by_role("button")).to_have_text(["Close"])
        page.keyboard.press("Escape")
    shop.given("horsies_workers", worker_id="dead", hostname="b", last_heartbeat_at="2020-01-01", sweeping=True)
    shop.given_task("t-0", "CLAIMED", claimed_by_worker_id="dead", recovery_enrolled=True, claimed_at="2020-01-01")
    with asked(page, button(page, "Sweep dead workers…")) as dialog:
        expect(dialog).to_contain_text("Recover the tasks of 1 dead worker?")
        expect(dialog.locator("tbody tr")).to_have_text(["dead"])
        assert (shop.status("t-0"), shop.audit()) == ("CLAIMED", []), "a dry run changes nothing"
        dialog.get_by_role("button", name="Sweep", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="The sweep is done.")).to_be_visible()
    expect(page.locator("tr[data-row]", has_text="dead")).to_have_count(0)
    assert [row["worker_id"] for row in shop.rows("SELECT worker_id FROM horsies_workers")] == ["alive"]
    assert shop.task("t-0")["claimed_by_worker_id"] != "dead" or shop.status("t-0") == "PENDING"
    assert [(action, outcome) for action, _, outcome in shop.audit()] == [("worker.sweep", "done")]


def test_m96_a_worker_is_drained(shop: Shop, visit: Visit) -> None:
    with a_worker(shop.url, shop.cwd, stops=False) as worker:
        task = shop.send("shop.report", '{"pages": 6}')
        shop.until(task, "RUNNING")
        page = visit.go("/workers")
        page.locator("tr[data-row] a[data-open]").click()
        act(page, button(page, "Drain…"), "Drain it", "The worker drains.", "finishes what it runs")
        assert worker.wait() == 0
    assert shop.status(task) == "COMPLETED"
    [(action, [target], outcome)] = shop.audit()
    assert (action, outcome) == ("worker.drain", "done") and target in page.url.replace("%3A", ":")


def test_m96_workers_are_pinged(shop: Shop, visit: Visit) -> None:
    with a_worker(shop.url, shop.cwd):
        page = visit.go("/workers")
        page.get_by_role("link", name="Ping all").click()
        expect(page.locator("tr[data-row]")).to_have_count(1)
        expect(page.locator("main")).to_contain_text("The database answered in")
        expect(page.locator("tr[data-row]")).not_to_contain_text("none")


def test_m96_a_schedule_of_the_code_is_triggered(shop: Shop, visit: Visit) -> None:
    page = visit.go("/schedules")
    line = page.locator("tr[data-row]", has_text="demo-stock-check")
    expect(line).to_contain_text("every 20 seconds")
    expect(line.get_by_role("button", name="Pause")).to_have_count(0)
    act(
        page, line.get_by_role("button", name="Trigger"), "Trigger it", "The task of the schedule was sent.", "sent now"
    )
    [row] = shop.rows("SELECT id, task_name, status FROM horsies_tasks")
    assert (row["task_name"], row["status"]) == ("shop.check_stock", "PENDING")
    assert shop.audit() == [("schedule.trigger", ["demo-stock-check"], "done")]


def test_m96_a_run_time_schedule_is_paused_resumed_and_edited(shop: Shop, visit: Visit) -> None:
    definition = {
        "task_name": "shop.send_mail",
        "pattern": {"type": "daily", "time": "08:15:00"},
        "timezone": "Europe/Paris",
        "kwargs": {"to": "all@example.com", "subject": "Sale"},
        "enabled": True,
    }
    shop.given("horsies_schedules", name="sale", definition=json.dumps(definition))
    stored = "SELECT definition, paused FROM horsies_schedules WHERE name = 'sale'"
    page = visit.go("/schedules")
    line = page.locator("tr[data-row]", has_text="sale")
    expect(line).to_contain_text("every day at 08:15 (Europe/Paris)")
    act(page, line.get_by_role("button", name="Pause"), "Pause it", "The schedule is paused.")
    expect(line.locator(".state")).to_have_text("paused")
    assert shop.rows(stored)[0]["paused"]
    act(page, line.get_by_role("button", name="Resume"), "Resume it", "The schedule runs again.")
    expect(line.locator(".state")).to_have_text("active")
    assert not shop.rows(stored)[0]["paused"]
    with asked(page, line.get_by_role("button", name="Edit")) as dialog:
        pattern = dialog.get_by_label("When (JSON)")
        pattern.fill('{"type": "daily", "time": ')
        dialog.get_by_role("button", name="Save").click()
        assert pattern.evaluate("one => one.validationMessage").startswith("This is not JSON")
        pattern.fill('{"type": "interval", "minutes": 5}')
        dialog.get_by_label("Time zone").fill("Asia/Tokyo")
        dialog.get_by_role("button", name="Save").click()
    expect(line).to_contain_text("every 5 minutes")
    changed = shop.rows(stored)[0]["definition"]
    assert (changed["pattern"]["type"], changed["timezone"]) == ("interval", "Asia/Tokyo")
    assert changed["kwargs"] == definition["kwargs"]
    actions = ("schedule.pause", "schedule.resume", "schedule.edit")
    assert shop.audit() == [(action, ["sale"], "done") for action in actions]


def test_m96_a_pattern_that_makes_no_sense_is_refused_in_the_dialog(shop: Shop, visit: Visit) -> None:
    definition = {"task_name": "shop.check_stock", "pattern": {"type": "interval", "minutes": 5}}
    shop.given("horsies_schedules", name="stock", definition=json.dumps(definition))
    page = visit.go("/schedules")
    visit.expects("422|409|400")
    with asked(page, page.get_by_role("button", name="Edit… stock", exact=True)) as dialog:
        dialog.get_by_label("When (JSON)").fill('{"type": "never"}')
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.get_by_role("alert")).to_be_visible()
        page.keyboard.press("Escape")
    kept = shop.rows("SELECT definition FROM horsies_schedules WHERE name = 'stock'")[0]["definition"]
    assert kept["pattern"] == definition["pattern"]
