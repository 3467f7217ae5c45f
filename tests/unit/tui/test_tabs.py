"""Which tab is in front, what is opened above it, what it asks, and what keys do (M-80, M-81), without a screen."""

from __future__ import annotations

from horsies.core.types.status import TaskStatus
from horsies.tui.details import NodeView, RunView, TaskView, WorkerView
from horsies.tui.lines import ListRow, plain
from horsies.tui.tabs import Desk, TasksTab, WorkersTab
from horsies.tui.views import FactsView, Room, Screenful, View
from tests.each import each
from tests.tui_support import DEAD, NOW, RUN, TASK, WEB, FixedSource, a_snapshot, a_still_clock

ROOM = Room(100, 30)


class Person:
    """Somebody at the desk: everything that is wanted has been asked when they look."""

    def __init__(self, source: FixedSource | None = None) -> None:
        self.source = source or FixedSource()
        self.desk = Desk(self.source, a_still_clock())

    async def look(self) -> Screenful:
        for _ in range(3):  # an answer may lead to another question
            for poll in self.desk.polls():
                if poll.is_due(0.0) or poll.value is None:
                    await poll.ask(lambda: 0.0)
        return self.desk.view.frame(ROOM, NOW)

    async def text(self) -> str:
        frame = await self.look()
        lines = [*frame.heads, *(row.line for row in frame.rows), *frame.below]
        return "\n".join(plain(one) for one in lines)

    async def go(self, tab: int) -> Screenful:
        self.desk.go(tab - 1)
        return await self.look()

    async def enter(self, key: str) -> View:
        """Select the row and press Enter."""
        row = self.row(await self.look(), key)
        self.desk.view.selected = key
        self.desk.open(self.desk.view.enter(row))
        await self.look()
        return self.desk.view

    @staticmethod
    def row(frame: Screenful, key: str) -> ListRow:
        return next(row for row in frame.rows if row.key == key)


async def test_m80_only_what_is_in_front_is_asked() -> None:
    person = Person()
    await person.go(4)
    assert {question[0] for question in person.source.asked} == {"runs"}
    await person.go(2)
    assert {question[0] for question in person.source.asked} == {"runs", "history"}


@each(
    ("tab", "said"),
    [(1, "75% utilization"), (2, "web-2"), (3, "(not claimed yet)"), (4, "order"), (5, "Dead workers")],
)
async def test_m80_each_tab_shows_its_own(tab: int, said: str) -> None:
    person = Person()
    person.desk.go(tab - 1)
    assert said in await person.text()


async def test_m80_the_trend_is_asked_for_live_workers_once_they_are_known() -> None:
    person = Person()
    await person.look()
    assert ("trend", WEB) in person.source.asked and DEAD not in str(person.source.asked)


async def test_m81_brackets_change_the_window_and_stop_at_the_ends() -> None:
    person = Person()
    await person.go(2)
    tab = person.desk.view
    assert isinstance(tab, WorkersTab)
    seen = [tab.history.window]
    for key in ("]", "]", "]", "]", "[", "[", "[", "[", "["):
        assert tab.press(key)
        seen.append(tab.history.window)
        await person.look()
    assert seen == ["30m", "1h", "6h", "24h", "24h", "6h", "1h", "30m", "5m", "5m"]
    windows = [question[2] for question in person.source.asked if question[0] == "history"]
    assert windows == [1_800.0, 3_600.0, 21_600.0, 86_400.0, 21_600.0, 3_600.0, 1_800.0, 300.0]


async def test_m80_the_charts_are_those_of_the_selected_worker() -> None:
    person = Person()
    await person.go(2)
    person.desk.view.selected = DEAD
    await person.look()
    assert person.source.asked[-1][:2] == ("history", DEAD)
    view = await person.enter(DEAD)
    assert isinstance(view, WorkerView) and "silent" in await person.text()


