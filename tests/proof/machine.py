"""The rules by which hypothesis tells stories: random interleavings of senders, workers, operators, time and crashes.
Each rule is one act (or a short run of them), and after each act model and database are compared.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from horsies.core.child.wire import Done
from horsies.core.models.recovery import WorkerRecoveryConfig
from tests.proof import interference, working
from tests.proof.server import Server
from tests.proof.story import Story
from tests.proof.strategies import Onward, amounts, faults, onwards, picks, recoveries, reports, shapes, wishes
from tests.proof.values import Hold, Wish
from tests.proof.worker import Child, Shape, Terms, Worker

ENOUGH = 12  # tasks in a story
CRASHES = 3


def act(**arguments: Any) -> Callable[[Callable[..., None]], Any]:
    """A rule after which some workers do what they would do next. So every story leads somewhere, also one for which
    hypothesis leaves out half of the rules."""

    def decorated(function: Callable[..., None]) -> Any:
        @wraps(function)
        def told(self: Machine, onward: Onward, **given: Any) -> None:
            function(self, **given)
            self._go_on(onward)

        return rule(onward=onwards, **arguments)(told)

    return decorated


class Machine(RuleBasedStateMachine):
    """Stories without crashes of the server."""

    server: Server  # set by `tell`
    tally: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.story = Story(self.server, self.tally)
        self._names = 0

    @initialize(
        limit=st.sampled_from(["none", "none", "cluster", "queue", "stopped", "prefetch", "prefetch"]),
        recovery=recoveries,
        given=st.lists(shapes, min_size=2, max_size=3),
        first=st.lists(wishes, min_size=4, max_size=10),
    )
    def begin(self, limit: str, recovery: int | None, given: list[Shape], first: list[Wish]) -> None:
        story = self.story
        settings = WorkerRecoveryConfig(enabled=False)
        if recovery is not None:
            settings = WorkerRecoveryConfig(recovery_delay=recovery)
        caps = {"queue": (("a", 2), ("b", None)), "stopped": (("a", 0), ("b", 3))}
        story.terms = Terms(
            cluster_cap=4 if limit == "cluster" else None,
            prefetch=2 if limit == "prefetch" else 0,
            caps=caps.get(limit, (("a", None), ("b", None))),
            recovery=settings,
        )
        for number, shape in enumerate(given):
            story.workers.append(Worker(f"w{number}", story.terms, shape, 1000 * number + 1000))
        self._send(first, None)

    # Senders and operators

    @precondition(lambda self: len(self.story.world.tasks) < ENOUGH)
    @act(wanted=st.lists(wishes, min_size=1, max_size=3), fault=faults, is_one=st.booleans())
    def send(self, wanted: list[Wish], fault: int | None, is_one: bool) -> None:
        self._send(wanted, fault, is_one)

    def _send(self, wanted: list[Wish], fault: int | None, is_one: bool = False) -> None:
        self.story.step(f"send {len(wanted)}{' in one transaction' if is_one else ''}")
        made, keys = [], set()
        for one in wanted:
            key = (one.task_name, one.key)
            if one.key is None or key not in keys:  # which of two in one batch comes first is nobody's promise
                keys.add(key)
                self._names += 1
                made.append(interference.request(self.story, f"t{self._names * 7 % 10}-{self._names}", one))
        self.story.requests += made
        self.story.told[-1] += f": {', '.join(f'{one.task_id} {one.wish}' for one in made)}"
        self.story.run((interference.send_all if is_one else interference.send)(self.story, made, fault))

    @precondition(lambda self: self.story.unconfirmed)
    @act(pick=picks, fault=faults)
    def send_again_what_was_not_confirmed(self, pick: int, fault: int | None) -> None:
        made = _pick(self.story.unconfirmed, pick)
        self.story.step(f"send {made.task_id} again")
        self.story.run(interference.send(self.story, [made], fault))

    @precondition(lambda self: self.story.requests)
    @act(pick=picks, other=wishes, is_changed=st.booleans(), fault=faults)
    def send_an_id_again(self, pick: int, other: Wish, is_changed: bool, fault: int | None) -> None:
        made = _pick(self.story.requests, pick)
        self.story.step(f"send {made.task_id} again, {'changed' if is_changed else 'as it was'}")
        if is_changed:
            made = interference.request(self.story, made.task_id, replace(other, key=None))
        self.story.run(interference.send(self.story, [made], fault))

    @act(pick=picks, include_running=st.booleans(), fault=faults)
    def cancel(self, pick: int, include_running: bool, fault: int | None) -> None:
        self._cancel(_pick([*self.story.world.tasks, "nobody"], pick), include_running, fault)

    @precondition(lambda self: self.story.in_flight())
    @act(pick=picks, include_running=st.booleans(), fault=faults)
    def cancel_what_is_in_flight(self, pick: int, include_running: bool, fault: int | None) -> None:
        hold, _ = _pick(self.story.in_flight(), pick)
        self._cancel(hold.task_id, include_running, fault)

    def _cancel(self, task_id: str, include_running: bool, fault: int | None) -> None:
        self.story.step(f"cancel {task_id}{', even if it runs' if include_running else ''}")
        self.story.run(interference.cancel(self.story, task_id, fault, include_running=include_running))

    @act(most=st.sampled_from([500, 1, 2]), fault=faults, is_late=st.booleans())
    def expire_waiting(self, most: int, fault: int | None, is_late: bool) -> None:
        waiting = [i for i, what in self._ahead("PENDING") if what == interference.DEADLINE]
        if is_late and waiting:
            self._pass_time(waiting[0], interference.DEADLINE)
        self.story.step(f"expire at most {most} that wait")
        self.story.run(interference.expire_waiting(self.story, most, fault))

    # Time

    @precondition(lambda self: self._ahead())
    @act(kind=picks, pick=picks)
    def time_passes(self, kind: int, pick: int) -> None:
        what = self._kind_ahead(kind)
        self._pass_time(_pick([i for i, event in self._ahead() if event == what], pick), what)

    def _pass_time(self, task_id: str, what: str) -> None:
        self.story.step(f"{what}: {task_id}")
        self.story.run(interference.pass_time(self.story, task_id, what))

    @precondition(lambda self: self._ahead())
    @act(kind=picks)
    def time_passes_for_all(self, kind: int) -> None:
        what = self._kind_ahead(kind)
        self.story.step(f"{what}, everywhere")
        self.story.run(
            *(interference.pass_time(self.story, task_id, what) for task_id, event in self._ahead() if event == what)
        )

    @precondition(lambda self: self._ahead("CLAIMED"))
    @act(pick=picks)
    def time_passes_for_a_claim(self, pick: int) -> None:
        self._pass_time(*_pick(self._ahead("CLAIMED"), pick))

    def _kind_ahead(self, kind: int) -> str:
        return str(_pick(list(dict.fromkeys(what for _, what in self._ahead())), kind))

    def _ahead(self, status: str | None = None) -> list[tuple[str, str]]:
        """What may still happen to whom by the mere passing of time."""
        tasks = {i: task for i, task in self.story.world.tasks.items() if status in (None, task.status)}
        return [(i, what) for what in interference.PASSING for i in tasks if interference.may_pass(tasks[i], what)]

    # Workers

    @act(pick=picks, fault=faults, takes_over=st.booleans(), starts=st.booleans())
    def claim(self, pick: int, fault: int | None, takes_over: bool, starts: bool) -> None:
        self._claim(_pick(self.story.workers, pick), fault, takes_over, starts)

    def _claim(self, worker: Worker, fault: int | None, takes_over: bool, starts: bool = False) -> None:
        self.story.step(f"{worker.id} claims{' and takes over' if takes_over else ''}{' and starts' if starts else ''}")
        self.story.run(working.claim(self.story, worker, fault, takes_over=takes_over, starts=starts))

    @precondition(lambda self: self._claims_about_to_run_out() or self.story.world.lapsed("ab"))
    @act(pick=picks, room=amounts, fault=faults)
    def take_over(self, pick: int, room: int, fault: int | None) -> None:
        worker = _pick(self.story.workers, pick)
        if not self.story.world.lapsed("ab"):
            self._pass_time(_pick(self._claims_about_to_run_out(), pick), interference.LAPSE)
        self.story.step(f"{worker.id} takes over {room} claims that ran out")
        self.story.run(working.take_over(self.story, worker, room, fault))

    def _claims_about_to_run_out(self) -> list[str]:
        return [i for i, what in self._ahead("CLAIMED") if what == interference.LAPSE]

    @precondition(lambda self: self._that(lambda worker: worker.hand.waiting))
    @act(pick=picks, most=amounts, fault=faults)
    def start(self, pick: int, most: int, fault: int | None) -> None:
        self._start(_pick(self._that(lambda worker: worker.hand.waiting), pick), most, fault)

    def _start(self, worker: Worker, most: int, fault: int | None) -> None:
        self.story.step(f"{worker.id} starts {most}")
        self.story.run(working.start(self.story, worker, most, fault))

    @precondition(lambda self: self._about_to_be_late())
    @act(pick=picks)
    def start_too_late(self, pick: int) -> None:
        """The deadline passes between the claim and the start."""
        worker, task_id = _pick(self._about_to_be_late(), pick)
        self._pass_time(task_id, interference.DEADLINE)
        self._start(worker, 9, None)
        self._write_ends(worker, 9, None)

    def _about_to_be_late(self) -> list[tuple[Worker, str]]:
        late = [task_id for task_id, what in self._ahead("CLAIMED") if what == interference.DEADLINE]
        return [(worker, held.id) for worker in self.story.workers for held in worker.hand.waiting if held.id in late]

    @precondition(lambda self: self._children(lambda child: child.is_due))
    @act(pick=picks)
    def run_code(self, pick: int) -> None:
        self._begin(*_pick(self._children(lambda child: child.is_due), pick))

    def _begin(self, worker: Worker, child: Child) -> None:
        self.story.step(f"{child.name} of {worker.id} calls the function of its next task")
        working.begin(self.story, worker, child)

    @precondition(lambda self: self._children(lambda child: child.running))
    @act(pick=picks, done=reports)
    def end_code(self, pick: int, done: Done | str | None) -> None:
        worker, child = _pick(self._children(lambda child: child.running), pick)
        self._end(worker, child, done)

    def _end(self, worker: Worker, child: Child, done: Done | str | None) -> None:
        how = done.result if isinstance(done, Done) else done or "stopped by its limit"
        self.story.step(f"{child.name} of {worker.id} ends: {how}")
        if isinstance(done, str):
            worker.dies(child, is_forced=False)
        else:
            working.end(worker, child, done)

    @precondition(lambda self: self._that(lambda worker: worker.endings))
    @act(pick=picks, most=st.integers(1, 6), fault=faults)
    def write_ends(self, pick: int, most: int, fault: int | None) -> None:
        self._write_ends(_pick(self._that(lambda worker: worker.endings), pick), most, fault)

    def _write_ends(self, worker: Worker, most: int, fault: int | None) -> None:
        self.story.step(f"{worker.id} writes {', '.join(map(str, worker.endings[:most]))}")
        self.story.run(working.write_ends(self.story, worker, most, fault))

    @precondition(lambda self: self._children(lambda child: child.fed))
    @act(pick=picks, is_forced=st.booleans())
    def child_dies(self, pick: int, is_forced: bool) -> None:
        worker, child = _pick(self._children(lambda child: child.fed), pick)
        self.story.step(f"{child.name} of {worker.id} {'is cut off' if is_forced else 'dies'}")
        worker.dies(child, is_forced=is_forced)

    @precondition(lambda self: self._children(lambda child: child.fed or child.line))
    @act(pick=picks, also_claimed=st.booleans())
    def take_back(self, pick: int, also_claimed: bool) -> None:
        worker, child = _pick(self._children(lambda child: child.fed or child.line), pick)
        self.story.step(f"{worker.id} takes back what {child.name} has not begun")
        worker.take_back(child)
        if also_claimed:
            worker.hand_back()

    @precondition(lambda self: self._that(lambda worker: len(worker.hand)))
    @act(pick=picks, is_vouched_for=st.booleans(), is_old=st.booleans(), fault=faults)
    def heartbeat(self, pick: int, is_vouched_for: bool, is_old: bool, fault: int | None) -> None:
        worker = _pick(self._that(lambda worker: len(worker.hand)), pick)
        if is_old and worker.hand.waiting and (worker.hand.waiting[0].id, interference.AGE) in self._ahead("CLAIMED"):
            self._pass_time(worker.hand.waiting[0].id, interference.AGE)
        self.story.step(f"{worker.id} gives signs of life")
        self.story.run(working.heartbeat(self.story, worker, fault, is_vouched_for=is_vouched_for))

    @precondition(lambda self: self._that(lambda worker: worker.results))
    @act(pick=picks, is_taken=st.booleans())
    def mark_finalizing(self, pick: int, is_taken: bool) -> None:
        worker = _pick(self._that(lambda worker: worker.results), pick)
        self._mark_finalizing(worker)
        hold = worker.hold(worker.results[0])
        if is_taken and self.story.world.holds(hold, "RUNNING"):
            self.story.step(f"{hold} is handed back in the name of its worker")
            self.story.run(interference.hand_back(self.story, hold, None))

    def _mark_finalizing(self, worker: Worker) -> None:
        self.story.step(f"{worker.id} marks what waits to be written")
        self.story.run(working.mark_finalizing(self.story, worker))

    @precondition(lambda self: self._that(lambda worker: worker.known()))
    @act(pick=picks)
    def worker_dies(self, pick: int) -> None:
        """Its memory is gone; what it held stays behind under its name, and a new one takes its place."""
        old = _pick(self._that(lambda worker: worker.known()), pick)
        self.story.step(f"{old.id} dies")
        first_pid = max(child.pid for child in old.children) + 100
        new = Worker(f"{old.id}'", self.story.terms, old.shape, first_pid)
        self.story.workers = [new if worker is old else worker for worker in self.story.workers]

    @act(pick=picks, given=st.lists(reports, min_size=1, max_size=4), is_marked=st.booleans())
    def work(self, pick: int, given: list[Done | str | None], is_marked: bool) -> None:
        """One worker works off what it finds."""
        worker = _pick(self.story.workers, pick)
        self._claim(worker, None, True)
        self._start(worker, 4, None)
        for child, done in zip(worker.children, given, strict=False):
            self._begin(worker, child)
            self._end(worker, child, done)
        if is_marked:
            self._mark_finalizing(worker)
        self._write_ends(worker, 9, None)

    def _go_on(self, onward: Onward) -> None:
        for pick, done, fault in onward:
            self._do_next(_pick(self.story.workers, pick), done, fault)

    def _do_next(self, worker: Worker, done: Done | str | None, fault: int | None) -> None:
        """What this worker would do next; if there is nothing to do for it, a retry falls due."""
        idle = [child for child in worker.children if child.is_due]
        busy = [child for child in worker.children if child.running]
        due_later = [i for i, what in self._ahead() if what == "a retry is due"]
        if worker.hand.waiting and not idle:
            self._start(worker, 2, fault)
        elif idle:
            self._begin(worker, idle[0])
        elif busy:
            self._end(worker, busy[0], done)
        elif worker.endings:
            self._write_ends(worker, 9, fault)
        elif self.story.world.has_due() or worker.is_unsure:
            self._claim(worker, fault, True)
        elif due_later:
            self._pass_time(due_later[0], "a retry is due")

    def _that(self, has: Callable[[Worker], object]) -> list[Worker]:
        return [worker for worker in self.story.workers if has(worker)]

    def _children(self, has: Callable[[Child], object]) -> list[tuple[Worker, Child]]:
        return [(worker, child) for worker in self.story.workers for child in worker.children if has(child)]

    # Recovery, and those who were thought dead

    @precondition(lambda self: self.story.in_flight())
    @act(pick=picks, how=recoveries | st.just("not started"), fault=faults)
    def recover(self, pick: int, how: int | str | None, fault: int | None) -> None:
        hold, task = _pick(self.story.in_flight(), pick)
        self.story.step(f"{hold} is taken for dead and recovered")
        if task.status == "CLAIMED" or how == "not started":
            self.story.run(interference.hand_back(self.story, hold, fault))
        else:
            assert not isinstance(how, str)
            self.story.run(interference.recover(self.story, hold, fault, how))

    @precondition(lambda self: self.story.in_flight())
    @act(pick=picks, other=picks, ahead=st.sampled_from([0, 0, 1, -1]))
    def interfere(self, pick: int, other: int, ahead: int) -> None:
        """Somebody else, or the same one under another number, speaks about a task that is in flight."""
        hold, _ = _pick(self.story.in_flight(), pick)
        owner = hold.owner if ahead else _pick(self.story.workers, other).id
        self._say_late(Hold(owner, hold.task_id, hold.claim_seq + ahead))

    @precondition(lambda self: self.story.holds)
    @act(pick=picks)
    def say_late(self, pick: int) -> None:
        """Somebody speaks about a claim it once had, and may have still."""
        self._say_late(_pick(self.story.holds[::-1], pick))

    def _say_late(self, hold: Hold) -> None:
        self.story.step(f"stale statements of {hold}")
        self.story.run(*(interference.say_late(self.story, hold, statement) for statement in interference.STATEMENTS))


class CrashingMachine(Machine):
    """Stories in which the server crashes, too."""

    @precondition(lambda self: self.story.crashes < CRASHES)
    @act(
        before=onwards,
        claimants=st.lists(picks, max_size=2),
        fault=faults,
        sig=st.sampled_from([signal.SIGQUIT, signal.SIGKILL]),
        are_starting=st.booleans(),
    )
    def server_crashes(
        self, before: Onward, claimants: list[int], fault: int | None, sig: signal.Signals, are_starting: bool
    ) -> None:
        """Just after something was committed for good, or after claims that may be lost, or both. Starts that were
        under way are not confirmed, and their tasks are claimed again before they are handed back."""
        self._go_on(before)
        for pick in claimants:
            self._claim(_pick(self.story.workers, pick), fault, True)
        self.story.step(f"the server gets {sig.name}")
        self.story.crash(sig)
        self.story.run()
        for worker in self._that(lambda worker: are_starting and worker.hand.waiting):
            self._start(worker, 2, 0)
            self._claim(worker, None, False)
            self._start(worker, 2, None)
            for child in worker.children:
                self._begin(worker, child)


def _pick(found: list[Any], number: int) -> Any:
    return found[number % len(found)]
