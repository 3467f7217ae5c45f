"""One act after the other, by chance; after each the database is what the model says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

from psycopg import AsyncConnection

from horsies.core.tasks.moves import Claim, Move
from tests.proof_pairs.choices import Choices
from tests.proof_workflows import engine as acts
from tests.proof_workflows.engine import Broke, Engine, LibraryBuilder, Pool
from tests.proof_workflows.model import World, top_of
from tests.proof_workflows.plans import SIZES, goes_over_lists, library, workflow
from tests.proof_workflows.rules import matches
from tests.proof_workflows.stored import differences, read
from tests.proof_workflows.workflow import Node, Task, Workflow

STEPS = 40
NOTHING = -1  # has happened
MOST_STEPS = 1000
LATE = """
    UPDATE horsies_{} SET good_until = clock_timestamp() - interval '1 s'
    WHERE {} = ANY(%s) AND good_until IS NOT NULL
"""
LAGGING = """
    SELECT DISTINCT r.workflow_id FROM horsies_workflow_tasks r
    JOIN horsies_workflow_tasks e USING (workflow_id, map_index)
    WHERE r.status = 'READY' AND e.status IN ('ENQUEUED', 'RUNNING')
"""
CLEAR = "TRUNCATE horsies_workflows, horsies_workflow_tasks, horsies_tasks, horsies_task_attempts"


class Story:
    """A world, the database beside it, and what has been told so far."""

    def __init__(self, pool: Pool, watch: AsyncConnection[Any], pick: Choices, tally: Counter[str]) -> None:
        self._pool, self._watch, self._pick, self._tally = pool, watch, pick, tally
        made = library(pick)
        self._library = made
        self._builder = LibraryBuilder(made)
        self._engine = Engine(pool, self._builder)
        self.world = World(made.find)
        self._told: list[str] = []
        self._has_faults = True

    async def tell(self) -> None:
        await self._watch.execute(CLEAR)
        await self._begin()
        for _ in range(self._pick.of((STEPS, 10, 20))):
            await self._act()
        await self._bring_to_an_end()

    async def _act(self) -> None:
        await self._pick.of(
            [
                *[self._end] * 5,
                *[self._advance] * 5,
                *[self._start] * 3,
                *[self._claim] * 2,
                self._pause,
                self._resume,
                self._resume,
                self._retry,
                self._retry,
                self._reconcile,
                self._cancel,
                self._pass_deadline,
                self._begin,
            ]
        )()

    # Acts

    async def _begin(self) -> None:
        if len(self.world.roots) >= 2:
            return
        size = self._pick.of(SIZES)
        plan = workflow(self._pick, f"root{len(self.world.roots)}", size, self._library, list(self._library.plans))
        has_deadline = self._pick.of((False, False, True))
        self._say(f"start {plan}{' with a deadline' if has_deadline else ''}")
        begun = self.world.begin(plan, has_deadline=has_deadline)
        begun.id = await self._engine.begin(plan, has_deadline=has_deadline)
        await self._compare()

    async def _claim(self) -> None:
        most = self._pick.of((100, 1, 3))
        could = self.world.claimable()
        self._say(f"claim {most}")
        rows = await self._engine.claim(most)
        by_id = {task.id: task for task in could}
        wrong = [row.id for row in rows if row.id not in by_id]
        assert not wrong and len(rows) == min(most, len(could)), self._tale([f"claimed {rows}, could be {set(by_id)}"])
        for row in rows:
            by_id[row.id].status, by_id[row.id].seq = "CLAIMED", row.claim_seq
        await self._compare()

    async def _start(self) -> None:
        chosen = self._some([task for task in self.world.tasks() if task.status == "CLAIMED"])
        if not chosen:
            await self._claim()
            return
        self._say(f"start {_names(chosen)}")
        started, locked = await self._engine.start([_claim(task) for task in chosen])
        expected = {task.id for task in chosen if self.world.start(task)}
        assert started == expected and not locked, self._tale([f"started {started}, should be {expected}; {locked}"])
        await self._compare()

    async def _end(self) -> None:
        chosen = self._some([task for task in self.world.tasks() if task.status == "RUNNING"])
        if not chosen:
            await self._start()
            return
        moves = [self._move(task) for task in chosen]
        self._say(f"end {_names(chosen)}: {', '.join(type(move).__name__ for move in moves)}")
        moved = await self._engine.end(moves)
        assert moved == {task.id for task in chosen}, self._tale([f"moved {moved}"])
        await self._compare()

    def _move(self, task: Task) -> Move:
        """What becomes of it, in the model at once."""
        claim, node = _claim(task), task.node
        how = self._pick.of(("ok", "ok", "ok", "err", "ok", "crash", "retry"))
        is_source = node.map is None and goes_over_lists(node.workflow.plan, node.index)
        if how == "ok":
            value: Any = f"{node.name} {task.seq}"
            if is_source and (node.workflow.plan.on_error == "PAUSE" or self._pick.of((True, True, True, False))):
                value = [[1, {"a": None}, "c"], [], [0], list(range(5))][self._pick.of(range(4))]
            move: Move = acts.complete(claim, value)
            self.world.end(task, "COMPLETED", {"ok": value})
        elif how == "retry" and not node.workflow.has_deadline:
            move = acts.retry(claim)
            task.status = "PENDING"
        else:
            failed = acts.crash(claim) if how == "crash" else acts.fail(claim, f"CODE_{node.index % 3}")
            move = failed
            self.world.end(task, "FAILED", json.loads(failed.result))
        return move

    async def _advance(self) -> None:
        told = self._some([task for task in self.world.tasks() if task.is_ended and not task.node.is_ended])
        again = self._some([task for task in self.world.tasks() if task.node.is_ended or not task.is_ended], most=2)
        if not told:
            await self._end()
            return
        chosen = [*told, *again]
        self._say(f"advance {_names(chosen)}")
        ids = [task.id or "" for task in self._shuffled(chosen)]
        await self._do(
            lambda world: world.advance(_same_tasks(world, ids)),
            lambda: self._engine.advance(ids),
        )

    async def _pause(self) -> None:
        one = self._pick.of(list(self.world.workflows()))
        await self._control("pause", one, World.pause, self._engine.pause)

    async def _resume(self) -> None:
        paused = [one for one in self.world.workflows() if one.status == "PAUSED"]
        one = self._pick.of(paused or list(self.world.workflows()))
        await self._control("resume", one, World.resume, self._engine.resume)

    async def _cancel(self) -> None:
        one = self._pick.of(list(self.world.workflows()))
        await self._control("cancel", one, World.cancel, self._engine.cancel)

    async def _retry(self) -> None:
        failed = [node for node in self.world.nodes() if node.status == "FAILED" and node.map is None]
        node: Node = self._pick.of(failed or list(self.world.nodes()))
        if node.map is not None:
            return
        names = self._pick.of((None, [node.name]))
        await self._control(
            f"retry {names or 'what failed'} of",
            node.workflow,
            lambda world, one: world.retry(one, names),
            lambda workflow_id: self._engine.retry(workflow_id, names),
        )

    async def _control(
        self,
        what: str,
        one: Workflow,
        in_model: Callable[[World, Workflow], bool],
        really: Callable[[str], Awaitable[bool | None]],
    ) -> None:
        self._say(f"{what} {one.plan.name} {one.id}")
        self._tally[what.split()[0]] += 1
        await self._do(lambda world: in_model(world, _same(world, one)), lambda: really(one.id or ""))

    async def _pass_deadline(self) -> None:
        open_ones = [root for root in self.world.roots if root.has_deadline and not root.is_late and not root.is_over]
        if not open_ones:
            await self._advance()
            return
        root = self._pick.of(open_ones)
        tree = [one for one in self.world.workflows() if top_of(one) is root]
        self._say(f"the deadline of {root.id} passes")
        ids = [one.id for one in tree]
        await self._watch.execute(LATE.format("workflows", "id"), [ids])
        await self._watch.execute(LATE.format("tasks", "workflow_id"), [ids])
        await self._do(
            lambda world: world.expire(_same(world, root)), lambda: self._engine.expire([one or "" for one in ids])
        )

    async def _reconcile(self) -> None:
        self._say("reconcile")
        await self._do(World.reconcile, self._engine.reconcile)

    # The end

    async def _bring_to_an_end(self) -> None:
        """Whatever is paused is resumed, whatever can run runs and ends well: then everything has ended."""
        self._has_faults = False
        for _ in range(200):
            await self._claim()
            while paused := next((one for one in self.world.workflows() if one.status == "PAUSED"), None):
                await self._control("resume", paused, World.resume, self._engine.resume)
            if claimed := [task for task in self.world.tasks() if task.status == "CLAIMED"]:
                self._say("start all")
                started, _ = await self._engine.start([_claim(task) for task in claimed])
                assert started == {task.id for task in claimed if self.world.start(task)}, self._tale(["start"])
            if running := [task for task in self.world.tasks() if task.status == "RUNNING"]:
                self._say("end all")
                await self._engine.end([acts.complete(_claim(task), [1]) for task in running])
                for task in running:
                    self.world.end(task, "COMPLETED", {"ok": [1]})
            await self._reconcile()
            if all(one.is_over for one in self.world.workflows()):
                break
        wrong = [f"{one.plan.name} {one.id} is still {one.status}" for one in self.world.workflows() if not one.is_over]
        wrong += [f"{node.name} is still {node.status}" for node in self.world.nodes() if not node.is_ended]
        wrong += [f"{node.name} was not built with {node.injected}" for node in self._not_built_as_told()]
        assert not wrong, self._tale(wrong)

    def _not_built_as_told(self) -> Iterator[Node]:
        """Sub-workflow nodes whose definition was never called with what they should give it (F-60, F-61)."""
        asked: dict[str, list[dict[str, Any]]] = {}
        for request in self._builder.asked:
            given = {name: json.loads(text) for name, text in request.injected.items()}
            asked.setdefault(request.definition_key, []).append(json.loads(request.kwargs_json or "{}") | given)
        for node in self.world.nodes():
            key, is_built = node.plan.sub_workflow_key or "", node.injected is not None and bool(node.plan.dependencies)
            if is_built and node.plan.join == "all" and not any(matches(node.injected, one) for one in asked[key]):
                yield node

    # Telling

    async def _do(self, in_model: Callable[[World], object], really: Callable[[], Awaitable[object]]) -> None:
        """Now and then the connection breaks at some statement, or the helper child dies: then it has happened or not,
        and reconciliation completes it."""
        fault = self._pick.of((None, None, None, *range(12))) if self._has_faults else None
        death = self._pick.of((None, None, None, 0, 1)) if self._has_faults and fault is None else None
        can_pause = any(one.plan.on_error == "PAUSE" for one in self.world.workflows())
        before = self.world.copy() if can_pause or fault is not None or death is not None else None
        expected = in_model(self.world)
        self._pool.breaks_after, self._builder.dies_after = fault, death
        try:
            found = await really()
            is_whole = (self._pool.breaks_after is None) == (fault is None) and self._builder.dies_after == death
            assert expected is None or found is expected, self._tale([f"the answer is {found}, should be {expected}"])
        except (Broke, ConnectionError) as problem:
            self._told[-1] += f" ({type(problem).__name__} after {fault if death is None else death})"
            is_whole = False
        self._pool.breaks_after = self._builder.dies_after = None
        if not is_whole:
            self._tally["faults"] += 1
            await self._engine.reconcile()
            await self._fill_maps()
            self.world.reconcile()
        await self._compare(self._others(before, in_model, is_whole=is_whole) if before else ())

    async def _fill_maps(self) -> None:
        """Reconciliation leaves a map alone while elements of it are on their way: their ends will show free places."""
        found = await (await self._watch.execute(LAGGING)).fetchall()
        await self._engine.go_on([workflow_id for (workflow_id,) in found])

    def _others(self, before: World, in_model: Callable[[World], object], *, is_whole: bool) -> Iterator[World]:
        """What may have happened instead, as far as the rules leave it open."""
        no_yes = (False, True)
        for splits, closes_late, goes_by_id in product(no_yes, no_yes, no_yes):
            for stop in (None,) if is_whole else (None, NOTHING, *range(MOST_STEPS)):
                world = before.copy()
                world.splits, world.closes_late, world.goes_by_id = splits, closes_late, goes_by_id
                world.stops_after = stop
                if stop != NOTHING:
                    in_model(world)
                    if world.stops_after is not None:
                        break  # it was over before
                world.stops_after = None
                if not is_whole:
                    world.reconcile()
                world.splits = world.closes_late = world.goes_by_id = False
                yield world

    async def _compare(self, others: Iterable[World] = ()) -> None:
        self._tally["steps"] += 1
        stored = await read(self._watch)
        self.world.leave_open()
        wrong = differences(self.world, stored)
        for world in others if wrong else ():
            world.leave_open()
            if not differences(world, stored):
                self.world = world
                return
        assert not wrong, self._tale(wrong)

    def _say(self, what: str) -> None:
        self.world.step += 1
        self._told.append(what)

    def _tale(self, wrong: list[str]) -> str:
        known = map(str, self._library.plans.items())
        return "\n".join(["", *wrong, "after", *self._told[-60:], "definitions:", *known])

    def _some(self, options: list[Task], most: int = 9) -> list[Task]:
        count = self._pick.of((1, 2, 1, 3, most)) if options else 0
        return self._shuffled(options)[: min(count, most)]

    def _shuffled(self, options: list[Task]) -> list[Task]:
        if len(options) > 12:  # a draw for each would use up all choices
            place = self._pick.of(range(len(options)))
            return options[place:] + options[:place]
        return self._pick.shuffled(options)


def _same(world: World, one: Workflow) -> Workflow:
    """The same workflow in that world."""
    return next(workflow for workflow in world.workflows() if workflow.id == one.id)


def _same_tasks(world: World, ids: Sequence[str]) -> list[Task]:
    by_id = {task.id: task for task in world.tasks()}
    return [by_id[task_id] for task_id in ids]


def _claim(task: Task) -> Claim:
    return Claim(task.id or "", task.seq)


def _names(chosen: list[Task]) -> str:
    return ", ".join(f"{task.node.workflow.plan.name}/{task.node.name} {task.id}" for task in chosen)
