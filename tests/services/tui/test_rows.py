"""The tabs of the terminal dashboard on real rows (M-80, M-97): live values, details, hostile texts, many rows."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.broker import PostgresConfig
from horsies.core.types.status import TaskStatus
from tests.factories import given_attempt, given_node, given_task, given_worker, given_worker_state, given_workflow
from tests.hostile_support import LONG, SHORT, forged, obeyed, plant
from tests.services.tui.support import Viewer, watching

W1, GONE = "host:1:aaaaaaaa", "gone:2:bbbbbbbb"


async def test_m97_values_are_live(viewer: Viewer, db: AsyncConnection) -> None:
    await viewer.sees("Alerts  none", "PENDING    0")
    for _ in range(3):
        await given_task(db, queue_name="mail")
    await viewer.sees("PENDING    3", "mail", "no live worker serves it", "!1")
    await given_worker(db, W1, queues=["mail"])
    await given_worker_state(db, W1, processes=4, tasks_running=3, queues=["mail"])
    await viewer.sees("1 live, running 3", "75% utilization", "3 of 4 processes busy", "Alerts  none")


async def test_m80_alerts_of_stale_claims_late_schedules_and_silence(viewer: Viewer, db: AsyncConnection) -> None:
    await given_worker(db, GONE, last_heartbeat_at="2020-01-01T00:00:00Z")
    await given_task(db, status=TaskStatus.RUNNING, claimed_by_worker_id=GONE, started_at="now")
    await given_task(db, status=TaskStatus.CLAIMED, claimed_by_worker_id="never:3:c", claimed_at="now")
    await db.execute(
        "INSERT INTO horsies_schedule_state (schedule_name, next_run_at) VALUES ('nightly', now() - interval '1 hour')"
    )
    await viewer.sees(f"!! worker {GONE}: silent for", "holds 1 task", "worker never:3:c: not registered, and holds")
    await viewer.sees("schedule nightly: 1 h late", "1 registered worker silent")
    await viewer.press("5")
    await viewer.sees("Dead workers  2", "not registered", "nightly", "late")


async def test_m80_the_history_of_a_worker(viewer: Viewer, db: AsyncConnection) -> None:
    await given_worker(db, W1, hostname="host")
    await db.execute(
        "INSERT INTO horsies_worker_states (worker_id, snapshot_at, hostname, pid, processes, tasks_running,"
        " cpu_percent, memory_usage_mb) SELECT %s, now() - n * interval '30 s', 'host', 1, 4, n %% 5, 50, 100 FROM"
        " generate_series(0, 120) n",
        [W1],
    )
    await viewer.press("2")
    await viewer.sees("running", "to 4", "now 0", "cpu", "to 50%", "memory", "█")
    await viewer.press("enter")
    await viewer.sees(f"Workers › worker {W1}", "last heartbeat", "[30m]")
    await viewer.press("right_square_bracket", "right_square_bracket")
    await viewer.sees("[6h]", "-6h")


async def test_m80_a_task_with_attempts_and_why_it_waits(viewer: Viewer, db: AsyncConnection) -> None:
    task_id = str(uuid.uuid4())
    await given_task(db, id=task_id, task_name="mail.send", kwargs='{"to": "you"}', retry_count=1, max_retries=3)
    await given_attempt(db, task_id, error_code="REFUSED", error_message="not today", will_retry=True)
    await viewer.press("3", "slash")
    await viewer.type(task_id)
    await viewer.press("enter")
    await viewer.sees(
        "mail.send  PENDING", "NO_WORKER", "no worker is running", '{"to": "you"}', "REFUSED", "not today"
    )
    await viewer.press("escape")
    await viewer.sees("Tasks by worker", without=("›",))


async def test_m80_a_running_task_and_what_it_logs(viewer: Viewer, db: AsyncConnection) -> None:
    task_id = str(uuid.uuid4())
    await given_task(db, id=task_id, status=TaskStatus.RUNNING, started_at="now")
    insert = (
        "INSERT INTO horsies_task_logs (task_id, claim_seq, attempt, first_line, last_line, lines)"
        " VALUES (%s, 1, 1, %s, %s, %s)"
    )
    await db.execute(insert, [task_id, 1, 1, '[[0.0, "INFO", "mail", "connecting"]]'])
    await viewer.press("3", "slash")
    await viewer.type(task_id)
    await viewer.press("enter")
    await viewer.sees("a_task  RUNNING", "log", "INFO    connecting")
    await db.execute(insert, [task_id, 2, 2, '[[1.0, "ERROR", "mail", "refused"]]'])
    await viewer.press("r")
    await viewer.sees("INFO    connecting", "ERROR   refused")


async def test_m80_a_workflow_its_nodes_and_a_node(viewer: Viewer, db: AsyncConnection) -> None:
    run = await given_workflow(db, name="order", status="RUNNING", open_nodes=2)
    task_id = await given_task(db, status=TaskStatus.FAILED, error_code="SOLD_OUT", workflow_id=run)
    await given_node(db, run, status="FAILED", node_id="charge", task_id=task_id, error_code="SOLD_OUT")
    await given_node(db, run, task_index=1, node_id="items", node_type="MAP", status="RUNNING", dependencies=[0])
    await given_node(db, run, task_index=2, node_id="items[0]", node_type="ELEMENT", status="COMPLETED", map_index=1,
                     map_position=0)  # fmt: skip
    await viewer.press("4")
    await viewer.sees("order", "2/3", "RUNNING")
    await viewer.press("enter")
    await viewer.sees("charge", "SOLD_OUT", "+ items", "map 1/1")
    await viewer.selects("items")
    await viewer.press("enter")
    await viewer.sees("- items", "items[0]")
    await viewer.selects("charge")
    await viewer.press("enter")
    await viewer.sees("› node charge", "its task", "a_task  FAILED")


async def test_m80_an_empty_database(viewer: Viewer) -> None:
    for key, said in (
        ("1", "Alerts  none"),
        ("2", "no worker is registered"),
        ("3", "no tasks"),
        ("4", "no workflows"),
        ("5", "no schedule is known"),
    ):
        await viewer.press(key)
        await viewer.sees(said, without=("No news",))
        await viewer.press("down", "enter", "y", "up", "pagedown", "home", "end")
        assert viewer.app.is_running


async def test_m80_hostile_texts_in_every_column(viewer: Viewer, database_url: str) -> None:
    """Whatever stands in a row is text: no control character reaches the terminal, no markup is read."""
    plant(database_url)
    await viewer.press("r")
    for key in "12345":
        await viewer.press(key)
        await viewer.sees(f"[{key} ", "\\u")
        assert forged(viewer.screen) == []
        for _ in range(3):
            _is_harmless(viewer)
            await viewer.press("enter", "down")
            await viewer.pilot.pause(0.3)
        _is_harmless(viewer)
        await viewer.press("y")
        assert viewer.app.clipboard.isascii()
        while viewer.app.desk.trail:
            await viewer.press("escape")


def _is_harmless(viewer: Viewer) -> None:
    assert obeyed(viewer.screen) == set(), viewer.screen


@pytest.mark.parametrize(
    "name", ["[red]x[/red]", "[@click=app.quit]x[/]", "[/]", "\\[b]", "👨‍👩‍👧🏽", "x" * 250, "疲れた"]
)
async def test_m80_names_are_no_markup(viewer: Viewer, db: AsyncConnection, name: str) -> None:
    columns = {"task_name": name, "queue_name": name[:90], "error_code": name[:90], "claimed_by_worker_id": W1}
    await given_task(db, status=TaskStatus.FAILED, failed_at="now", **columns)
    await viewer.press("3")
    await viewer.sees(W1)
    await viewer.press("enter")
    await viewer.sees(name[:10])
    await viewer.selects("FAILED")
    await viewer.press("enter")
    await viewer.sees(f"{name[:20]}")
    assert viewer.app.is_running


async def test_m80_a_megabyte_of_text_is_shown_in_part(viewer: Viewer, db: AsyncConnection) -> None:
    task_id = str(uuid.uuid4())
    await given_task(db, id=task_id, kwargs='{"x": "' + "long " * 200_000 + '"}')
    await viewer.press("3", "slash")
    await viewer.type(task_id)
    await viewer.press("enter")
    await viewer.sees("a_task  PENDING", "long long")
    await viewer.press("end")
    await viewer.sees("facts")
    assert len(viewer.list.rows) < 4_000
    await viewer.press("y")
    await viewer.sees("many terminals take less")
    assert len(viewer.copied["kwargs"]["x"]) == 1_000_000


async def test_m80_many_rows_are_read_by_pages(viewer: Viewer, db: AsyncConnection) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, sent_at, completed_at, claimed_by_worker_id)"
        " SELECT 'n' || lpad(n::text, 6, '0'), 'many' || n, 'COMPLETED', now() - n * interval '1 s',"
        " now() - n * interval '1 s', %s FROM generate_series(1, 100000) n",
        [W1],
    )
    await db.execute("ANALYZE horsies_tasks")
    await viewer.press("3")
    await viewer.sees(W1, "10,000+")
    await viewer.press("o", "enter")
    await viewer.sees("many1 ")
    for page in range(2, 6):
        await viewer.press("end")
        assert f"page {page} of these" in viewer.marked
        await viewer.press("enter")
        await viewer.sees(f"many{(page - 1) * 100 + 1} ")
        assert len(viewer.list.rows) < 110 and W1 in viewer.marked, "the cursor is above the page"
    await viewer.press("down", "enter")
    await viewer.sees("many301 ")


async def test_m81_a_draw_between_a_key_and_its_message_does_not_undo_the_key(
    viewer: Viewer, db: AsyncConnection
) -> None:
    for number in range(5):
        await given_task(db, queue_name=f"queue{number}")
    await viewer.sees("queue0", "queue4")
    await viewer.press("home")
    viewer.list.action_end(1)
    viewer.app.draw()
    await viewer.sees("> queue4")


async def test_m81_page_down_at_the_end_of_a_page_turns_it(viewer: Viewer, db: AsyncConnection) -> None:
    await db.execute(
        "INSERT INTO horsies_tasks (id, task_name, status, completed_at, claimed_by_worker_id)"
        " SELECT 'n' || n, 'many' || n, 'COMPLETED', now() - n * interval '1 s', %s FROM generate_series(1, 150) n",
        [W1],
    )
    await viewer.press("3", "o")
    await viewer.sees(": completed", W1)
    await viewer.press("enter")
    await viewer.sees("many1 ")
    await viewer.press("end", "pagedown")
    await viewer.sees("many101 ", "page 1 of these")
    await viewer.press("home", "pagedown", "pageup")
    await viewer.sees("many101 ")
    await viewer.press("home", "down")
    assert "page 1 of these" in viewer.marked
    await viewer.press("pageup")
    await viewer.sees("many1 ", without=("many101 ",))


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 5), (200, 60)])
async def test_m80_any_size(database_url: str, db: AsyncConnection, size: tuple[int, int]) -> None:
    await given_worker(db, W1, hostname="host", metadata=Jsonb({"task_names": ["a"] * 50}))
    await given_worker_state(db, W1)
    await given_task(db, status=TaskStatus.FAILED, failed_at="now", claimed_by_worker_id=W1, error_code="E" * 90)
    broker = PostgresBroker(PostgresConfig(database_url=database_url))
    broker.only_look()
    async with watching(broker, size=size) as viewer:
        for key in "12345":
            await viewer.press(key)
            screen = await viewer.sees(f"[{key}")
            assert max(map(len, screen.splitlines())) <= size[0] and len(screen.splitlines()) == size[1]
        await viewer.pilot.resize_terminal(60, 15)
        await viewer.sees("[5 Maint]", "Registry")
    await broker.close_async()


async def test_m80_search_finds_queues_codes_and_workers(viewer: Viewer, db: AsyncConnection) -> None:
    columns: dict[str, Any] = {"status": TaskStatus.FAILED, "failed_at": "now", "claimed_by_worker_id": W1}
    await given_task(db, queue_name="letters", error_code="BAD_STAMP", **columns)
    await given_task(db, queue_name="other", **{**columns, "claimed_by_worker_id": GONE})
    await viewer.press("3")
    for text, said in (
        ("letter", "queue contains"),
        ("stamp", "error contains"),
        ("host", "worker contains"),
        ("a_task", "task name contains"),
    ):
        await viewer.press("slash", *["backspace"] * 20)
        await viewer.type(text)
        await viewer.press("enter")
        await viewer.sees(said, W1)
    await viewer.press("slash", *["backspace"] * 20)
    await viewer.type("nowhere")
    await viewer.press("enter")
    await viewer.sees('"nowhere" is in no task name', "no tasks")


def test_the_texts_are_hostile() -> None:
    assert obeyed(SHORT) and obeyed(LONG)
