"""Signs of life: the heartbeats of each longer task (both roles), of claims (lease renewal) and of the worker itself,
and whether a child is alive.

`Heartbeats` uses one connection that nothing else uses, with one statement for each kind. A round also asks which
claims are still ours; the code of a lost task is stopped (R-11). The outcome is the worker's pulse, by which it fences
itself (R-101, `fence.py`): a heartbeat that is not confirmed in time has failed. A task inside a child gets heartbeats
only while `VitalSigns` finds the child alive: it has reported recently, or it uses the processor (W-01).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import NamedTuple, TypeVar

import psutil

from horsies.core.db import AWAY, Connection, answered_within, by_halves, is_about_content
from horsies.core.store import holds, tasks, workers
from horsies.core.store.names import Known, hash_of
from horsies.core.tasks.moves import Claim
from horsies.core.worker.children import Child, Children
from horsies.core.worker.config import Code, Identity, Plan
from horsies.core.worker.fence import Fence, SelfFence
from horsies.core.worker.in_hand import HeldTask, InHand, Phase, StopReason, log_fields

log = logging.getLogger("horsies.worker")

T = TypeVar("T")

FIRST_BEAT_S = 1.0
FINALIZING_AFTER_S = 1.0
CONNECT_S = 5.0
LONGEST_PAUSE_S = 300.0  # between two workers of the same code, as in a deploy; then the names count as known again
WAITING = (Phase.CLAIMED, Phase.STARTING)
MEASURE_S = 0.3  # the system counts in hundredths of a second: 5 % are two counts at least, and one proves nothing
WORK = 0.05  # of one processor: a thread that uses less only waits
SILENT = 1.5  # intervals without a word: the heartbeat before has measured the child, and the next one can compare


class Heartbeats:
    """One `step` waits, and does what is due. Say `soon` when there are tasks. `on_drain` is called when somebody has
    asked the worker to drain (W-55)."""

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        plan: Plan,
        me: Identity,
        *,
        who: tasks.Claimant,
        in_hand: InHand,
        children: Children,
        stop: Callable[[HeldTask, StopReason], None],
        fence: Fence,
        self_fence: SelfFence,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        recovery = plan.app.config.recovery
        self._plan = plan
        self._connect = connect
        self._conn: Connection | None = None
        self._connecting = asyncio.Lock()
        self._who = who
        self._hostname = me.hostname
        self._pid = me.pid
        self._claimer_s = recovery.claimer_heartbeat_interval_ms / 1000
        self._runner_s = recovery.runner_heartbeat_interval_ms / 1000
        self._max_claim_age = plan.max_claim_age
        self._registration = plan.registration(me)
        self._refresh_s = plan.recovery.heartbeat_interval.total_seconds()
        self._in_hand = in_hand
        self._children = children
        self._stop = stop
        self._fence = fence
        self._self_fence = self_fence
        self._vital_signs = VitalSigns(SILENT * self._runner_s)
        self._refreshed = 0.0
        self._asked_all = 0.0
        self._has_said_hello = False
        self._on_drain = on_drain
        self._is_draining = False
        self._known: Known | None = None
        self._stored_names: str | None = None  # the hash of the names that the database knows
        self._has_work = asyncio.Event()
        self._born = monotonic()
        self.tick_s = max(0.05, min(1.0, fence.terms.shortest_s / 8))

    async def step(self) -> None:
        await self._rest()
        await self.beat()

    def soon(self) -> None:
        """There are tasks, which come with a fresh heartbeat. What it has to do for them is not urgent, so that it does
        not hold up their start."""
        if not self._has_work.is_set():
            asyncio.get_running_loop().call_later(self.tick_s / 4, self._has_work.set)

    async def _rest(self) -> None:
        if self._in_hand or self._fence.pulse.is_failing:
            await asyncio.sleep(self.tick_s)
            return
        self._has_work.clear()
        with contextlib.suppress(TimeoutError):
            next_s = min(self._fence.idle_tick_s, self._refreshed + self._refresh_s - monotonic())
            async with asyncio.timeout(max(self.tick_s, next_s)):
                await self._has_work.wait()

    async def beat(self) -> None:
        self._self_fence.check()  # first, because this may be the end of a pause
        now = monotonic()
        due = [held for held in self._in_hand if self._is_due(held, now)]
        is_probe = self._fence.pulse.is_failing and not due  # only a heartbeat shows that the database answers again
        if is_probe or now - self._refreshed >= self._refresh_s - self.tick_s / 2:
            await self.register()
        if due:
            await self._round(due, now)
        late = [held for held in self._in_hand if self._is_late(held, now)]
        if late:
            claims = [held.claim for held in late]
            await self._say(
                lambda conn: _unless_refused(claims, partial(holds.mark_finalizing, conn, self._who.worker_id))
            )
            for held in late:
                held.marked = now

    async def register(self) -> None:
        """Insert or refresh the worker's row (R-40)."""
        started, self._has_said_hello = monotonic(), True
        code = self.code
        names_hash = code.known.names_hash
        row = {
            **self._registration,
            "age": started - self._born,
            "metadata": {**self._registration["metadata"], "team": code.team},
            "names_hash": names_hash,
            "names": None if self._stored_names == names_hash else sorted(code.known.names),
            "pause": max(LONGEST_PAUSE_S, 3 * self._refresh_s),
        }
        answer, self._fence.refreshed = await self._say(lambda conn: workers.register(conn, row))
        self._stored_names = names_hash if answer.are_stored else None
        self._fence.pulse.saw_time(answer.server_s, self._fence.refreshed)
        self._refreshed = started
        self._self_fence.check()
        if answer.is_draining and not self._is_draining:
            self._is_draining = True
            log.info("somebody has asked this worker to drain: it ends when its tasks have ended")
            self._on_drain()

    @property
    def code(self) -> Code:
        """What this worker runs. Its children may change that (O-31)."""
        names = self._children.task_names
        if self._known is None or self._known.names is not names:
            self._known = Known(names, hash_of(names))
        team = self._plan.team(self._known.names_hash, self._children.hook_events)
        return Code(team, self._known, self._children.catalogue)

    async def unregister(self) -> None:
        """Delete the worker's row (W-53), if it has one."""
        if self._has_said_hello:
            await self._say(lambda conn: workers.unregister(conn, self._who.worker_id))

    async def check(self, suspected: Sequence[HeldTask]) -> None:
        """Notifications say that these tasks were taken from us: check it."""
        if suspected:
            await self._beat(suspected, ())

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()
            self._conn = None

    def _is_due(self, held: HeldTask, now: float) -> bool:
        interval = self._claimer_s if held.phase in WAITING else self._runner_s
        if held.last_beat:
            return now - held.last_beat >= interval - self.tick_s / 2
        return now - held.since >= min(FIRST_BEAT_S, interval)

    def _is_late(self, held: HeldTask, now: float) -> bool:
        """A result that waits to be written is marked after a second, and again with every heartbeat (L-30)."""
        if held.settling_since is None or now - held.settling_since <= FINALIZING_AFTER_S:
            return False
        return not held.marked or now - held.marked >= self._runner_s

    async def _round(self, due: list[HeldTask], now: float) -> None:
        """Heartbeats for everything that is due. Once in each interval, a round checks every claim that we hold
        (R-11)."""
        asked = due
        if now - self._asked_all >= min(self._claimer_s, self._runner_s) - self.tick_s / 2:
            asked, self._asked_all = list(self._in_hand), now
        alive = self._vital_signs.look(child for child in self._children.children if child.fed)
        vouched = [held for held in due if _is_in_our_hands(held) or (held.child and held.child.pid in alive)]
        await self._beat(asked, vouched)
        waiting = [held.claim for held in due if held.phase in WAITING]
        if waiting:
            await self._say(
                lambda conn: _unless_refused(
                    waiting, lambda part: holds.renew(conn, self._who, part, self._max_claim_age)
                )
            )
        for held in vouched:  # the others stay due
            held.last_beat = now

    async def _beat(self, asked: Sequence[HeldTask], vouched: Sequence[HeldTask]) -> None:
        signs = {id(held) for held in vouched}
        beats = [holds.Beat(held.claim, id(held) in signs, self._sender(held), self._pid_of(held)) for held in asked]
        running = [
            held for held in vouched if held.phase not in WAITING
        ]  # now, because a heartbeat of a claim says nothing about its run
        owned, sent = await self._say(lambda conn: holds.heartbeat(conn, self._who.worker_id, self._hostname, beats))
        for held in running:
            if held.id in owned:
                held.sign = max(held.sign, sent)
        for held in asked:
            if held.id not in owned and self._in_hand.holds(held) and held.phase is not Phase.SETTLING:
                log.warning(
                    "the task was taken from this worker; its code is being stopped",
                    extra={"horsies": log_fields(held)},
                )
                self._stop(held, StopReason.LOST)
        self._self_fence.check()  # the children may go on

    def _sender(self, held: HeldTask) -> str:
        return f"{self._who.worker_id}/{held.child.pid}" if held.child else self._who.worker_id

    def _pid_of(self, held: HeldTask) -> int:
        return held.child.pid if held.child else self._pid

    async def _say(self, statement: Callable[[Connection], Awaitable[T]]) -> tuple[T, float]:
        """One heartbeat: its reply, and when it was sent. Its outcome is the worker's pulse."""
        try:
            answer = await self._in_time(statement)
        except AWAY:
            self._fence.pulse.failed()
            self._self_fence.check()
            raise
        self._fence.pulse.answered()
        return answer

    async def _in_time(self, statement: Callable[[Connection], Awaitable[T]]) -> tuple[T, float]:
        async with asyncio.timeout(CONNECT_S):
            conn = await self._connection()
        sent = self._fence.clock()
        return await answered_within(self._fence.terms.patience_s, conn, statement(conn)), sent

    async def _connection(self) -> Connection:
        async with self._connecting:
            if self._conn is None or self._conn.closed:
                self._conn = await self._connect()
            return self._conn


