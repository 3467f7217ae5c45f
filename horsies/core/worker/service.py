"""The worker: puts the stages together, starts them in order, and ends them without losing anything.

    listener ─ ring ─▶ claimer ─▶ starter ─▶ dispatcher ═ children
                          ▲                      │
                          └── room ── finalizer ◀┘ ─▶ advancer

    beside them: heartbeats and self-fence, recovery services, scheduler, outcome log, snapshots, metrics

The worker runs no user code. `run()` serves until it is told to stop; `run_once()` runs the tasks that can be claimed
now, and returns. What a stage does is in its own module; this one has only who is told what.
"""

import asyncio
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from horsies.core import distribution, events, tracing
from horsies.core.app import Horsies
from horsies.core.db import BY_INDEX, Backoff, Connection, Listener, cancel_all, connect
from horsies.core.errors import HorsiesError
from horsies.core.loop import DatabaseGone, Service, every
from horsies.core.recovery.decide import is_last_chance
from horsies.core.recovery.start_journal import Journal
from horsies.core.store import tasks, workers
from horsies.core.tasks.moves import Leave, Move, Retry
from horsies.core.worker import advance, background, children, claim, dispatch, fence, finalize, helper_calls, questions
from horsies.core.worker.config import Plan, WorkerConfig, identify
from horsies.core.worker.helper_process import HelperChild
from horsies.core.worker.in_hand import HeldTask, InHand, Phase
from horsies.core.worker.launcher import Launcher
from horsies.core.worker.liveness import Heartbeats
from horsies.core.worker.notes import NoteWriter
from horsies.core.worker.shutdown import ForcedShutdown, Shutdown, sign_off
from horsies.core.worker.snapshots import Snapshots
from horsies.core.worker.start import Apart, Starter
from horsies.core.worker.startup import (
    ConnectionPools,
    LooksChoice,
    Persistence,
    install_schema,
    warn_without_session,
)
from horsies.core.worker.statistics import Statistics

if TYPE_CHECKING:
    from horsies.core.worker.metrics import Exposure

log = logging.getLogger("horsies.worker")


