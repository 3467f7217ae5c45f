"""Timelines: when the nodes of a workflow, or the attempts of a task, waited and ran.

Each row has a name and spans. What has not ended reaches to the line that marks the present. Times may be missing: a
span without a start is not drawn, and one that ends before it starts is a point.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from horsies.core.models.monitoring.tasks import TaskDetail, WorkflowNodeInfo, WorkflowRunDetail
from horsies.core.models.tasks import TaskAttemptInfo
from horsies.core.types import TaskStatus
from horsies.web.svg import states
from horsies.web.svg.markup import Svg, label, number, picture, relative, tag, text, text_width
from horsies.web.svg.scales import elapsed, human_seconds, in_utc, seconds_between, ticks

MOST_ROWS = 60
WIDTH = 960.0
NAMES = 200.0  # the width of the column of names
RIGHT = 36.0
ROW = 24.0
BAR = 14.0
TOP = 26.0
SIZE = 11.0

SpanKind: TypeAlias = Literal["waiting", "retrying", "running", "ahead"]
_WAITED = ("waiting", "retrying")
_OPEN = ("RUNNING", "CLAIMED", "ENQUEUED", "READY", "PENDING")


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A part of a row. Without an end it is still going on; `ahead` is what has not come yet."""

    kind: SpanKind
    start: datetime | None
    end: datetime | None
    status: str = ""


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A node or an attempt."""

    label: str
    spans: tuple[TimelineSpan, ...]
    status: str
    href: str | None = None
    note: str = ""


def rows_of_run(run: WorkflowRunDetail, href: Callable[[int], str | None] | None = None) -> list[TimelineRow]:
    """A row for each node of a workflow; `href` makes the address of a node from its index."""
    return [
        TimelineRow(
            node.node_id, _spans_of(node), str(node.status), href and href(node.task_index), node.error_code or ""
        )
        for node in run.nodes
    ]


def _spans_of(node: WorkflowNodeInfo) -> tuple[TimelineSpan, ...]:
    status = str(node.status)
    is_open = status in _OPEN
    asked = node.ready_at or node.enqueued_at
    began = node.started_at
    spans = []
    if asked is not None:
        spans.append(TimelineSpan("waiting", asked, began or node.completed_at or (None if is_open else asked)))
    if began is not None:
        spans.append(TimelineSpan("running", began, node.completed_at or (None if is_open else began), status))
    return tuple(spans)


def rows_of_task(task: TaskDetail, now: datetime) -> list[TimelineRow]:
    """A row for each attempt of a task, and one for what goes on now, or for how it ended without an attempt that was
    written down: a task that is cancelled while it runs has none."""
    rows: list[TimelineRow] = []
    attempts = sorted(task.attempts, key=lambda one: one.attempt)
    since = _first_due(task, attempts)
    for attempt in attempts:
        rows.append(_attempt_row(attempt, since, is_first=not rows))
        since = attempt.finished_at or attempt.started_at or since
    if not task.status.is_terminal:
        rows.append(_present_row(task, since, len(rows) + 1, now))
    elif (last := _unwritten_row(task, attempts, since)) is not None:
        rows.append(last)
    return rows


def _first_due(task: TaskDetail, attempts: Sequence[TaskAttemptInfo]) -> datetime | None:
    """Since when it waited for its first attempt. A retry writes its own time over the first one."""
    began = (attempts[0].started_at or attempts[0].finished_at) if attempts else task.started_at or task.ended_at
    due = task.enqueued_at or task.sent_at
    return task.sent_at if began is not None and due is not None and in_utc(due) > in_utc(began) else due


def _attempt_row(attempt: TaskAttemptInfo, since: datetime | None, *, is_first: bool) -> TimelineRow:
    status = "COMPLETED" if attempt.outcome == "COMPLETED" else "FAILED"
    began, ended = attempt.started_at, attempt.finished_at
    waited = TimelineSpan("waiting" if is_first else "retrying", since, began or ended or since)
    ran = TimelineSpan("running", began or ended, ended or began, status)
    return TimelineRow(f"attempt {attempt.attempt}", (waited, ran), status, note=attempt.error_code or "")


def _present_row(task: TaskDetail, since: datetime | None, number: int, now: datetime) -> TimelineRow:
    name, status = f"attempt {number}", str(task.status)
    kind: SpanKind = "waiting" if number == 1 else "retrying"
    if task.status is TaskStatus.RUNNING and task.started_at is not None:
        ran = TimelineSpan("running", task.started_at, None, status)
        return TimelineRow(name, (TimelineSpan(kind, since, task.started_at), ran), status)
    due = max((in_utc(one) for one in (task.enqueued_at, task.next_retry_at) if one is not None), default=None)
    if due is None or due <= in_utc(now):
        return TimelineRow(name, (TimelineSpan(kind, since, None),), status)
    waited = TimelineSpan(kind, task.sent_at if number == 1 else since, now)
    return TimelineRow(name, (waited, TimelineSpan("ahead", now, due)), status)


def _unwritten_row(task: TaskDetail, attempts: Sequence[TaskAttemptInfo], since: datetime | None) -> TimelineRow | None:
    status, began = str(task.status), task.started_at
    kind: SpanKind = "retrying" if attempts else "waiting"
    if began is not None and not any(_is_of(attempt, began) for attempt in attempts):
        ran = TimelineSpan("running", began, task.ended_at or began, status)
        name = f"attempt {attempts[-1].attempt + 1 if attempts else 1}"
        return TimelineRow(name, (TimelineSpan(kind, since, began), ran), status, note=task.error_code or "")
    has_waited_again = began is None and task.status in (TaskStatus.CANCELLED, TaskStatus.EXPIRED)
    if attempts and not has_waited_again:
        return None
    return TimelineRow("waited", (TimelineSpan(kind, since, task.ended_at or since),), status)


def _is_of(attempt: TaskAttemptInfo, began: datetime) -> bool:
    """Whether this attempt is the run that began then."""
    known = (attempt.started_at, attempt.finished_at)
    return any(time is not None and in_utc(time) >= in_utc(began) for time in known)


def timeline_svg(
    rows: Iterable[TimelineRow],
    *,
    title: str,
    now: datetime,
    most_rows: int = MOST_ROWS,
    prefer: Literal["urgent", "last"] = "urgent",
) -> Svg:
    """The picture of the rows, in the order of their starts. If there are too many, the urgent ones (failed, running)
    and the longest are shown, or the last ones."""
    everything = list(rows)
    drawn = [one for row in everything if (one := _drawn(row, now)) is not None]
    if not drawn:
        return _nothing(title, everything)
    shown = _chosen(drawn, most_rows, prefer)
    scale = _Scale(shown)
    height = TOP + ROW * len(shown) + 8
    parts = [_axis(scale, height), *(_row(one, scale, TOP + ROW * at) for at, one in enumerate(shown))]
    remarks = _remarks(len(drawn) - len(shown), len(everything) - len(drawn))
    if any(one.is_open for one in shown):
        parts.append(_now(scale, seconds_between(scale.start, now), height))
    if remarks:
        parts.append(label(remarks, {"class": "detail", "x": 8.0, "y": height + 10}, WIDTH - 16, SIZE))
        height += 20
    size = {"viewBox": f"0 0 {number(WIDTH)} {number(height)}", "preserveAspectRatio": "xMinYMin meet"}
    words = _described(drawn, shown, scale, remarks)
    has_links = any(relative(one.row.href) for one in shown)
    return picture({"class": "timeline", **size, "font-size": SIZE}, title, words, *parts, has_links=has_links)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A row whose times are known: its spans with a start and an end each."""

    row: TimelineRow
    spans: tuple[tuple[TimelineSpan, datetime, datetime], ...]
    is_open: bool

    @property
    def start(self) -> datetime:
        return min(start for _, start, _ in self.spans)

    @property
    def end(self) -> datetime:
        return max(end for _, _, end in self.spans)

    @property
    def running(self) -> float:
        return sum(seconds_between(start, end) for span, start, end in self.spans if span.kind == "running")