async def test_m80_a_worker_opens_its_tasks_and_a_task_its_detail() -> None:
    person = Person()
    await person.go(3)
    assert await person.enter(f"worker:{WEB}") is person.desk.tabs[2]
    assert TASK in [row.key for row in (await person.look()).rows] and ("page", WEB, None) in person.source.asked
    assert isinstance(await person.enter(TASK), TaskView)
    assert person.desk.trail == [f"task {TASK}"] and "MAILBOX_FULL" in await person.text()
    assert person.desk.back() and person.desk.view is person.desk.tabs[2]
    await person.enter("nobody")
    assert ("page", None, None) in person.source.asked
    await person.enter("nobody")
    assert TASK not in [row.key for row in (await person.look()).rows], "it is closed again"


async def test_m80_pages_of_tasks_go_forth_and_back() -> None:
    person = Person(FixedSource(cursors={None: "one", "one": "two", "two": None}))
    await person.go(3)
    await person.enter(f"worker:{WEB}")
    await person.enter("page:next")
    await person.enter("page:next")
    assert "page:next" not in [row.key for row in (await person.look()).rows], "there is no other"
    await person.enter("page:previous")
    pages = [question[2] for question in person.source.asked if question[0] == "page"]
    assert pages == [None, "one", "two", "one"]


async def test_m81_keys_filter_tasks_by_state() -> None:
    person = Person()
    await person.go(3)
    tab = person.desk.view
    assert isinstance(tab, TasksTab)
    for key, chosen in (
        ("f", {TaskStatus.FAILED}),
        ("u", {TaskStatus.FAILED, TaskStatus.RUNNING}),
        ("f", {TaskStatus.RUNNING}),
        ("a", None),
        ("n", set()),
        ("p", {TaskStatus.PENDING}),
        ("c", {TaskStatus.PENDING, TaskStatus.CLAIMED}),
        ("o", {TaskStatus.PENDING, TaskStatus.CLAIMED, TaskStatus.COMPLETED}),
    ):
        assert tab.press(key) and tab.chosen == chosen
        await person.look()
    asked = [question[1] for question in person.source.asked if question[0] == "groups"]
    assert asked[1] == {TaskStatus.FAILED} and asked[4] == frozenset() and len(asked) == 8, "none is not asked"
    assert not tab.press("z")


async def test_m81_with_no_state_nothing_is_shown_or_asked() -> None:
    person = Person()
    await person.go(3)
    person.desk.view.press("n")
    assert person.desk.view.polls() == () and "no state is chosen" in await person.text()


async def test_m81_a_filter_keeps_the_open_group_open() -> None:
    person = Person()
    await person.go(3)
    await person.enter(f"worker:{WEB}")
    person.desk.view.press("f")
    assert TASK in [row.key for row in (await person.look()).rows]


async def test_m81_a_search_for_tasks_is_made_in_the_database() -> None:
    person = Person()
    await person.go(3)
    assert person.desk.view.find("mail") is None
    assert 'task name contains "mail": mail.send' in await person.text()
    assert person.source.asked[-1] == ("groups", frozenset(), "mail")
    person.desk.view.find("xyz")
    assert '"xyz" is in no task name' in await person.text()
    assert person.desk.back() and person.desk.view.search == "", "Esc forgets a search"
    assert not person.desk.back()


async def test_m81_an_id_opens_what_it_is_of() -> None:
    person = Person()
    await person.go(3)
    assert isinstance(person.desk.view.find(f" {TASK.upper()} "), TaskView)
    await person.go(4)
    assert isinstance(person.desk.view.find(RUN), RunView)


async def test_m81_other_tabs_search_in_what_they_show() -> None:
    person = Person()
    await person.look()
    person.desk.view.find("mail")
    keys = [row.key for row in (await person.look()).rows if row.key]
    assert keys == ["queue:mail"]
    person.desk.view.find("nothing at all")
    assert 'nothing contains "nothing at all"' in await person.text()
    await person.go(4)
    person.desk.view.find("import")
    assert "import" in await person.text() and "order" not in await person.text()


