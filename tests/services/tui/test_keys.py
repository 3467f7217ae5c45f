"""Every key of the terminal dashboard (M-81), on real rows."""

from __future__ import annotations

import pytest
from psycopg import AsyncConnection

from horsies.core.types.status import TaskStatus
from horsies.tui.app import THEMES
from tests.factories import given_node, given_task, given_worker, given_worker_state, given_workflow
from tests.services.tui.support import Viewer

W1 = "host:1:aaaaaaaa"


@pytest.fixture
async def rows(db: AsyncConnection) -> None:
    await given_worker(db, W1, hostname="host", pid=1, queues=["default"])
    await given_worker_state(db, W1, tasks_running=1)
    for state in TaskStatus:
        await given_task(
            db, id=f"the-{state.value.lower()}", task_name=f"task.{state.value.lower()}", status=state,
            claimed_by_worker_id=None if state is TaskStatus.PENDING else W1,
            started_at=None if state is TaskStatus.PENDING else "now", error_code="NO" if state == "FAILED" else None,
        )  # fmt: skip
    await db.execute("UPDATE horsies_tasks SET completed_at = now() WHERE status = 'COMPLETED'")
    await db.execute("UPDATE horsies_tasks SET failed_at = now() WHERE status = 'FAILED'")
    workflow = await given_workflow(db, id="the-workflow", name="order", status="RUNNING", open_nodes=1)
    await given_node(db, workflow, status="COMPLETED", node_id="first")
    await given_node(db, workflow, task_index=1, status="PENDING", node_id="second", dependencies=[0])


@pytest.mark.usefixtures("rows")
async def test_m81_numbers_choose_the_tabs(viewer: Viewer) -> None:
    for key, active, said in (
        ("2", "[2 Workers]", "memory"),
        ("3", "[3 Tasks]", "Tasks by worker"),
        ("4", "[4 Workflows]", "order"),
        ("5", "[5 Maintenance]", "Registry"),
        ("1", "[1 Dashboard]", "Capacity"),
    ):
        await viewer.press(key)
        await viewer.sees(active, said)


@pytest.mark.usefixtures("rows")
async def test_m81_arrows_select_and_enter_opens(viewer: Viewer) -> None:
    await viewer.press("3")
    await viewer.sees(W1, "(not claimed yet)")
    assert W1 in viewer.marked
    await viewer.press("down")
    assert "(not claimed yet)" in viewer.marked
    await viewer.press("up")
    assert W1 in viewer.marked
    await viewer.press("enter")
    await viewer.sees("task.failed", "task.running")
    await viewer.selects("task.failed")
    await viewer.press("enter")
    await viewer.sees("Tasks › task the-failed", "task.failed  FAILED", without=("(not claimed yet)",))


@pytest.mark.usefixtures("rows")
async def test_m81_esc_closes_a_detail_first_and_then_quits(viewer: Viewer) -> None:
    await viewer.press("4")
    await viewer.sees("order")
    await viewer.press("enter")
    await viewer.sees("Workflows › workflow the-workflow", "second")
    await viewer.press("escape")
    await viewer.sees("[4 Workflows]", without=("›",))
    assert viewer.app.is_running
    await viewer.press("escape")
    assert viewer.app._exit, "there was nothing left to close"


async def test_m81_q_quits(viewer: Viewer) -> None:
    await viewer.press("q")
    assert viewer.app._exit and viewer.app.return_code == 0


async def test_m81_question_mark_opens_the_help_and_closes_it(viewer: Viewer) -> None:
    await viewer.press("question_mark")
    await viewer.sees("Dashboard › help", "p c u o f", "OSC 52")
    await viewer.press("question_mark")
    await viewer.sees("Capacity", without=("›",))


@pytest.mark.usefixtures("rows")
async def test_m81_status_keys_filter_the_tasks(viewer: Viewer) -> None:
    await viewer.press("3")
    await viewer.sees(W1)
    await viewer.press("enter")
    every = {key: f"task.{state}" for key, state in zip("pcuof", STATES, strict=True)}
    for key, name in every.items():
        await viewer.press("n")
        await viewer.sees("no state is chosen")
        await viewer.press(key)
        if key == "p":
            await viewer.sees(": pending", "(not claimed yet)", without=("completed",))
            continue
        await viewer.sees(name, without=tuple(other for other in every.values() if other != name))
    await viewer.press("u")
    await viewer.sees(": running, failed", "task.running", "task.failed", without=("task.completed",))
    await viewer.press("a")
    await viewer.sees("all states", "task.completed", "task.cancelled", "task.expired")


STATES = ("pending", "claimed", "running", "completed", "failed")


@pytest.mark.usefixtures("rows")
async def test_m81_a_slash_searches_on_the_visible_tab(viewer: Viewer) -> None:
    await viewer.press("3")
    await viewer.sees(W1)
    await viewer.press("slash")
    await viewer.type("task.fail")
    await viewer.press("enter")
    await viewer.sees('task name contains "task.fail": task.failed', without=("(not claimed yet)",))
    await viewer.press("escape")
    await viewer.sees("(not claimed yet)", without=("task.fail",))


