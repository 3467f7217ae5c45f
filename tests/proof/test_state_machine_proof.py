"""The state machine under random interleavings: whatever senders, workers, operators, time, lost connections and
crashes of the server do, states, columns, attempt rows and fences are what the model says, after every single step.
These are a few stories, always the same; `make proof` tells new ones for as long as it is given.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.proof import interference, working
from tests.proof.machine import CrashingMachine, Machine
from tests.proof.server import Server, own_server
from tests.proof.story import Story
from tests.proof.telling import tell
from tests.proof.values import Wish
from tests.proof.worker import Shape, Terms, Worker

ARROWS = {f"L-{number:02}" for number in range(4, 20)} | {"L-13a"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_server() as server:
        yield server


def test_l03_l33_l35_l36_every_interleaving_ends_as_the_model_says(server: Server) -> None:
    tally: Counter[str] = Counter()
    wanted = ARROWS | {"stale statements", "unknown claims handed back", "too late", "started with the claim"}
    for seed in range(8):  # two rounds; more only if something has not occurred yet
        tell(Machine, server, tally, stories=8, from_seed=seed)
        if seed and wanted <= tally.keys():
            break
    assert wanted - tally.keys() == set(), "what has not occurred in any story"


def test_l03_l05_a_crash_of_the_server_loses_claims_and_nothing_else(server: Server) -> None:
    tally: Counter[str] = Counter()
    tell(CrashingMachine, server, tally, stories=5, from_seed=0)
    assert tally["crashes"] and tally["commits lost"]


@pytest.fixture
def story(server: Server) -> Story:
    """One task, and two workers that could run it."""
    story = Story(server, Counter())
    shape = Shape(processes=1, queues=("a",), max_claim_batch=0, max_claim_per_worker=0, lease=600, ahead=2)
    story.workers = [Worker(name, Terms(), shape, 1000) for name in ("w0", "w1")]
    story.step("send")
    story.run(interference.send(story, [interference.request(story, "t", Wish(deadline=5000.0))], None))
    return story


@pytest.mark.parametrize("sig", [signal.SIGQUIT, signal.SIGKILL])
def test_l03_a_lost_claim_gives_its_number_away_and_the_owner_is_the_fence(story: Story, sig: signal.Signals) -> None:
    old, new = story.workers
    story.step("the old one claims")
    story.run(working.claim(story, old, None))
    story.crash(sig)
    assert story.world.tasks["t"].status == "PENDING", "the server did not lose an asynchronous commit"
    story.step("the new one claims and starts")
    story.run(working.claim(story, new, None), working.start(story, new, 1, None))
    assert [held.claim for held in old.hand] == [held.claim for held in new.hand], "they hold different numbers"
    story.step("the old one starts, too")
    story.run(working.start(story, old, 1, None))
    assert not old.children[0].line and story.world.tasks["t"].claimed_by_worker_id == new.id


def test_l03_w21_a_claim_made_again_under_its_old_number_is_not_left_behind(story: Story) -> None:
    """The first hold, lost in the crash, has an end under way; the second is dropped with it and must be found."""
    worker = story.workers[0]
    story.step("claim")
    story.run(working.claim(story, worker, None))
    story.crash(signal.SIGQUIT)
    story.step("start, which finds nothing")
    story.run(working.start(story, worker, 1, None))
    assert [ending.held.id for ending in worker.endings] == ["t"]
    story.step("claim again, then write the end of the first hold")
    story.run(working.claim(story, worker, None), working.write_ends(story, worker, 9, None))
    assert story.world.claims_of(worker.id) - worker.known(), "nothing was left behind"
    story.step("look again")
    story.run(working.claim(story, worker, None))
    assert story.world.claims_of(worker.id) == worker.known()


def test_l03_l27_a_claim_made_again_before_it_was_handed_back_is_kept_once(story: Story) -> None:
    """Else the code would run under the second hold when the first is handed back."""
    worker = story.workers[0]
    story.step("claim")
    story.run(working.claim(story, worker, None))
    story.crash(signal.SIGQUIT)
    story.step("start, which does not arrive, then claim again and start")
    story.run(
        working.start(story, worker, 1, 0),
        working.claim(story, worker, None),
        working.start(story, worker, 1, None),
    )
    working.begin(story, worker, worker.children[0])
    story.step("hand it back")
    story.run(working.write_ends(story, worker, 9, None))
    assert story.world.tasks["t"].status == "PENDING" and not worker.known() and not story.runs