async def test_m80_a_workflow_opens_nodes_maps_and_children() -> None:
    person = Person()
    await person.go(4)
    assert isinstance(await person.enter(RUN), RunView)
    await person.enter("node:1")
    assert isinstance(person.desk.view, RunView) and "items[1]" in await person.text(), "a map is unfolded"
    assert isinstance(await person.enter("node:4"), NodeView)
    person.desk.back()
    child = await person.enter("node:2")
    assert isinstance(child, RunView) and person.source.asked[-1] == ("run", "the-child")
    assert person.desk.trail == [f"workflow {RUN}", "workflow the-child"]


async def test_m80_what_does_not_exist_is_said() -> None:
    person = Person(FixedSource(the_task=None, the_run=None))
    await person.go(3)
    person.desk.open(person.desk.view.find(TASK))
    assert f"there is no task {TASK}" in await person.text()
    assert person.desk.view.value(None) is None
    await person.go(4)
    person.desk.open(person.desk.view.find(RUN))
    assert f"there is no workflow {RUN}" in await person.text()


async def test_m81_every_tab_gives_its_values_for_a_copy() -> None:
    person = Person()
    for tab, key in ((1, "queue:mail"), (2, WEB), (3, f"worker:{WEB}"), (4, RUN), (5, f"dead:{DEAD}")):
        frame = await person.go(tab)
        assert person.desk.view.value(person.row(frame, key)) is not None, tab
    await person.go(1)
    assert person.desk.view.value(None) == a_snapshot(), "nothing is selected: all of it"


async def test_m80_rows_of_dashboard_and_maintenance_open_their_facts() -> None:
    person = Person()
    assert isinstance(await person.enter("queue:mail"), FactsView)
    assert "max concurrency" in await person.text()
    await person.go(5)
    assert isinstance(await person.enter(f"registry:{WEB}"), FactsView)
    person.desk.back()
    await person.enter("schedule:nightly")
    assert "run count" in await person.text()


async def test_m81_the_help_has_every_key_and_closes_again() -> None:
    person = Person()
    person.desk.help()
    text = await person.text()
    for key in ("1 2 3 4 5", "/", "?", " r ", " t ", " q", "Esc", "Enter", "[ ]", " y ", "p c u o f", " a ", " n "):
        assert key in text, key
    person.desk.help()
    assert person.desk.trail == []


async def test_m80_each_tab_keeps_what_was_opened_in_it() -> None:
    person = Person()
    await person.go(4)
    await person.enter(RUN)
    await person.go(1)
    assert person.desk.trail == []
    await person.go(4)
    assert person.desk.trail == [f"workflow {RUN}"]


async def test_m80_an_empty_database_is_shown_as_such() -> None:
    empty = a_snapshot(queues=(), task_counts=(), workers=(), schedules=(), workflow_counts={})
    person = Person(FixedSource(empty, the_workers=(), the_groups=(), the_runs=()))
    for tab, said in (
        (1, "Queues  none"),
        (2, "no worker is registered"),
        (3, "no tasks"),
        (4, "no workflows"),
        (5, "no schedule is known"),
    ):
        person.desk.go(tab - 1)
        assert said in await person.text(), tab


async def test_m80_a_log_is_read_on_from_where_it_was_read_to() -> None:
    person = Person()
    await person.go(3)
    person.desk.open(person.desk.view.find(TASK))
    assert "the mailbox is full" in await person.text()
    person.desk.view.polls()[-1].hurry()
    await person.look()
    assert [question[2] for question in person.source.asked if question[0] == "logs"] == [0, 2]
    assert (await person.text()).count("connecting") == 1


async def test_m80_behind_other_tabs_the_snapshot_is_asked_less_often() -> None:
    person = Person()
    await person.look()
    snapshot = person.desk.overview.snapshot
    assert snapshot.is_due(3.0)
    person.desk.go(3)
    assert not snapshot.is_due(3.0) and snapshot.is_due(11.0)