class Worker:
    """One worker process. `run` returns its exit code: 0 after a clean end, 1 if it interrupted tasks or gave up.
    `launcher` is given by a program that has already forked its fork server."""

    def __init__(
        self,
        app: Horsies,
        config: WorkerConfig | None = None,
        on_ready: Callable[[], None] = lambda: None,
        launcher: Launcher | None = None,
    ) -> None:
        self.plan = Plan.of(app, config or WorkerConfig())
        self._launcher = launcher or Launcher()
        self.me = identify()
        self._stop, self._force, self._on_ready = asyncio.Event(), asyncio.Event(), on_ready
        self._services: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._is_cut_off = self._is_winding_down = self._is_told_to_stop = False

    @property
    def worker_id(self) -> str:
        return self.me.worker_id

    def request_stop(self) -> None:
        """Finish running tasks, then end; a second call ends at once (W-50, W-52)."""
        if self._is_told_to_stop:  # also if it drains (W-55): the first signal kills nothing
            self._force.set()
        self._is_told_to_stop = True
        self._stop.set()

    async def run(self, *, install_signals: bool = False) -> int:
        """Serve until asked to stop."""
        return await self._run(until=self._stop.wait, install_signals=install_signals)

    async def run_once(self) -> int:
        """Run the tasks that can be claimed now, then return."""
        return await self._run(until=self._until_dry, install_signals=False)

    async def _until_dry(self) -> None:
        last = background.LastLook(self._recovery.rounds, lambda: self._in_hand.taken, self._claimer.ring)
        while not (self._stop.is_set() or (self._is_idle() and self._advancer.is_idle and last.found_nothing())):
            await asyncio.sleep(0.01)

    async def _run(self, *, until: Callable[[], Coroutine[Any, Any, Any]], install_signals: bool) -> int:
        distribution.refuse_other()
        if install_signals:
            loop = asyncio.get_running_loop()
            for sig in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(sig, self.request_stop)
        self._build()
        try:
            if self._exposure is not None:
                await self._exposure.open()
            if await self._has_started():
                if self._exposure is not None:
                    self._exposure.serves()
                self._on_ready()
                await self._serve(until)
        except (children.ChildBroken, DatabaseGone, HorsiesError) as problem:
            self._failure = self._failure or problem
            log.error("the worker stops: %s", problem)
        finally:
            await self._close()
        code = 1 if self._failure is not None or self._is_cut_off else 0
        log.info("worker stopped: %s", self._outcomes.in_all(), extra={"horsies": {"worker": self.worker_id}})
        if not isinstance(self._failure, children.ChildBroken | DatabaseGone | HorsiesError | None):
            raise self._failure
        return code

    # Putting together

    def _build(self) -> None:
        plan, me = self.plan, self.me
        self._pools = ConnectionPools(plan)
        self._database = self._pools.database
        self._journal = Journal(me.worker_id, me.process_start, plan.journal_slots)
        most = plan.recovery.max_recoveries_per_task if plan.recovery.enabled else None
        self._in_hand = InHand(lambda row: row.recoveries > 0 and is_last_chance(row.recoveries, most))
        self._in_hand.on_drop = self._journal.release
        self._outcomes = finalize.OutcomeLog(me.worker_id)
        self._fence = fence.Fence.of(plan.app.config.recovery, plan.recovery)
        self._capped = plan.limits.capped_queues()
        self._children = children.Children(
            self._launcher, plan.child_spec, plan.processes, self._journal, on_change=self._on_room
        )
        self._build_helper()
        self._build_stages()
        self._build_liveness()
        self._recovery = background.RecoveryServices(
            plan,
            me,
            pool=self._pools.care,
            patient=self._pools.patient,
            hooks=self._hooks,
            pulse=self._fence.pulse,
            on_ended=self._advancer.put_all,
            build_later=self._advancer.build_later,
            looks=LooksChoice(self._is_idle, self._database, self._pools.care),
            is_idle=self._is_idle,
            code=lambda: self._heartbeats.code,
        )
        self._listener = self._build_listener()
        self._exposure = None if plan.config.metrics_port is None else self._build_exposure()
        spans = tracing.supervisor(me.worker_id)
        self._unsubscribe = () if spans is None else (events.subscribe(spans),)

    def _build_exposure(self) -> "Exposure":
        from horsies.core.worker.metrics import Exposure

        return Exposure(
            self.plan,
            self.me,
            claimer=self._claimer,
            children=self._children,
            listener=self._listener,
            pulse=self._fence.pulse,
            in_hand=self._in_hand,
            outcomes=self._outcomes,
            is_stopping=self._stop.is_set,
        )

    def _build_helper(self) -> None:
        """What calls user code that is not a task."""
        helper = HelperChild(self._launcher, self.plan.child_spec)
        self._hooks = helper_calls.HelperHookCaller(helper, lambda: self._children.hook_events)
        self._builder = helper_calls.HelperBuilder(helper)
        self._schedules = background.schedule_steps(self.plan, self._pools.care, helper, lambda: self._is_winding_down)
        self._forced = ForcedShutdown(self._database, self._in_hand, self._hooks)

    def _build_stages(self) -> None:
        """The way of a task: claimer, starter, dispatcher, finalizer, advancer."""
        plan, me = self.plan, self.me
        resilience = plan.app.config.resilience
        connections = finalize.ConnectionChoice(self._in_hand, self._database, self._pools.bulk)
        self._finalizer = finalize.Finalizer(connections, me.worker_id, resilience, self._settled, self._stuck)
        self._advancer = advance.Advancer(
            self._pools.flows,
            self._builder,
            resilience,
            on_enqueued=lambda: self._claimer.ring(),
            companion=lambda: advance.Along(self._claimer),
            lag=advance.Lag(me.worker_id, plan.app.config.recovery.crashed_worker_recovery_grace_ms / 4000),
        )
        self._dispatcher = dispatch.Dispatcher(
            in_hand=self._in_hand,
            children=self._children,
            finalizer=self._finalizer,
            limits=plan.limits,
            fence=self._fence,
            max_tasks_per_child=plan.config.max_tasks_per_child,
            max_memory_mb=plan.config.max_memory_per_child_mb,
            crash_of=self._crash_of,
            on_room=self._on_room,
            entry_of=self._journal.entry,
        )
        self._apart = Apart(self._in_hand, self._dispatcher, self._children, self._finalizer)
        self._starter = Starter(
            me,
            connections=connections,
            in_hand=self._in_hand,
            children=self._children,
            dispatcher=self._dispatcher,
            finalizer=self._finalizer,
            apart=self._apart,
            aborts=self._outcomes.aborts,
            on_ended=self._advancer.put,
        )
        self._who = tasks.Claimant(me.worker_id, plan.lease, plan.recovery.enabled)
        self._claimer = claim.Claimer(
            self._database,
            self._who,
            plan.limits,
            wake_key=me.liveness_key,
            leaves_unknown=plan.leaves_unknown,
            in_hand=self._in_hand,
            children=self._children,
            dispatcher=self._dispatcher,
            starter=self._starter,
            poll_s=plan.poll_s,
            is_deaf=not plan.postgres.has_sessions,
            on_claimed=self._on_claimed,
            on_ended=self._advancer.put,
            on_ahead=lambda ahead: self._recovery.deadlines.saw(ahead),
        )
        self._dispatcher.on_lost = self._claimer.unknown.suspect
        self._notes = NoteWriter(self._pools.care, me.worker_id, self._dispatcher)

    def _build_liveness(self) -> None:
        """What the worker says about itself, and what it does when nobody hears it."""
        self._self_fence = fence.SelfFence(self._fence, self._children, self._dispatcher)
        self._heartbeats = Heartbeats(
            self._connect("horsies heart"),
            self.plan,
            self.me,
            who=self._who,
            in_hand=self._in_hand,
            children=self._children,
            stop=self._dispatcher.stop,
            fence=self._fence,
            self_fence=self._self_fence,
            on_drain=self._stop.set,
        )
        self._pings = questions.Pings(self._database, self.me, self._heartbeats.register)
        self._lost_claims = questions.Questions(self._check_claims, questions.CHECK_PAUSE_S)
        self._statistics = Statistics(self._pools.care, self._outcomes, self._fence.pulse)
        self._snapshots = Snapshots(self._database, self.me, self.plan.snapshot_settings, self._in_hand, self._children)

    def _connect(self, name: str, *, session: bool = False) -> Callable[[], Awaitable[Connection]]:
        return partial(connect, self.plan.postgres, session=session, name=name, options=BY_INDEX)

    def _build_listener(self) -> Listener:
        resilience = self.plan.app.config.resilience
        backoff = Backoff(resilience.db_retry_initial_ms / 1000, resilience.db_retry_max_ms / 1000)
        session = self._connect("horsies worker listener", session=True)
        listener = Listener(
            session if self.plan.postgres.has_sessions else None, backoff=backoff, name="worker listener"
        )
        listener.on_session(lambda conn: workers.hold_liveness(conn, self.me.liveness_key))
        listener.on_reconnect(self._claimer.listens_anew)
        listener.on_reconnect(self._fence.pulse.back)
        listener.on_lost(self._fence.pulse.lost)
        listener.subscribe(workers.wake_channel(self.me.liveness_key), self._claimer.call)
        listener.subscribe("horsies_claim_lost", self._on_claim_lost)
        listener.subscribe("horsies_worker_ping", self._pings.hear)
        return listener

    # Starting (W-03)

    async def _has_started(self) -> bool:
        """False if it was told to stop before it had started; a partial start is not waited for."""
        starting, stopping = asyncio.create_task(self._startup()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
            return starting.done() and not self._stop.is_set()
        finally:
            await cancel_all((starting, stopping))

    async def _startup(self) -> None:
        persistently = Persistence(self.plan.app.config.resilience, self._stop, self._fence.pulse)
        # The children check the app. Meanwhile the database is only read: an app with errors must not change it.
        children = asyncio.create_task(self._children.start())
        schema = asyncio.create_task(persistently("schema", partial(self._install_schema, children)))
        try:
            await asyncio.gather(children, schema)
        finally:
            await cancel_all((children, schema))
        if self._stop.is_set():
            return
        self.plan.heed_kinds(has_async=bool(self._children.async_names))
        warmed_mb = max((child.first_rss_mb for child in self._children.children), default=0.0)
        if (warning := self.plan.refuse_too_small_memory_limit(warmed_mb)) is not None:
            log.warning(warning)
        await self._listener.start()
        await persistently("registration", self._heartbeats.register)
        if self._stop.is_set():
            return
        log.info(self.plan.headline(), extra={"horsies": {"worker": self.worker_id, "pid": self.me.pid}})
        if (defaults := self.plan.defaults()) is not None:
            log.info(defaults)
        warn_without_session(self.plan)

    async def _install_schema(self, app_is_checked: asyncio.Task[None]) -> None:
        self._claimer.mark.notify = await install_schema(self.plan.postgres, partial(asyncio.shield, app_is_checked))
        log.debug("schema checked")

    # Serving

    async def _serve(self, until: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        recovery = self.plan.app.config.recovery
        self._finalizing = self._spawn(self._finalizer.run())
        self._spawn(self._finalizer.run_beside())
        self._spawn(self._children.keep_up())
        self._serve_step("starter", self._starter.step)
        self._serve_step("claimer", self._claimer.step)
        self._serve_step("advancer", self._advancer.step)
        self._serve_step("builder", self._advancer.build)
        # A worker whose heartbeat failed must not wait long before it tries again.
        self._serve_step("heartbeats", self._heartbeats.step, self._fence.terms.shortest_s / 8)
        self._serve_step("pings", self._pings.step)
        self._serve_step("lost claims", self._lost_claims.step)
        beside = (("notes", self._notes.step), ("statistics", self._statistics.step))
        for name, step in (*beside, *self._recovery.steps(), *self._schedules):
            self._serve_step(name, step)
        self._serve_step(
            "snapshots",
            every(recovery.worker_state_snapshot_interval_ms / 1000, self._snapshots.snapshot, at_once=True),
        )
        self._serve_step("outcome log", every(finalize.PERIOD_S, self._outcomes.tell))
        self._serve_step("ticks", self._tick)
        waiting = asyncio.create_task(until())
        try:
            await asyncio.wait({waiting, *self._services}, return_when=asyncio.FIRST_COMPLETED)
            self._raise_failed()
        finally:
            waiting.cancel()
            await self._wind_down()

    async def _wind_down(self) -> None:
        """Stop claiming, then end in order. A worker that gave up on its database cannot write anything more."""
        self._is_winding_down = True
        if isinstance(self._failure, DatabaseGone) or self._finalizing.done():
            self._force.set()
        grace_ms = self.plan.config.shutdown_grace_ms
        shutdown = Shutdown(
            in_hand=self._in_hand,
            claimer=self._claimer,
            starter=self._starter,
            dispatcher=self._dispatcher,
            children=self._children,
            advancer=self._advancer,
            unwritable=self._finalizer.unwritable,
            force=self._force,
            grace_s=None if grace_ms is None else grace_ms / 1000,
            cut_off=self._cut_off,
        )
        await shutdown.run()
        await self._forced.tell()

    async def _cut_off(self) -> None:
        await self._forced.look()
        self._is_cut_off = True

    async def _close(self) -> None:
        """End children and services, delete the worker's row as the last step (W-53), and close the connections."""
        await self._hooks.close()
        await self._children.close()
        await cancel_all(self._services)
        await self._notes.flush()
        await self._statistics.close()
        await sign_off(self._claimer, self._heartbeats, may_retry=not isinstance(self._failure, DatabaseGone))
        await self._listener.stop()
        await self._heartbeats.close()
        await self._pools.close()
        if self._exposure is not None:
            await self._exposure.close()  # last, so that it can answer that the worker stops
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        # Others recover the tasks that are still in hand, and the journal tells them which have begun.
        self._journal.close() if self._in_hand else self._journal.remove()

    def _serve_step(self, name: str, step: Callable[[], Awaitable[None]], longest_pause_s: float = math.inf) -> None:
        self._spawn(Service(name, self.plan.app.config.resilience, step, longest_pause_s).run())

    def _spawn(self, service: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(service)
        self._services.add(task)
        task.add_done_callback(self._service_ended)
        return task

    def _service_ended(self, service: asyncio.Task[None]) -> None:
        """A service that fails while the worker stops leaves unfinished work that nobody must wait for."""
        if self._is_winding_down and not service.cancelled() and (problem := service.exception()) is not None:
            self._failure = self._failure or problem
            log.error("the worker stops at once: %s", problem)
            self._force.set()

    def _raise_failed(self) -> None:
        for service in self._services:
            if service.done() and not service.cancelled() and (problem := service.exception()) is not None:
                self._failure = problem
                raise problem

    async def _tick(self) -> None:
        await asyncio.sleep(self._fence.tick_s if self._in_hand else self._fence.idle_tick_s)
        self._self_fence.check()
        self._children.dismiss_idle()
        if self._apart.is_waiting():
            self._starter.wake()

    # What happens

    def _is_idle(self) -> bool:
        return self._claimer.is_dry and not self._in_hand

    def _on_claimed(self) -> None:
        self._starter.wake()
        self._heartbeats.soon()

    def _on_room(self) -> None:
        self._starter.wake()
        self._claimer.room()

    def _settled(self, held: HeldTask, move: Move, moved: bool) -> None:
        self._in_hand.drop(held)
        self._dispatcher.feed_on()
        if self._forced.views:
            self._forced.settled(held, move, moved)
        if moved:
            self._outcomes.note(held, move)
            if isinstance(move, Leave) or self._claimer.left.has_met_any:
                self._claimer.left.ended(held.row.task_name, move)
            if isinstance(move, Retry):
                self._claimer.expect(move.delay_s)
        else:
            self._claimer.unknown.suspect()
        if held.row.workflow_id is not None and finalize.may_be_the_end(move, moved):
            self._advancer.put(held.id, held.row.workflow_id)
        # Where there is room under a cap again, a task may have waited for it.
        self._claimer.ring() if held.row.queue_name in self._capped else self._claimer.room()

    def _stuck(self, held: HeldTask) -> None:
        """Its code has ended or has never begun, so nothing has to wait for it (R-58)."""
        self._in_hand.suspects.discard(held)
        self._on_room()

    def _crash_of(self, held: HeldTask, child: children.Child, how: str) -> Move:
        if self._is_cut_off:
            return finalize.of_forced_shutdown(held, self.worker_id, self.me.hostname, child.pid, self.plan.recovery)
        decide = finalize.of_crash if held.phase is Phase.STARTED else finalize.of_failed_start
        return decide(held, self.worker_id, self.me.hostname, child.pid, child.account(how))

    def _on_claim_lost(self, task_id: str) -> None:
        if self._may_be_lost(task_id):
            self._lost_claims.put(task_id)

    def _may_be_lost(self, task_id: str) -> bool:
        held = self._in_hand.held.get(task_id)
        return held is not None and held.phase is not Phase.SETTLING

    async def _check_claims(self, task_ids: list[str]) -> None:
        await self._heartbeats.check([self._in_hand.held[id_] for id_ in task_ids if self._may_be_lost(id_)])