@pytest.mark.usefixtures("rows")
async def test_m81_a_search_can_be_left_and_its_text_is_no_key(viewer: Viewer) -> None:
    await viewer.press("4")
    await viewer.sees("order")
    await viewer.press("slash")
    await viewer.type("q1")
    await viewer.sees("q1", "[4 Workflows]")
    await viewer.press("escape")
    await viewer.sees("order", without=("q1",))
    assert viewer.app.desk.view.search == ""


@pytest.mark.usefixtures("rows")
async def test_m81_a_search_on_the_dashboard_shows_what_matches(viewer: Viewer, db: AsyncConnection) -> None:
    await given_task(db, queue_name="mail")
    await viewer.sees("default", "mail")
    await viewer.press("slash")
    await viewer.type("mail")
    await viewer.press("enter")
    await viewer.sees("mail", "queue", without=("default",))


@pytest.mark.usefixtures("rows")
async def test_m81_brackets_change_the_window_of_the_history(viewer: Viewer) -> None:
    await viewer.press("2")
    await viewer.sees("[30m]")
    await viewer.press("right_square_bracket")
    await viewer.sees("[1h]", "-1h")
    await viewer.press("left_square_bracket", "left_square_bracket")
    await viewer.sees("[5m]", "-5m")


@pytest.mark.usefixtures("rows")
async def test_m81_y_copies_json_of_what_is_selected(viewer: Viewer) -> None:
    await viewer.press("2")
    await viewer.sees("host")
    await viewer.press("y")
    await viewer.sees("characters of JSON", "OSC 52")
    assert viewer.copied["worker_id"] == W1
    await viewer.press("3")
    await viewer.sees(W1)
    await viewer.press("enter")
    await viewer.selects("task.failed")
    await viewer.press("y")
    assert viewer.copied["task_id"] == "the-failed"
    await viewer.press("enter")
    await viewer.sees("task.failed  FAILED")
    await viewer.press("y")
    assert viewer.copied["error_code"] == "NO" and "attempts" in viewer.copied


async def test_m81_y_says_if_there_is_nothing_to_copy(viewer: Viewer) -> None:
    await viewer.press("question_mark", "y")
    await viewer.sees("nothing to copy")


async def test_m81_r_refreshes_at_once(viewer: Viewer, db: AsyncConnection) -> None:
    await viewer.press("5")
    await viewer.sees("no schedule is known")
    await viewer.sees("Registry")
    await db.execute("INSERT INTO horsies_schedule_state (schedule_name) VALUES ('nightly')")
    await viewer.press("r")
    await viewer.sees("nightly", "refreshed")


async def test_m81_t_changes_the_theme(viewer: Viewer) -> None:
    seen = [viewer.app.theme]
    for _ in THEMES:
        await viewer.press("t")
        await viewer.sees(f"theme: {viewer.app.theme}")
        seen.append(viewer.app.theme)
    assert tuple(seen) == (*THEMES, THEMES[0])


@pytest.mark.usefixtures("rows")
async def test_m81_pages_and_ends_of_a_long_list(viewer: Viewer, db: AsyncConnection) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, sent_at, completed_at, claimed_by_worker_id)"
        " SELECT 'n' || lpad(n::text, 4, '0'), 'many' || n, 'COMPLETED', now() - n * interval '1 s',"
        " now() - n * interval '1 s', %s FROM generate_series(1, 250) n",
        [W1],
    )
    await viewer.press("3", "n", "o")
    await viewer.sees(": completed", "251")
    await viewer.press("enter")
    await viewer.sees("many1 ")
    await viewer.press("pagedown")
    assert "many" in viewer.marked
    await viewer.press("end")
    await viewer.press("up")
    await viewer.sees("page 2 of these", "many99")
    await viewer.selects("page 2")
    await viewer.press("enter")
    await viewer.sees("many100", "page 1 of these", without=("many99 ",))
    await viewer.press("home")
    await viewer.sees(W1)
    assert W1 in viewer.marked


@pytest.mark.usefixtures("rows")
async def test_m81_the_left_arrow_closes_a_detail(viewer: Viewer) -> None:
    await viewer.press("4")
    await viewer.sees("order")
    await viewer.press("right")
    await viewer.sees("›")
    await viewer.press("left")
    await viewer.sees("order", without=("›",))


@pytest.mark.usefixtures("rows")
async def test_m81_the_cursor_stays_on_its_row_while_others_come_and_go(viewer: Viewer, db: AsyncConnection) -> None:
    await viewer.press("3")
    await viewer.sees(W1)
    await viewer.press("enter")
    await viewer.selects("task.failed")
    for number in range(5):
        await given_task(
            db, id=f"new{number}", task_name=f"new{number}", status=TaskStatus.RUNNING, claimed_by_worker_id=W1
        )
    await viewer.press("r")
    await viewer.sees("new4")
    assert "task.failed" in viewer.marked
