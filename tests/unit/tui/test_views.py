"""What each tab shows of given values (M-80), as plain functions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from horsies.core.models.monitoring.tasks import Breakdown, TaskListPage
from horsies.core.monitoring.alerts import Alert
from horsies.core.types.status import TaskStatus, WorkflowStatus, WorkflowTaskStatus
from horsies.tui import view_dashboard, view_edges, view_maintenance, view_tasks, view_workers, view_workflows
from horsies.tui.lines import ListRow, plain, width_of
from horsies.tui.view_dashboard import Trend
from tests.each import each
from tests.hostile_support import LONG, SHORT, obeyed
from tests.tui_support import (
    DEAD,
    NODES,
    NOW,
    WEB,
    FixedSource,
    a_dead_worker,
    a_detail,
    a_group,
    a_node_detail,
    a_queue,
    a_run,
    a_run_detail,
    a_schedule,
    a_snapshot,
    a_task,
    a_worker,
    ago,
    an_attempt,
    points,
    why_it_waits,
)

TREND = Trend({WEB: points()})
ALERTS = [Alert("bad", "no worker", "mail", "queue mail: 3 tasks due, and no live worker serves it")]


def text_of(rows: list[ListRow]) -> str:
    return "\n".join(plain(row.line).rstrip() for row in rows)


@each("width", [35, 60, 80, 200])
def test_m80_every_view_fits_into_any_width(width: int) -> None:
    breakdown = Breakdown("worker", (a_group(WEB, FAILED=3), a_group(None, PENDING=1)), 2, 4)
    page = TaskListPage((a_task(),), 1, 0, 100, next_cursor="x")
    tables = [
        view_workers.workers([a_worker(), a_dead_worker()], width, NOW),
        view_workflows.runs([a_run()], width, NOW),
        view_tasks.groups(breakdown, "nobody", view_tasks.page_of(page, 1, width, NOW), width),
    ]
    rows = [
        *(row for head, rows in tables for row in (ListRow(head), *rows)),
        *view_workers.worker_detail(a_worker(), width, NOW),
        *view_tasks.task_detail(a_detail(), why_it_waits(), width, NOW),
        *view_workflows.run_detail(a_run_detail(), frozenset({1}), "", width, NOW),
        *view_workflows.node_detail(a_node_detail(), None, width, NOW),
        *view_maintenance.maintenance([a_worker(), a_dead_worker()], {DEAD: 2}, [], [a_schedule()], width, NOW),
        *(ListRow(one) for one in view_workers.history(a_worker(), points(), "1h", NOW, width, 12)),
        *(ListRow(one) for one in view_edges.notice(("gone", 3), 4, width)),
        ListRow(view_edges.tab_bar(["Dashboard", "Workers", "Tasks"], 1, ALERTS, NOW, width)),
        ListRow(view_edges.hints(None, [], "", width)),
        ListRow(view_edges.crumbs("Tasks", ["task 7" * 40], width)),
    ]
    assert [plain(row.line) for row in rows if width_of(row.line) > width] == []


def test_m80_the_dashboard_has_workers_capacity_states_workflows_trend_and_alerts() -> None:
    rows = view_dashboard.dashboard(a_snapshot(), ALERTS, TREND, 100, NOW)
    text = text_of(rows)
    assert "Workers     1 live, running 3, claimed 1" in text
    assert "Capacity    75% utilization  ███████████████░░░░░  3 of 4 processes busy" in text
    assert "Workflows   1 paused, 2 running" in text
    assert "Schedules   1 active, next nightly in 15 h" in text
    assert "Throughput  240 tasks ended in the last minute" in text
    assert "COMPLETED  4,900  ██████" in text and "PENDING       12  █" in text
    assert "Running tasks, last hour" in text and "now 2" in text
    assert "!! queue mail: 3 tasks due" in text
    assert [row.key for row in rows if row.key] == ["alert:no worker:mail", "queue:default", "queue:mail"]


def test_m80_a_dashboard_of_an_empty_database() -> None:
    empty = a_snapshot(queues=(), task_counts=(), workers=(), schedules=(), workflow_counts={})
    text = text_of(view_dashboard.dashboard(empty, [], Trend({}), 80, NOW))
    assert "Workers     0 live" in text and "Capacity    none" in text and "Alerts  none" in text
    assert "Workflows   none open" in text and "Queues  none" in text and "no live worker has reported" in text


def test_m80_what_could_not_be_read_is_not_zero() -> None:
    partly = a_snapshot(missing={"workers": "slow", "ended": "slow", "workflows": "slow"}, workers=())
    text = text_of(view_dashboard.dashboard(partly, [], None, 80, NOW))
    assert "Workers     not read" in text and "Workflows   not read" in text and "Throughput  not read" in text
    assert "FAILED         ?" in text and "PENDING       12" in text


def test_m80_estimates_are_marked() -> None:
    snapshot = a_snapshot(queues=(a_queue(waiting=123_456, due=1, is_exact=False, live_workers=0),))
    text = text_of(view_dashboard.dashboard(snapshot, [], None, 120, NOW))
    assert "~120,000" in text and "none" in text.splitlines()[-1], "nobody serves it"


def test_m80_the_trend_is_the_sum_of_all_workers() -> None:
    both = Trend({"a": points(), "b": points()}, left_out=3)
    one = view_dashboard.together(TREND, NOW, timedelta(hours=1), 60)
    assert view_dashboard.together(both, NOW, timedelta(hours=1), 60) == [None if v is None else 2 * v for v in one]
    assert "without 3 workers" in plain(view_dashboard.last_hour(both, NOW, 60)[0])


def test_m80_workers_show_what_they_do() -> None:
    head, rows = view_workers.workers([a_worker(), a_dead_worker(processes=None, tasks_running=None)], 100, NOW)
    words = plain(head).split()
    assert words[:9] == ["Host", "pid", "state", "slots", "running", "claimed", "cpu", "memory", "uptime"]
    assert plain(rows[0].line).split()[:6] == ["web-1", "4242", "live", "4", "3", "1"]
    assert "silent" in plain(rows[1].line) and rows[1].key == DEAD


def test_m80_the_history_has_the_windows_of_the_contract() -> None:
    assert list(view_workers.WINDOWS) == ["5m", "30m", "1h", "6h", "24h"]
    found = view_workers.history(a_worker(), points(), "1h", NOW, 80, 11)
    assert len(found) == 11 and "[1h]" in plain(found[0]) and plain(found[-1]).split() == ["-1h", "now"]
    assert [plain(one).split()[0] for one in found[1:-1:3]] == ["running", "cpu", "memory"]
    assert len(view_workers.history(a_worker(), points(), "1h", NOW, 80, 4)) == 1, "too little room for charts"


def test_m80_tasks_are_grouped_by_worker() -> None:
    breakdown = Breakdown("worker", (a_group(WEB, RUNNING=1, FAILED=2), a_group(None, PENDING=9)), 5, 12)
    head, rows = view_tasks.groups(breakdown, "nobody", [ListRow((), "inside")], 100)
    assert plain(head).split() == ["Worker", "tasks", "pending", "running", "failed"], "states that occur"
    assert [row.key for row in rows] == [f"worker:{WEB}", "nobody", "inside", None]
    assert plain(rows[0].line).startswith("+ ") and plain(rows[1].line).startswith("- (not claimed yet)")
    assert "3 more workers" in plain(rows[-1].line)


def test_m80_a_page_leads_to_the_pages_around_it() -> None:
    first = TaskListPage((a_task(),), 3, 0, 1, next_cursor="c")
    assert [row.key for row in view_tasks.page_of(first, 0, 80, NOW) if row.key] == [a_task().task_id, "page:next"]
    last = replace(first, next_cursor=None)
    assert [row.key for row in view_tasks.page_of(last, 2, 80, NOW) if row.key] == ["page:previous", a_task().task_id]
    partial = view_tasks.page_of(replace(first, items=(), is_partial=True), 0, 80, NOW)
    assert "look further" in text_of(partial)
    end = view_tasks.page_of(replace(first, is_partial=True, next_cursor=None), 0, 80, NOW)
    assert "choose a state" in text_of(end)
    assert "no tasks" in text_of(view_tasks.page_of(replace(last, items=()), 0, 80, NOW))


def test_m81_a_key_of_a_state_chooses_adds_and_takes_away() -> None:
    failed, running = TaskStatus.FAILED, TaskStatus.RUNNING
    assert view_tasks.toggled(None, failed) == {failed}
    assert view_tasks.toggled(frozenset(), failed) == {failed}
    assert view_tasks.toggled(frozenset({failed}), running) == {failed, running}
    assert view_tasks.toggled(frozenset({failed, running}), failed) == {running}
    assert "failed, expired" not in plain(view_tasks.filter_line(None, "", None))
    chosen = frozenset({failed, TaskStatus.EXPIRED})
    assert ": failed, expired" in plain(view_tasks.filter_line(chosen, "", None))


def test_m80_a_task_is_shown_in_full() -> None:
    text = text_of(view_tasks.task_detail(a_detail(), None, 80, NOW))
    for said in ("mail.send  FAILED", "retries  1 of 3", '{"to": "someone@example.org"}', "the mailbox is full"):
        assert said in text
    assert text.index("Attempt") > text.index("message") and text.count("MAILBOX_FULL") >= 3


def test_m80_a_task_that_waits_says_why() -> None:
    waiting = a_detail(status=TaskStatus.PENDING, result=None, error_code=None, attempts=(), ended_at=None)
    text = text_of(view_tasks.task_detail(waiting, why_it_waits(), 80, NOW))
    assert "IN_LINE\n  3 due tasks of its queue come before it" in text
    assert "IN_LINE" not in text_of(view_tasks.task_detail(a_detail(), why_it_waits(), 80, NOW)), "it has ended"


def test_m80_workflows_have_their_progress() -> None:
    _, rows = view_workflows.runs([a_run(), a_run("b", nodes=None), a_run("c", nodes_ended=None)], 100, NOW)
    assert "█████░░░░░ 3/6" in plain(rows[0].line) and "/6" not in plain(rows[1].line) and "?/6" in plain(rows[2].line)
    done = a_run(status=WorkflowStatus.COMPLETED, nodes_ended=6)
    assert plain(view_workflows.progress(done)) == "██████████ 6/6"


def test_m80_a_workflow_has_its_nodes_and_folded_maps() -> None:
    folded = text_of(view_workflows.run_detail(a_run_detail(), frozenset(), "", 100, NOW))
    assert "+ items" in folded and "map 2/3" in folded and "items[1]" not in folded
    opened = view_workflows.run_detail(a_run_detail(), frozenset({1}), "", 100, NOW)
    assert [row.key for row in opened if row.key] == [f"node:{index}" for index in (0, 1, 3, 4, 5, 2)]
    assert "SOLD_OUT" in text_of(opened) and "items" in text_of(opened).splitlines()[-1], "ship comes after items"
    found = view_workflows.run_detail(a_run_detail(), frozenset(), "[1]", 100, NOW)
    assert [row.key for row in found if row.key] == ["node:4"], "what is folded is found"


def test_m80_a_very_wide_workflow_is_laid_out_in_part() -> None:
    many = tuple(replace(NODES[0], task_index=index, node_id=f"n{index}") for index in range(3_000))
    rows = view_workflows.run_detail(a_run_detail(nodes=many, total_nodes=20_000), frozenset(), "", 80, NOW)
    assert len([row for row in rows if row.key]) == view_workflows.MOST_NODES
    assert "19,000 more nodes" in plain(rows[-1].line)


def test_m80_a_node_shows_its_task_or_why_it_waits() -> None:
    text = text_of(view_workflows.node_detail(a_node_detail(), None, 80, NOW))
    assert "charge  COMPLETED" in text and "its task" in text and '{"order": 7}' in text
    waiting = replace(NODES[0], status=WorkflowTaskStatus.PENDING)
    text = text_of(view_workflows.node_detail(a_node_detail(waiting, task=None), why_it_waits(), 80, NOW))
    assert "IN_LINE" in text and "its task" not in text


def test_m80_maintenance_names_dead_workers_and_what_they_hold() -> None:
    workers = [a_worker(), a_dead_worker()]
    dead = view_maintenance.dead_workers(workers, {WEB: 3, DEAD: 2, "gone:1:0": 4})
    assert [(one.worker_id, one.held, one.row is None) for one in dead] == [(DEAD, 2, False), ("gone:1:0", 4, True)]
    text = text_of(view_maintenance.maintenance(workers, {DEAD: 2}, [], [a_schedule()], 100, NOW))
    assert "2 tasks" in text and "6 min" in text and "nightly" in text and "in 15 h" in text


def test_m80_maintenance_shows_the_ages_of_reports() -> None:
    assert [plain(view_maintenance.report_age(one, NOW)) for one in (a_worker(), a_worker(snapshot_at=None))] == [
        "20 s ago",
        "none yet",
    ]
    [old] = view_maintenance.report_age(a_worker(snapshot_at=ago(minutes=3)), NOW)
    assert old.tone == "warn"


def test_m80_schedules_in_words() -> None:
    never = a_schedule(next_run_at=NOW.replace(year=9999))
    schedules = [a_schedule(), a_schedule(paused=True), a_schedule(lag_seconds=200.0), a_schedule(is_active=False)]
    assert [plain(view_maintenance.schedule_state(one)) for one in schedules] == [
        "active", "paused", "3 min late", "not active here",
    ]  # fmt: skip
    assert [view_maintenance.next_run(one, NOW) for one in (a_schedule(), never)] == ["in 15 h", ""]


def test_m80_the_bar_of_tabs_shrinks_and_always_says_which_is_active() -> None:
    titles = ["Dashboard", "Workers", "Tasks", "Workflows", "Maintenance"]
    shown = {width: plain(view_edges.tab_bar(titles, 3, ALERTS, NOW, width)) for width in (80, 60, 40, 20)}
    assert "[4 Workflows]" in shown[80] and shown[80].endswith("!1 12:00:00Z")
    assert "[4 Flows]" in shown[60] and "[4 Workflows]" in shown[40] and "[4]" in shown[20]


def test_m80_a_notice_says_why_for_how_long_and_how_old_the_values_are() -> None:
    first, second = (plain(one) for one in view_edges.notice(("connection refused\nat all", 75.0), 80.0, 100))
    assert "for 1 min 15 s" in first and "values are 1 min old" in first and "trying again" in first
    assert "connection refused at all" in second
    assert "nothing is known yet" in plain(view_edges.notice(("x", 1.0), None, 100)[0])
    assert view_edges.notice(None, 3.0, 100) == []


def test_m80_hostile_texts_of_rows_are_shown_and_not_obeyed() -> None:
    detail = a_detail(
        task_name=LONG, queue_name=SHORT, kwargs=f'["{LONG!r}', result=LONG, failed_reason=LONG, error_code=SHORT,
        attempts=(an_attempt(error_message=LONG, worker_id=SHORT),),
    )  # fmt: skip
    rows = [
        *view_tasks.task_detail(detail, replace(why_it_waits(), message=LONG), 60, NOW),
        *view_workers.workers([a_worker(SHORT, hostname=LONG, queues=(LONG,))], 100, NOW)[1],
        *view_workflows.runs([a_run(SHORT, name=LONG, error_code=SHORT)], 100, NOW)[1],
        *view_dashboard.dashboard(
            a_snapshot(queues=(a_queue(LONG),)), [Alert("bad", LONG, LONG, LONG)], TREND, 80, NOW
        ),
    ]
    assert obeyed(text_of(rows)) == set()
    assert [plain(row.line) for row in rows if "\n" in plain(row.line)] == []


def test_m80_what_a_task_has_logged_is_below_it() -> None:
    text = text_of(list(view_tasks.logged(FixedSource().the_log, 60)))
    assert "log\n  11:58:50Z INFO    connecting\n  … 3 lines are missing here\n" in text
    assert "11:58:51Z WARNING the mailbox is full\n    its size is 2000" in text
    hostile = [replace(FixedSource().the_log[0], text=LONG, level=SHORT)]
    assert obeyed(text_of(list(view_tasks.logged(hostile, 60)))) == set()
    assert list(view_tasks.logged([], 60)) == []
