"""The arithmetic of `make soak`: phases, what counts in each, ratios, and the verdict."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.soak_report import (
    RULES,
    Line,
    Rule,
    Sample,
    as_csv,
    judged,
    lines,
    number,
    percentile,
    phase_of,
    recovered_after,
    verdict,
)

SECONDS = 90.0
PAGES = next(rule for rule in RULES if rule.unit == "pages")
STEADY = Sample(
    second=0.0, sent=1_000, done=1_000, throughput=500.0, wait_p50_ms=2.0, wait_p99_ms=8.0, claims=90, claim_p50_ms=1.0,
    claim_p99_ms=4.0, ping_ms=1.0, probe_ms=0.2, probe_pages=5, live_rows=1_000, dead_rows=2_000, table_bytes=600_000,
    indexes_bytes=150_000, pending_index_bytes=8_192, attempts_bytes=90_000, waiting_dead_rows=0,
)  # fmt: skip


def a_soak(held: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> list[Sample]:
    """One sample a second, steady but for what is said about the phases."""
    changes = {"before": {}, "held": held or {}, "after": after or {}}
    samples = []
    for second in range(int(SECONDS)):
        sample = replace(STEADY, second=second + 0.5, sent=1_000 * (second + 1), done=1_000 * (second + 1))
        samples.append(replace(sample, **changes[phase_of(sample.second, SECONDS)]))
    return samples


@pytest.mark.parametrize(
    ("second", "phase"),
    [(0, "before"), (29.9, "before"), (30, "held"), (59.9, "held"), (60, "after"), (90, "after"), (91, "after")],
)
def test_the_transaction_is_open_in_the_middle_third(second: float, phase: str) -> None:
    assert phase_of(second, SECONDS) == phase


def test_warming_up_and_clearing_away_do_not_count() -> None:
    spans = {name: (found[0].second, found[-1].second) for name, found in judged(a_soak(), SECONDS).items()}
    assert spans == {"before": (7.5, 29.5), "held": (30.5, 59.5), "after": (75.5, 89.5)}


def test_what_is_bad_only_while_the_transaction_is_open_is_no_drift() -> None:
    found = lines(a_soak(held={"probe_pages": 5_000, "dead_rows": 90_000, "throughput": 100.0}), SECONDS)
    assert verdict(found).startswith("NO DRIFT")
    pages = next(line for line in found if line.rule is PAGES)
    assert (pages.before, pages.held, pages.after, pages.ratio) == (5, 5_000, 5, 1)


@pytest.mark.parametrize(
    ("after", "named"),
    [
        ({"throughput": 440.0}, "throughput (tasks/s) 0.88×"),
        ({"claim_p99_ms": 9.0}, "claim, p99 (pings) 2.25×"),
        ({"probe_ms": 2.0}, "claim, in the server (ms) 10.00×"),
        ({"probe_pages": 80}, "claim, in the server (pages) 16.00×"),
        ({"dead_rows": 9_000}, "dead rows (rows) 4.50×"),
        ({"done": 0}, "not done yet (tasks)"),
    ],
)
def test_what_stays_bad_afterwards_is_drift(after: dict[str, Any], named: str) -> None:
    said = verdict(lines(a_soak(after=after), SECONDS))
    assert said.startswith("DRIFT") and named in said


@pytest.mark.parametrize(
    "after",
    [
        {"throughput": 460.0},
        {"throughput": 5_000.0},
        {"claim_p99_ms": 40.0, "ping_ms": 10.0},  # the whole machine is slower
        {"probe_ms": 0.9},
        {"probe_pages": 40},
        {"dead_rows": 6_500},
        {"table_bytes": 90_000_000},  # told, not judged: finished rows stay
    ],
)
def test_less_than_the_slack_or_a_change_for_the_better_is_none(after: dict[str, Any]) -> None:
    assert verdict(lines(a_soak(after=after), SECONDS)).startswith("NO DRIFT")


def test_one_bad_second_is_not_a_drift() -> None:
    samples = a_soak()
    samples[80] = replace(samples[80], probe_pages=100_000, throughput=0.0, claim_p99_ms=900.0)
    assert verdict(lines(samples, SECONDS)).startswith("NO DRIFT")


def test_without_samples_nothing_is_claimed() -> None:
    assert verdict(lines(a_soak()[:40], SECONDS)).startswith("NOT KNOWN: too short for throughput")
    assert verdict(lines(a_soak(after={"ping_ms": None}), SECONDS)) == "NOT KNOWN: too short for claim, p99 (pings)"


def test_how_long_it_took_to_recover() -> None:
    samples = [
        replace(sample, probe_pages=5_000) if 30 <= sample.second < 64 else sample
        for sample in a_soak()
    ]  # fmt: skip
    assert recovered_after(samples, SECONDS, PAGES) == 4.5
    assert recovered_after(a_soak(after={"probe_pages": 5_000}), SECONDS, PAGES) is None


def test_sizes_are_told_per_row_too() -> None:
    assert (STEADY.bytes_per_row, STEADY.index_bytes_per_row) == (600.0, 150.0)
    assert replace(STEADY, sent=0).bytes_per_row is None


def test_the_table_says_what_is_judged() -> None:
    judging, telling = Rule("dead", "rows", lambda s: s.dead_rows, 1.5), Rule("table", "MB", lambda s: s.table_bytes)
    assert Line(judging, 1_000, 20_000, 1_600).cells() == ("dead (rows)", "1,000", "20,000", "1,600", "1.60", "DRIFT")
    assert Line(judging, 1_000, 20_000, 1_500).cells()[-1] == "steady"
    assert Line(telling, 0.0, None, 12.345).cells() == ("table (MB)", "0", "–", "12.3", "", "")


def test_the_csv_has_a_line_for_each_sample() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(a_soak(), SECONDS))))
    assert len(rows) == 90
    assert (rows[45]["second"], rows[45]["phase"], rows[45]["backlog"]) == ("45.5", "held", "0")
    assert set(rows[0]) >= {"throughput", "claim_p99_ms", "dead_rows", "table_bytes", "indexes_bytes"}


def test_percentiles_and_numbers() -> None:
    assert percentile([], 0.99) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(100)], 0.99) == 99.0
    assert [number(n) for n in (None, 0.123456, 12.345, 1234.5)] == ["–", "0.123", "12.3", "1,234"]
