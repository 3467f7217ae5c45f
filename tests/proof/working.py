"""What workers do in a story: each act runs the statements of the store that the real worker would run at this point,
lets the model follow what was committed, compares the answers, and tells the worker what it has heard.
"""

from __future__ import annotations

from collections.abc import Sequence

from horsies.core.child.wire import Done
from horsies.core.store import holds, tasks
from horsies.core.store.holds import Beat
from horsies.core.store.tasks import Claimed
from horsies.core.tasks.moves import Claim, Expire, Requeue
from horsies.core.worker.in_hand import HeldTask, Phase
from tests.proof.server import BULK
from tests.proof.story import Story
from tests.proof.values import Hold
from tests.proof.worker import HOST, MAX_AGE, SHORT, Child, Ending, Offer, Worker


async def claim(
    story: Story, worker: Worker, fault: int | None, *, takes_over: bool = False, starts: bool = False
) -> None:
    """One look of the claimer: unknown claims first if it is unsure, then what waits, then claims that ran out. It
    `starts` tasks for which children have places, if the worker may (W-21b)."""
    if worker.is_unsure:
        await _hand_back_unknown_claims(story, worker)
        worker.is_unsure = False
    order = worker.order()
    budgets = worker.budgets()
    story.demand((order is not None) or min(budgets.local, budgets.per_worker) <= 0 or not _is_open(worker), "no order")
    if order is None:
        return
    offer = worker.offer() if starts else None
    seats = offer.seats if offer is not None else None
    answer = await story.ask(worker.id, fault, lambda conn: tasks.claim(conn, worker.who, order, seats=seats))
    rows: list[Claimed] = []
    if answer.is_committed:
        expected = story.world.claim(worker.model, budgets, story.stored.instants("enqueued_at"))
        _compare_claims(story, worker, answer.get(), expected)
        seated = {} if offer is None else _seats(story, worker, offer, expected)
        found = {row.id: seats.pids[row.child - 1] for row in answer.get() if seats and row.child is not None}
        story.demand(found == seated, f"started with the claim: {found}, should be {seated}")
        story.committed(synchronously=bool(seated))
        story.tally["started with the claim"] += len(seated)
    worker.is_unsure = not answer.is_heard
    if answer.is_heard:
        rows = answer.get()
        if takes_over and len(rows) < order.budget:
            rows = [*rows, *await _claim_expired(story, worker, order.queues, order.budget - len(rows))]
    worker.take(rows, offer)


def _seats(story: Story, worker: Worker, offer: Offer, claimed: list[str]) -> dict[str, int]:
    """Which of these are RUNNING with the claim, and where (W-21b); the model follows."""
    seated = {}
    for nth, (task_id, child) in enumerate(zip(claimed, offer.places, strict=False), 1):
        are_short = all(story.world.tasks[one].request.wish.task_name == SHORT for one in claimed[:nth])
        hold = Hold(worker.id, task_id, story.world.tasks[task_id].claim_seq)
        if (nth <= offer.free or are_short) and story.world.is_plain(task_id):
            story.world.start(hold, HOST, child.pid, child.name)
            seated[task_id] = child.pid
    return seated


def _is_open(worker: Worker) -> bool:
    return any(cap != 0 for _, cap in worker.budgets().queues)


async def take_over(story: Story, worker: Worker, room: int, fault: int | None) -> None:
    """Only the second half of a look."""
    queues = [name for name, cap in worker.budgets().queues if cap != 0]
    worker.take(await _claim_expired(story, worker, queues, room, fault))


async def _claim_expired(
    story: Story, worker: Worker, queues: list[str], room: int, fault: int | None = None
) -> list[Claimed]:
    lapsed = story.world.lapsed(queues)
    answer = await story.ask(worker.id, fault, lambda conn: tasks.claim_expired(conn, worker.who, queues, room))
    if answer.is_committed:
        chosen = [row.id for row in answer.get()]
        is_right = set(chosen) <= lapsed and len(set(chosen)) == len(chosen) == min(room, len(lapsed))
        story.demand(is_right, f"took over {chosen}, {room} of {lapsed} were to be taken")
        story.world.claim_expired(worker.model, chosen)
        _compare_claims(story, worker, answer.get(), chosen)
        story.committed(synchronously=False)
    worker.is_unsure = worker.is_unsure or not answer.is_heard
    return answer.get() if answer.is_heard else []


def _compare_claims(story: Story, worker: Worker, rows: Sequence[Claimed], expected: list[str]) -> None:
    story.demand([row.id for row in rows] == expected, f"claimed {[row.id for row in rows]}, should be {expected}")
    for row in rows:
        task = story.world.tasks[row.id]
        request, wish = task.request, task.request.wish
        found = (row.claim_seq, row.task_name, row.queue_name, row.priority, row.args, row.kwargs, row.task_options)
        told = (task.claim_seq, wish.task_name, wish.queue_name, wish.priority, wish.args, None, request.task_options)
        found_rest = (row.retry_count, row.max_retries, row.has_deadline)
        rest = (task.retry_count, task.max_retries, task.good_until is not None)
        story.demand((*found, *found_rest) == (*told, *rest), f"the claim answered {row} for {task}")
        story.holds.append(Hold(worker.id, row.id, row.claim_seq))


