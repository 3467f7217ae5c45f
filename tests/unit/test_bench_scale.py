"""The pure parts of `make bench ONLY=scale`: the selection, what a log says, the arithmetic, the page, the picture."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.__main__ import may_be_published, measure_part
from benchmarks.figures import GROUPS, USUAL, Bench
from benchmarks.report import Bar, Report, number
from benchmarks.scale import arithmetic, claims, fleet, looks, page
from benchmarks.scale.arithmetic import BEFORE, SPLIT, Load, load_of, measured
from benchmarks.scale.arithmetic import USUAL as ONE_WORKER_EACH
from benchmarks.scale.collect import joined
from benchmarks.scale.parts import PARTS
from benchmarks.scale.sizes import MEGABYTE, bulk
from benchmarks.scale.watch import read
from benchmarks.selection import chosen, whole_scale
from horsies.core.sql import load

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
GROUP_NAMES, PART_NAMES = ("drain", "idle", "graphs"), ("idle", "caps", "graphs")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("drain", ["drain"]),
        ("scale", ["scale.idle", "scale.caps", "scale.graphs"]),
        ("caps", ["scale.caps"]),
        ("scale.caps, drain", ["scale.caps", "drain"]),
        ("idle", ["idle"]),  # the group of this name is older
        ("scale.idle", ["scale.idle"]),
        ("caps,scale", ["scale.caps", "scale.idle", "scale.graphs"]),
        ("", []),
    ],
)
def test_only_selects_groups_and_parts_of_scale(text: str, names: list[str]) -> None:
    assert chosen(text, GROUP_NAMES, PART_NAMES) == names


def test_what_nobody_knows_is_named_beside_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"there is no cups, scale\.drain, but drain, .*scale, .*scale\.caps"):
        chosen("cups,caps,scale.drain", GROUP_NAMES, PART_NAMES)


def test_a_page_gets_all_of_its_figures_or_none() -> None:
    assert may_be_published(USUAL)
    assert may_be_published(whole_scale(PARTS))
    assert not may_be_published(whole_scale(PARTS)[1:])
    assert not may_be_published([*USUAL, *whole_scale(PARTS)])
    assert not may_be_published(["drain"])


def test_every_part_can_be_selected() -> None:
    for part in PARTS:
        assert chosen(f"scale.{part}", GROUPS, PARTS) == [f"scale.{part}"]


@pytest.mark.parametrize(
    ("value", "holds"),
    [(2.9, True), (3.0, True), (3.01, False)],
)
def test_at_most_allows_the_limit_itself(value: float, holds: bool) -> None:
    assert Bar(3, "at most").holds(value) is holds


@pytest.mark.parametrize(("value", "unit", "text"), [(3.5999, "/s", "3.60"), (1234.5, "/s", "1,234"), (5, "", "5")])
def test_numbers_of_other_units(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


LOG = """2026-01-01 a line from before
@~10|worker|LOG:  duration: 0.100 ms  parse _pg3_0: BEGIN
@~10|worker|LOG:  duration: 0.010 ms  statement: BEGIN
@~10|worker|LOG:  duration: 1.500 ms  bind _pg3_1: WITH due AS (SELECT id FROM horsies_tasks WHERE is_waiting)
UPDATE horsies_tasks t
SET status = 'CLAIMED', claim_seq = t.claim_seq + 1
@~10|worker|LOG:  duration: 2.250 ms  execute _pg3_1: WITH due AS (SELECT id FROM horsies_tasks WHERE is_waiting)
UPDATE horsies_tasks t
SET status = 'CLAIMED', claim_seq = t.claim_seq + 1
@~11|other|LOG:  duration: 0.300 ms  execute <unnamed>: SELECT 1 FROM horsies_tasks FOR UPDATE
@~10|worker|LOG:  duration: 0.200 ms  statement: INSERT INTO horsies_heartbeats VALUES (1)
@~11|other|LOG:  duration: 0.200 ms  statement: DELETE FROM horsies_heartbeats
@~10|worker|LOG:  duration: 0.400 ms  statement: COMMIT
@~12|me|LOG:  duration: 0.400 ms  statement: SELECT pg_reload_conf()
@~10|worker|ERROR:  something else
@~10|worker|LOG:  duration: 0.100 ms  statement: SET statement_timeout = 0
"""


def test_a_log_tells_statements_their_times_and_what_was_committed() -> None:
    found = read(LOG, without=[12])
    assert [(one.pid, one.session) for one in found.statements] == [
        (10, "worker"), (11, "other"), (10, "worker"), (11, "other")
    ]  # fmt: skip
    [claim] = found.claims
    assert claim.ms == pytest.approx(3.75)  # planning is in what `bind` took
    assert found.commits == 2  # the transaction of two writes, and the DELETE by itself; the SELECT wrote nothing


@pytest.mark.parametrize(
    ("text", "is_claim"),
    [
        (load("tasks/claim"), True),
        (load("tasks/claim", "starting"), True),
        (load("tasks/claim_expired"), False),
        (load("tasks/start"), False),
    ],
    ids=["claim", "claim and start", "search for lapsed claims", "start"],
)
def test_the_claims_of_a_log_are_found(text: str, is_claim: bool) -> None:
    found = read(f"@~1|w|LOG:  duration: 1 ms  execute x: {text}")
    assert len(found.statements) == 1 and bool(found.claims) == is_claim


def test_steps_of_a_fleet_and_of_a_table() -> None:
    assert fleet.steps(16) == [1, 2, 4, 8, 16]
    assert fleet.steps(6) == [1, 2, 4, 6]
    assert fleet.steps(1) == [1]
    assert list(looks.sizes(1_000, 1_000_000)) == [1_000, 10_000, 100_000, 1_000_000]
    assert list(looks.sizes(1_000, 2_500)) == [1_000, 2_500]
    assert sum(share for share, _ in looks.MIX) == pytest.approx(1.0)
    assert max(claims.QUEUES) == 1_000


def test_a_large_text_has_its_size_and_is_no_repetition() -> None:
    assert len(bulk()) == MEGABYTE and len(bulk(1_000)) == 1_000
    assert bulk()[:1_000] not in bulk()[1_000:]


EACH = arithmetic.PerWorker(
    connections=3,
    statements_per_s=0.5,
    core_percent=0.2,
    claims_alone=1.0,
    claims_of_fleet=16.0,
    fleet=16,
    notifications=2.0,
    snapshot_bytes=1_000,
    snapshot_bytes_many_queues=10_000,
)


def test_a_hundred_hosts_with_one_worker_each() -> None:
    assert load_of(ONE_WORKER_EACH, EACH) == Load(
        connections=300,
        idle_statements_per_s=50,
        idle_cores=0.2,
        claims_per_send=100,
        claims_per_s=100_000,
        notifications_per_s=2_000,
        heartbeat_rows_per_s=pytest.approx(3_200 / 30),  # type: ignore[arg-type]
        snapshot_mb_a_week=2_016,
        snapshot_mb_a_week_many_queues=20_160,
    )


def test_children_count_only_for_heartbeats() -> None:
    whole, split = load_of(ONE_WORKER_EACH, EACH), load_of(SPLIT, EACH)
    assert split.heartbeat_rows_per_s == whole.heartbeat_rows_per_s
    assert (whole.connections, split.connections) == (300, 9_600)


def test_a_fleet_that_wakes_one_worker_wakes_one_at_any_size() -> None:
    assert load_of(SPLIT, replace(EACH, claims_of_fleet=1.0)).claims_per_send == 1.0
    assert load_of(SPLIT, replace(EACH, claims_of_fleet=0.9)).claims_per_send == 1.0


def test_what_was_not_measured_is_not_computed() -> None:
    nothing = load_of(ONE_WORKER_EACH, measured(lambda _: None, 16))
    assert [one.name for one in fields(Load) if getattr(nothing, one.name) is not None] == ["heartbeat_rows_per_s"]
    assert "| connections | 300 | – |" in arithmetic.table(measured(lambda _: None, 16), EACH)


def a_report() -> Report:
    report = Report({"cores": "2"}, {"version": "18.1"})
    for key, value in (
        ("idle_connections", 3.0), ("idle_statements", 0.5), ("idle_cpu", 3.2), ("fleet_claims_1", 2.0),
        ("fleet_claims_16", 8.0), ("fleet_notifications", 2.0), ("snapshot_bytes_1", 1_000.0),
        ("snapshot_bytes_many", 10_000.0), ("drain", 12_000.0), ("cpu_postgres", 50.0),
    ):  # fmt: skip
        report.add(key, key, "", [value])
    return report


def test_the_figures_of_a_worker_come_from_the_report() -> None:
    found = measured(a_report().value_of, 16)
    assert found == replace(EACH, claims_alone=2.0, claims_of_fleet=16.0)


def test_what_was_measured_before_is_complete() -> None:
    assert all(getattr(BEFORE, one.name) is not None for one in fields(BEFORE))


def test_the_page_has_its_markers_and_gets_everything() -> None:
    once = page.written(PAGE.read_text(), a_report(), rows=1_000_000, workers=16)
    assert page.written(once, a_report(), rows=1_000_000, workers=16) == once
    assert "| rows of the largest table | 1,000,000 |" in once
    assert "| … so a core of the server carries at most | 20,000 tasks/s |" in once
    assert "| disk for a task, with its indexes | – |" in once
    assert "| drain | 12,000 |" in once
    assert once.count("| connections | ") == 1


def test_parts_that_were_measured_apart_are_joined() -> None:
    first, second = a_report(), Report({"cores": "2"}, {"version": "18.1"})
    second.add("drain", "drain again", "tasks/s", [9_000.0, 11_000.0], Bar(15_000), "a note")
    found = [{**first.as_json(), "curves": {"a": [[1, 2]]}}, {**second.as_json(), "curves": {"b": [[3, 4]]}}]
    report, curves = joined(json.loads(json.dumps(found)))
    assert report.rows == [*(row for row in first.rows[:8]), second.rows[0], first.rows[9]]
    assert curves == {"a": [(1, 2)], "b": [(3, 4)]}


def test_a_share_of_a_count_is_never_nothing() -> None:
    bench = Bench(None, None, None, 1, 1, {}, share=0.01)  # type: ignore[arg-type]
    assert (bench.some(20_000), bench.some(10), bench.some(10, least=5)) == (200, 1, 5)


def test_the_picture_shows_what_there_is(tmp_path: Path) -> None:
    plot = pytest.importorskip("benchmarks.scale.plot")
    curves = {"claim_ms": [(1_000.0, 1.0), (1_000_000.0, 1.2)], "slowest_ms": [(1_000.0, 3.0), (1_000_000.0, 900.0)]}
    for name, given in (("some", curves), ("none", {})):
        plot.draw(given, "two cores", tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    known = {key for panel in plot.PANELS for key, _ in panel.curves}
    assert set(curves) <= known


class Cleared:
    """A server that only counts how often it was cleared."""

    times = 0

    def clear(self) -> None:
        self.times += 1


@pytest.mark.parametrize("problem", [SystemExit("nothing has happened for 60 s"), ValueError("no claims")])
def test_a_part_that_fails_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    def fails(bench: Bench) -> None:
        raise problem

    monkeypatch.setitem(PARTS, "caps", fails)
    server, report = Cleared(), Report({}, {})
    bench = Bench(server, report, Console(stderr=True, quiet=True), 1, 1, {})  # type: ignore[arg-type]
    measure_part(bench, "scale.caps")
    assert [(row.key, row.holds, row.note) for row in report.rows] == [("scale.caps", None, str(problem))]
    assert server.times == 1


def test_who_stops_the_bench_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "caps", lambda bench: sys.exit(1))
    with pytest.raises(SystemExit):
        measure_part(Bench(None, None, None, 1, 1, {}), "scale.caps")  # type: ignore[arg-type]
