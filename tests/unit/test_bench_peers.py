"""The comparison with other queues: its statistics, its tables, and that our own name is never asked of an index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.peers import figures, install
from benchmarks.peers.catalog import CONTENDERS, OURS, Contender, described, processes, worker_command
from benchmarks.peers.figures import Begin, Figure, Latency, Samples
from benchmarks.peers.marks import Marks

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.!+]*)")


def contender(key: str) -> Contender:
    return next(one for one in CONTENDERS if one.key == key)


def pinned(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [PIN.fullmatch(line.partition("; python_version ")[0]) for line in lines]
    assert all(found), f"{path.name} has a line that is no plain pin"
    return {install.name_of(match[1]): match[2] for match in found if match}


def test_percentiles_lie_between_the_ranks() -> None:
    assert figures.percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert figures.percentile([1.0, 2.0, 3.0], 100) == 3.0
    assert figures.percentile([7.0], 99) == 7.0


def test_a_rate_is_the_median_of_its_rounds_with_their_spread() -> None:
    found = figures.figure({1: 300.0, 2: 100.0, 3: 200.0}, {1: 600.0, 2: 1_000.0, 3: 400.0})
    assert found == Figure(200.0, 100.0, 300.0, 0.5)
    assert figures.figure({}, {1: 1.0}) is None


def test_ratios_are_taken_within_a_round() -> None:
    """Ours missed round 2, and both were slow in round 3: that is no reason for another ratio."""
    assert figures.ratio({1: 50.0, 2: 900.0, 3: 5.0}, {1: 100.0, 3: 10.0}) == 0.5
    assert figures.ratio({2: 1.0}, {1: 1.0}) is None


def test_latencies_are_in_milliseconds_over_all_rounds() -> None:
    found = figures.latency({1: [0.001, 0.002, 0.003], 2: [0.005, 0.006, 0.007]}, {1: [0.001], 2: [0.003]})
    assert found is not None
    assert (found.p50, found.low, found.high, found.ratio) == pytest.approx((4.0, 2.0, 6.0, 2.0))
    assert 6.9 < found.p99 <= 7.0


def test_a_system_without_results_has_no_such_figure() -> None:
    assert figures.latency({1: [], 2: []}, {1: [0.001]}) is None
    assert figures.latency_text(None) == figures.ratio_text(None) == figures.rate_text(None) == "–"


def test_texts_have_the_digits_that_mean_something() -> None:
    assert figures.rate_text(Figure(7_241.4, 6_900.0, 7_400.0)) == "7,241 (6,900–7,400)"
    assert figures.latency_text(Latency(2.42, 5.06, 2.0, 3.0)) == "2.4 / 5.1"
    assert [figures.ratio_text(Figure(1, 1, 1, ratio)) for ratio in (0.0312, 1.0, 1.53, 12.34)] == [
        "0.031",
        "1",
        "1.5",
        "12.3",
    ]


def test_starts_are_compared_within_a_round() -> None:
    ours = {1: Begin(0.8, 0.5, 0.2, 80.0), 2: Begin(1.6, 0.5, 0.4, 80.0)}
    first, cpu, imported, memory = figures.begins({1: Begin(0.4, 0.1, 0.1, 40.0), 2: Begin(0.8, 0.1, 0.2, 20.0)}, ours)
    assert first is not None and memory is not None
    assert (figures.start_text(first, 2), figures.ratio_text(first)) == ("0.60 (0.40–0.80)", "0.5")
    assert (figures.start_text(memory, 0), figures.ratio_text(memory)) == ("30 (20–40)", "0.38")
    assert cpu is not None and imported is not None
    assert figures.begins({}, ours) == (None,) * 4


def test_the_page_tells_figures_settings_and_traits() -> None:
    samples = {
        OURS: Samples(
            drain={1: 20_000.0},
            bulk={1: 30_000.0},
            starts={1: [0.002]},
            ends={1: [0.004]},
            begin={1: Begin(0.7, 0.5, 0.25, 80.4)},
        ),
        "pgqueuer": Samples(drain={1: 30_000.0}, starts={1: [0.01]}, ends={1: [0.02]}),
        "horsies_strict": Samples(drain={1: 1_500.0}),
    }
    settings = {key: f"settings of {key}" for key in samples}
    found = figures.lines(CONTENDERS, samples, settings, dict.fromkeys(samples, 2_000))
    assert [line.key for line in found] == [OURS, "horsies_strict", "pgqueuer"]
    text = figures.page(found, {"pgqueuer": "1.2"}, {"fsync": "on"}, ["no Redis here"], "peers.png")
    assert "| PgQueuer | 30,000 (30,000–30,000) | 1.5 | – |" in text
    assert "| PgQueuer | 10.0 / 10.0 | 5 | 20.0 / 20.0 (status only) | 5 |" in text
    assert "(peers.png)" in text
    assert "| PgQueuer | 2,000 | settings of pgqueuer |" in text
    assert "fsync on" in text and "pgqueuer 1.2" in text and "- no Redis here" in text
    assert f"| horsies | {contender(OURS).traits.isolation} |" in text
    assert text.count(contender(OURS).traits.fence) == 1, "the second way to run a system has the same traits"
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in tables] == [8] * 5 + [6] * 4 + [10] * 3 + [4] * 5 + [7] * 4


def test_every_figure_is_in_the_json() -> None:
    found = figures.lines([contender(OURS)], {OURS: Samples(drain={1: 2.0})}, {OURS: "s"}, {OURS: 1})
    (line,) = figures.as_json(found)
    assert line["drain"] == {"value": 2.0, "low": 2.0, "high": 2.0, "ratio": 1.0}
    assert line["end"] is None and line["traits"]["fence"]


def test_one_worker_of_each_is_so_many_processes() -> None:
    assert processes(contender("oban"), {"processes": 2, "limit": 10}) == 2
    assert processes(contender(OURS), contender(OURS).tries[0]) == processes(contender("celery"), {"processes": 2}) == 1
    assert worker_command(contender("horsies_strict"), contender("horsies_strict").tries[0])[-1] == "0"
    assert described({"processes": 2, "results": False}) == "processes 2, results off"


def test_marks_tell_who_started_first_and_who_did_not(tmp_path: Path) -> None:
    theirs = Marks.create(tmp_path / "marks", 4)
    mine = Marks(tmp_path / "marks")
    for number in (2, 0, 1):
        theirs.hit(number)
    assert (mine.missing(4), mine.missing(3), mine.first(3)) == (1, 0, mine.at(2))
    mine.wipe()
    assert theirs.missing(4) == 4


def test_our_own_name_is_never_looked_up_in_an_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [install.shared_requirements(project), *install.PEERS.values()]
    for requirements in asked:
        assert not {OURS, install.OURS} & {install.name_of(one) for one in install.from_index("python", requirements)}
    for name in ("horsies", "Horsies[embedded]>=0.1", "horsies == 1", "horsies_pg[web]"):
        with pytest.raises(ValueError, match="this tree"):
            install.from_index("python", ["rich", name])
    command = install.from_tree("python")
    assert {"--no-index", "--no-deps", "--no-build-isolation"} < set(command) and command[-1] == str(ROOT)


def test_the_peers_are_pinned_and_agree_with_our_own_pins() -> None:
    ours, theirs = (pinned(file) for file in install.CONSTRAINTS)
    assert {install.name_of(name) for names in install.PEERS.values() for name in names} <= set(theirs)
    assert [name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]] == []
    assert not {OURS, install.OURS} & (ours | theirs).keys()