async def _hand_back_unknown_claims(story: Story, worker: Worker) -> None:
    known = [held.claim for held in worker.hand]
    answer = await story.ask(worker.id, None, lambda conn: holds.unknown_claims(conn, worker.id, known))
    unknown = {Hold(worker.id, claim.task_id, claim.claim_seq) for claim in answer.get()}
    expected_ones = story.world.claims_of(worker.id) - {worker.hold(held) for held in worker.hand}
    story.demand(unknown == expected_ones, f"the unknown claims of {worker.id} are {unknown}")
    if unknown:
        moves = [Requeue(claim_of(hold)) for hold in unknown]
        moved = await story.ask(worker.id, None, lambda conn: tasks.apply(conn, worker.id, moves))
        expected = {hold.task_id for hold in unknown if story.world.requeue(hold)}
        story.demand(moved.get() == expected, f"handed back {moved.value}, should be {expected}")
        story.committed(synchronously=True)
        story.tally["unknown claims handed back"] += len(unknown)


async def start(story: Story, worker: Worker, most: int, fault: int | None) -> None:
    """One batch of the starter."""
    batch = worker.place(most)
    if not batch:
        return
    claims = [held.claim for held, _ in batch]
    pids, names = [child.pid for _, child in batch], [child.name for _, child in batch]
    answer = await story.ask(
        worker.id + BULK, fault, lambda conn: tasks.start(conn, worker.id, HOST, claims, pids, names)
    )  # fmt: skip
    if answer.is_committed:
        expected = {
            held.id for held, child in batch if story.world.start(worker.hold(held), HOST, child.pid, child.name)
        }
        story.demand(answer.value == expected, f"started {answer.value}, should be {expected}")
        story.committed(synchronously=True)
    if answer.is_heard:
        worker.started(batch, answer.get())
    else:
        worker.unconfirmed(batch)


def begin(story: Story, worker: Worker, child: Child) -> None:
    """The child calls user code: once for each claim, and only when its RUNNING is stored for good."""
    held = worker.begin(child)
    if held is not None:
        hold = worker.hold(held)
        story.demand(hold not in story.runs, f"user code runs a second time for {hold} (W-28)")
        story.runs.add(hold)
        story.tally["runs"] += 1


def end(worker: Worker, child: Child, done: Done | None) -> None:
    """The child's code ends with this report; without one it was stopped by its time limit."""
    if child.running is None:
        return
    if done is None:
        worker.timed_out(child)
    else:
        worker.done(child, done)


async def write_ends(story: Story, worker: Worker, most: int, fault: int | None) -> None:
    """One batch of the finalizer; what was not confirmed stays and is written again."""
    batch = worker.endings[:most]
    if not batch:
        return
    moves = [ending.move for ending in batch]
    answer = await story.ask(worker.id + BULK, fault, lambda conn: tasks.apply(conn, worker.id, moves))
    if answer.is_committed:
        expected = {ending.held.id for ending in batch if _follow(story, worker, ending)}
        story.demand(answer.value == expected, f"moved {answer.value}, should be {expected}")
        story.tally["too late"] += len(batch) - len(expected)
        story.committed(synchronously=True)
    if answer.is_heard:
        worker.settled(batch, answer.get())


def _follow(story: Story, worker: Worker, ending: Ending) -> bool:
    hold = worker.hold(ending.held)
    if ending.report is not None:
        return story.world.end(hold, ending.report)
    has_moved = story.world.expire(hold) if isinstance(ending.move, Expire) else story.world.requeue(hold)
    runs = any(child.running and worker.hold(child.running) == hold for child in worker.children)
    story.demand(not (has_moved and runs), f"{hold} is given back while its code runs (invariant 3)")
    return has_moved


async def heartbeat(story: Story, worker: Worker, fault: int | None, *, is_vouched_for: bool) -> None:
    """A round of signs of life; a claim that is not confirmed is lost, and what waits is renewed."""
    asked = list(worker.hand)
    if not asked:
        return
    beats = [Beat(held.claim, is_vouched_for, *_sender(worker, held)) for held in asked]
    answer = await story.ask(worker.id, fault, lambda conn: holds.heartbeat(conn, worker.id, HOST, beats))
    if answer.is_committed:
        told = [(worker.hold(held), is_vouched_for, *_sender(worker, held)) for held in asked]
        expected = story.world.heartbeat(told, HOST)
        story.demand(answer.value == expected, f"still held {answer.value}, should be {expected}")
        story.committed(synchronously=False)
    if not answer.is_heard:
        return
    waiting = [held for held in asked if held.phase in (Phase.CLAIMED, Phase.STARTING)]
    for held in asked:
        if held.id not in answer.get() and worker.hand.holds(held):
            worker.lose(held)
    if waiting:
        await renew(story, worker, [worker.hold(held) for held in waiting])


def _sender(worker: Worker, held: HeldTask) -> tuple[str, int]:
    for child in worker.children:
        if held in child.fed or held in child.line:
            return f"{worker.id}/{child.pid}", child.pid
    return worker.id, 1


async def renew(story: Story, worker: Worker, held: list[Hold]) -> None:
    claims = [claim_of(hold) for hold in held]
    answer = await story.ask(worker.id, None, lambda conn: holds.renew(conn, worker.who, claims, MAX_AGE))
    expected = story.world.renew(held, worker.shape.lease, MAX_AGE.total_seconds())
    story.demand(answer.value == expected, f"renewed {answer.value}, should be {expected}")
    story.committed(synchronously=False)


async def mark_finalizing(story: Story, worker: Worker) -> None:
    """Results that could not be written yet."""
    late = worker.results
    if late:
        claims = [held.claim for held in late]
        await story.ask(worker.id, None, lambda conn: holds.mark_finalizing(conn, worker.id, claims))
        story.world.mark_finalizing([worker.hold(held) for held in late])
        story.committed(synchronously=False)  # a mark may be lost: it is no transition


def claim_of(hold: Hold) -> Claim:
    return Claim(hold.task_id, hold.claim_seq)
