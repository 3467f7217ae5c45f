"""When a worker is ready, and what it says when it is not: one reason for each thing that is wrong."""

from __future__ import annotations

from horsies.core.worker.health import LATE_S, Signs, problems
from tests.each import each

WELL = Signs(
    is_started=True,
    is_stopping=False,
    database=None,
    is_cut_off=False,
    is_listening=True,
    claimed_s=1.0,
    claim_every_s=5.0,
    children=2,
    children_alive=2,
)


def test_a_worker_that_does_its_work_is_ready() -> None:
    assert problems(WELL) == {}
    assert problems(WELL._replace(children_alive=3)) == {}, "one is being replaced, its successor is there already"


@each(
    ("wrong", "what"),
    [
        ({"is_started": False}, {"starting"}),
        ({"is_started": False, "database": "refused"}, {"starting", "database"}),
        ({"is_stopping": True}, {"stopping"}),
        ({"is_stopping": True, "database": "refused", "children_alive": 0}, {"stopping"}),
        ({"database": "refused"}, {"database"}),
        ({"is_cut_off": True}, {"database"}),
        ({"is_listening": False}, {"listener"}),
        ({"claimed_s": None}, {"claiming"}),
        ({"claimed_s": 5.0 + LATE_S + 1}, {"claiming"}),
        ({"children_alive": 1}, {"children"}),
        ({"database": "refused", "is_listening": False, "children_alive": 0}, {"database", "listener", "children"}),
    ],
)
def test_each_thing_that_is_wrong_is_a_reason(wrong: dict[str, object], what: set[str]) -> None:
    found = problems(WELL._replace(**wrong))
    assert found.keys() == what and all(found.values())