def _drawn(row: TimelineRow, now: datetime) -> _Drawn | None:
    spans = []
    for span in row.spans:
        if span.start is not None:
            start = in_utc(span.start)
            spans.append((span, start, max(start, in_utc(span.end or now))))
    is_open = any(span.end is None or span.kind == "ahead" for span, _, _ in spans)
    return _Drawn(row, tuple(spans), is_open) if spans else None


def _chosen(drawn: Sequence[_Drawn], most: int, prefer: str) -> list[_Drawn]:
    """As many rows as fit, in the order of their starts; rows that start together stay in the order they came in."""
    if prefer == "last":
        kept = list(range(len(drawn)))[-max(1, most) :]
    else:
        ranked = sorted(range(len(drawn)), key=lambda at: (_rank(drawn[at]), -drawn[at].running, at))
        kept = sorted(ranked[: max(1, most)])
    return sorted((drawn[at] for at in kept), key=lambda one: one.start)


def _rank(one: _Drawn) -> int:
    return 0 if one.row.status == states.FAILED else 1 if one.row.status == "RUNNING" else 2


class _Scale:
    """From times to places: the first start is at the left, the last end at the right."""

    def __init__(self, shown: Sequence[_Drawn]) -> None:
        self.start = min(one.start for one in shown)
        self.span = max(seconds_between(self.start, max(one.end for one in shown)), 0.001)

    def x(self, seconds: float) -> float:
        return NAMES + (WIDTH - NAMES - RIGHT) * min(1.0, max(0.0, seconds / self.span))

    def at(self, time: datetime) -> float:
        return self.x(seconds_between(self.start, time))