async def _unless_refused(claims: Sequence[Claim], write: Callable[[Sequence[Claim]], Awaitable[object]]) -> None:
    """A row that cannot be changed keeps no other back (L-19a), and no heartbeat has failed: the database answers."""
    await by_halves(claims, write, is_refusal=is_about_content, give_up=lambda claim, problem: None)


def _is_in_our_hands(held: HeldTask) -> bool:
    """Whether the task is in the supervisor's hands; a task inside a child gets heartbeats only if that child is
    alive."""
    return held.child is None or held.phase not in (Phase.FED, Phase.STARTED)


class _Measured(NamedTuple):
    at: float
    spent: Mapping[int, float]  # seconds of processor time of each thread
    is_working: bool  # since the measurement before


class VitalSigns:
    """Remembers for each child how much processor time its threads had used at the last measurement. C code may hold
    the interpreter for minutes, so that no thread of the child can report. A child that exists but is silent and idle
    (stopped, or stuck in C code that waits) does not count as alive."""

    def __init__(self, silent_s: float) -> None:
        self._silent_s = silent_s
        self._measured: dict[int, _Measured] = {}

    def look(self, children: Iterable[Child]) -> set[int]:
        """The pids of the children with tasks that are alive."""
        alive: set[int] = set()
        measured: dict[int, _Measured] = {}
        for child in children:
            if child.is_dead or child.is_killed or (found := self._measure(child.pid)) is None:
                continue
            # Also of a child that reports, so that the first silent look has something to compare with.
            measured[child.pid] = found
            if found.is_working or monotonic() - child.last_heard < self._silent_s:
                alive.add(child.pid)
        self._measured = measured  # the others are forgotten, because another process may get their pid
        return alive

    def _measure(self, pid: int) -> _Measured | None:
        before, now = self._measured.get(pid), monotonic()
        if before is not None and now - before.at < MEASURE_S:
            return before
        spent = _processor_times(pid)
        if spent is None:
            return None
        return _Measured(now, spent, before is not None and is_working(before.spent, spent, now - before.at))


def is_working(before: Mapping[int, float], after: Mapping[int, float], seconds: float) -> bool:
    """Whether one of these threads has used the processor in earnest. A thread that waits for the interpreter looks for
    it 200 times a second, which takes less than 1 % of a processor; many of them must not add up to work."""
    return max((spent - before.get(thread, 0.0) for thread, spent in after.items()), default=0.0) >= WORK * seconds


def _processor_times(pid: int) -> dict[int, float] | None:
    try:
        process = psutil.Process(pid)
        try:
            return {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
        except psutil.AccessDenied:  # other systems show only the sum
            times = process.cpu_times()
            return {pid: times.user + times.system}
    except psutil.Error:
        return None