def _axis(scale: _Scale, height: float) -> Svg:
    parts = []
    for tick in ticks(scale.span):
        x = scale.x(tick)
        parts.append(tag("path", {"class": "tick", "d": f"M{number(x)} {number(TOP - 4)}V{number(height - 4)}"}))
        spot = {"class": "tick-label", "x": x, "y": TOP - 10, "text-anchor": "middle"}
        parts.append(tag("text", spot, text(elapsed(tick))))
    return tag("g", {"class": "axis"}, *parts)


def _now(scale: _Scale, seconds: float, height: float) -> Svg:
    x = scale.x(seconds)
    line = tag("path", {"class": "now", "d": f"M{number(x)} {number(TOP - 4)}V{number(height - 4)}"})
    words = tag("text", {"class": "now-label", "x": x + 3, "y": TOP + 2, "font-size": 9.5}, text("now"))
    return tag("g", {}, line, words)


def _row(one: _Drawn, scale: _Scale, y: float) -> Svg:
    row = one.row
    name = (
        states.sign(row.status, 12, y + ROW / 2),
        label(row.label, {"class": "name", "x": 24.0, "y": y + ROW / 2 + 4}, NAMES - 34, SIZE),
    )
    address = relative(row.href)
    head = tag("a", {"href": address}, *name) if address else Svg("".join(name))
    bars = [_bar(span, scale.at(start), scale.at(end), y) for span, start, end in one.spans]
    tip = tag("title", {}, text(_row_in_words(one)))
    return tag("g", {"class": f"row {states.status_class(row.status)}"}, tip, head, *bars, *_length(one, scale, y))


def _bar(span: TimelineSpan, left: float, right: float, y: float) -> Svg:
    """Waiting is a thin line, running a full bar, so the two differ without their colours."""
    height = BAR if span.kind == "running" else BAR / 3
    kinds = f"span span-{span.kind}" + (" span-open" if span.end is None else "")
    width = max(2.0, right - left)
    place = {"x": min(left, WIDTH - RIGHT - width), "y": y + (ROW - height) / 2, "width": width, "height": height}
    return tag("rect", {"class": kinds, **place, "rx": 2})


def _length(one: _Drawn, scale: _Scale, y: float) -> tuple[Svg, ...]:
    """How long it ran, beside the bars where there is room."""
    words = human_seconds(one.running) if one.running else ""
    words = " ".join(part for part in (words, one.row.note[:40]) if part)
    left, right = scale.at(one.start), scale.at(one.end)
    needed = text_width(words, SIZE) + 6
    spot = {"class": "detail", "y": y + ROW / 2 + 4}
    if words and right + needed < WIDTH:
        return (label(words, {**spot, "x": right + 5}, needed, SIZE),)
    if words and left - needed > NAMES:
        return (label(words, {**spot, "x": left - 5, "text-anchor": "end"}, needed, SIZE),)
    return ()


def _row_in_words(one: _Drawn) -> str:
    waited = sum(seconds_between(start, end) for span, start, end in one.spans if span.kind in _WAITED)
    ahead = sum(seconds_between(start, end) for span, start, end in one.spans if span.kind == "ahead")
    parts = [one.row.status.lower() or "unknown", *([one.row.note[:80]] if one.row.note else [])]
    if waited:
        parts.append(f"waited {human_seconds(waited)}")
    if ahead:
        parts.append(f"due in {human_seconds(ahead)}")
    if any(span.kind == "running" for span, _, _ in one.spans):
        parts.append(f"ran {human_seconds(one.running)}" + (" so far" if one.is_open else ""))
    return f"{one.row.label[:120]}: {', '.join(parts)}"


def _remarks(more: int, not_started: int) -> str:
    return ", ".join(
        [*([f"{more:,} more not shown"] if more else []), *([f"{not_started:,} without times"] if not_started else [])]
    )


def _described(drawn: Sequence[_Drawn], shown: Sequence[_Drawn], scale: _Scale, remarks: str) -> str:
    start = scale.start.strftime("%Y-%m-%d %H:%M:%S")
    counts = states.in_words(states.counted(one.row.status for one in drawn))
    longest = max(shown, key=lambda one: one.running)
    found = f"From {start} UTC over {human_seconds(scale.span)}: {counts}."
    if longest.running:
        found += f" {longest.row.label[:80]} ran longest, {human_seconds(longest.running)}."
    return found + (f" {remarks}." if remarks else "")


def _nothing(title: str, rows: Sequence[TimelineRow]) -> Svg:
    words = "nothing has started" if rows else "no data"
    shown = tag("text", {"class": "no-data", "x": WIDTH / 2, "y": 34, "text-anchor": "middle"}, text(words))
    size = {"viewBox": f"0 0 {number(WIDTH)} 60", "preserveAspectRatio": "xMinYMin meet"}
    return picture({"class": "timeline", **size, "font-size": SIZE}, title, words, shown)
