"""The helper child (W-01): user code of the app that is not a task. It calls the recovery hooks for the worker, builds
child workflows with the `build_with` of their definitions (F-60), and encodes the arguments of schedules.

`HookServer` is the work of its main thread. It reports which handler it is about to call, so that the worker knows
which one hung or died. Handlers are called one after the other: async ones on an event loop that lives as long as the
child, plain ones in the same thread. If one blocks, the worker kills this process. Below it are the messages between
the worker and its helper, as JSON and without I/O: events and answers of recovery hooks, requests to build a workflow,
requests for the payloads of schedules. When the helper is started and what it is asked is decided in the worker
(`helper_process.py`, `helper_calls.py`).
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from horsies.core import hooks
from horsies.core.child import wire
from horsies.core.child.io import Inbox, Item, Uplink
from horsies.core.models import codes, tasks
from horsies.core.models.workflow.plan import WorkflowPlan, plan_from_json, plan_to_json
from horsies.core.models.workflow.registry import BuildFailed, BuildRequest
from horsies.core.recovery.hooks import Handlers
from horsies.core.scheduler.payloads import UNDATED, Wanted
from horsies.core.types import Err, Ok, Result, TaskStatus

log = logging.getLogger("horsies.child")

# The kind of a request; the other kinds are the names of the events of recovery.
BUILD = b"BuildRequest"
WANTED = b"Wanted"


class HookServer:
    """Replaces the `Runner` of other children. The io thread calls `tokens` and `stop`."""

    def __init__(
        self,
        registry: hooks.HookRegistry,
        build: Callable[[BuildRequest], WorkflowPlan],
        prepare: Callable[[Wanted], Result[tasks.TaskSendPayload, str]],
        inbox: Inbox,
        uplink: Uplink,
        limit_s: float,
    ) -> None:
        self._build = build
        self._prepare = prepare
        self._inbox = inbox
        self._uplink = uplink
        self._handlers = Handlers(registry, limit_s=limit_s, before=self._say_before)
        self._token = 0
        self._loop = asyncio.new_event_loop()
        self._bell = asyncio.Event()

    def serve(self) -> None:
        """Answer requests until the worker says goodbye."""
        self._inbox.notify(self._ring)
        serving = self._loop.create_task(self._serve())
        while not serving.done():
            try:
                self._loop.run_until_complete(serving)
            except (SystemExit, KeyboardInterrupt) as error:
                # The exceptions of handlers are caught, so this comes from something that a handler left on the loop.
                log.error("%s in a background task or callback was ignored", type(error).__name__)

    def close(self) -> None:
        """Cancel what handlers have left on the loop, and let it clean up."""
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(BaseException):
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _ring(self) -> None:
        self._loop.call_soon_threadsafe(self._bell.set)

    def tokens(self) -> list[int]:
        return []  # it has no tasks to beat for

    def stop(self, token: int) -> None:
        pass

    async def _serve(self) -> None:
        while True:
            self._bell.clear()
            item = self._inbox.poll()
            if item is not None:
                await self._answer(item)
            elif self._inbox.is_closed:
                return
            else:
                await self._bell.wait()

    async def _answer(self, item: Item) -> None:
        self._token = item.token
        name, content = item.parts[0], item.parts[1]
        if name == BUILD:
            answer = self._built(content)
        elif name == WANTED:
            answer = self._prepared(content)
        else:
            answer = await self._said(name, content)
        self._inbox.held.discard(item.token)
        self._uplink.send(wire.pack(wire.Kind.ANSWER, item.token, answer))

    async def _said(self, name: bytes, content: bytes) -> bytes:
        event = event_of(name, content)
        if isinstance(event, hooks.JobRecovery):
            return pack_decision(await self._handlers.decide(event))
        await self._handlers.tell(event)
        return b""

    def _built(self, content: bytes) -> bytes:
        request = build_of(content)
        self._say_before(f"build_with of {request.definition_key}")
        try:
            return pack_plan(self._build(request))
        except BuildFailed as problem:
            return pack_failure(problem)
        except BaseException as problem:  # also SystemExit, because user code must not end the helper
            log.exception("build_with of the workflow %r failed", request.definition_key)
            return pack_failure(BuildFailed(f"{type(problem).__name__}: {problem}"))

    def _prepared(self, content: bytes) -> bytes:
        wanted = wanted_of(content)
        self._say_before(f"the arguments of {wanted.name}")
        return pack_payload(self._prepare(wanted))

    def _say_before(self, handler: str) -> None:
        self._uplink.send(wire.pack(wire.Kind.STARTED, self._token, handler.encode("utf-8", "replace")))


_NAMES = {event: event.__name__ for event in hooks.EVENTS}
_INSTANTS = ("enqueued_at", "claimed_at", "started_at", "good_until")
_PLAIN = {
    answer.name: answer
    for answer in (
        hooks.JobRecoveryResult.Default,
        hooks.JobRecoveryResult.FailWithBackoff,
        hooks.JobRecoveryResult.Skip,
    )
}


def pack_event(event: hooks.Event) -> tuple[bytes, bytes]:
    """The name of the event and its content."""
    return _NAMES[type(event)].encode(), json.dumps(_flat(event), default=_plain).encode()


def event_of(name: bytes, content: bytes) -> hooks.Event:
    """The inverse of `pack_event`."""
    given = json.loads(content)
    if "job" in given:
        given["job"] = _job(given["job"])
        given["reason"] = hooks.FailureReason(given["reason"])
    match name:
        case b"JobRecovery":
            return hooks.JobRecovery(**given)
        case b"JobInterrupted":
            return hooks.JobInterrupted(**given)
        case b"WorkerRecovered":
            return hooks.WorkerRecovered(**given)
    raise ValueError(f"there is no event {name!r}")


def pack_decision(decision: hooks.Decision) -> bytes:
    content: dict[str, Any] = {"name": decision.name}
    if isinstance(decision, hooks.JobRecoveryResult.Reschedule):
        content |= {"run_at": decision.run_at.isoformat(), "attempts": decision.attempts}
    return json.dumps(content).encode()


def decision_of(content: bytes) -> hooks.Decision:
    """The inverse of `pack_decision`. ValueError, KeyError or TypeError if the message is invalid."""
    given = json.loads(content)
    if given["name"] == "Reschedule":
        return hooks.JobRecoveryResult.Reschedule(datetime.fromisoformat(given["run_at"]), given["attempts"])
    return _PLAIN[given["name"]]


def _flat(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else _flat(value)


def _job(given: dict[str, Any]) -> hooks.Job:
    for name in _INSTANTS:
        if given[name] is not None:
            given[name] = datetime.fromisoformat(given[name])
    return hooks.Job(**{**given, "status": TaskStatus(given["status"])})


_PLAN, _FAILED = b"+", b"-"  # the first byte of an answer to a build request


def pack_build(request: BuildRequest) -> tuple[bytes, bytes]:
    """The kind of the request and its content."""
    content = {
        "definition_key": request.definition_key,
        "kwargs_json": request.kwargs_json,
        "injected": dict(request.injected),
        "depth": request.depth,
    }
    return BUILD, json.dumps(content).encode()


def build_of(content: bytes) -> BuildRequest:
    """The inverse of `pack_build`."""
    return BuildRequest(**json.loads(content))


def pack_plan(plan: WorkflowPlan) -> bytes:
    return _PLAN + plan_to_json(plan)


def pack_failure(problem: BuildFailed) -> bytes:
    content = {"message": str(problem), "code": problem.code.value}
    return _FAILED + json.dumps(content).encode()


def plan_of(answer: bytes) -> WorkflowPlan:
    """The plan. `BuildFailed` if there is none; ValueError, KeyError or TypeError if the answer is invalid."""
    kind, content = answer[:1], answer[1:]
    if kind == _PLAN:
        return plan_from_json(content)
    if kind != _FAILED:
        raise ValueError(f"neither a plan nor a failure: {kind!r}")
    given = json.loads(content)
    raise BuildFailed(given["message"], codes.OperationalErrorCode(given["code"]))


_TIMES = ("sent_at", "good_until")  # a payload of a schedule has neither


def pack_wanted(wanted: Wanted) -> tuple[bytes, bytes]:
    """The kind of the request and its content."""
    return WANTED, json.dumps(wanted).encode()


def wanted_of(content: bytes) -> Wanted:
    """The inverse of `pack_wanted`."""
    return Wanted(*json.loads(content))


def pack_payload(answer: Result[tasks.TaskSendPayload, str]) -> bytes:
    if isinstance(answer, Err):
        return json.dumps({"problem": answer.error}).encode()
    return json.dumps({name: value for name, value in asdict(answer.value).items() if name not in _TIMES}).encode()


def payload_of(answer: bytes) -> Result[tasks.TaskSendPayload, str]:
    """The inverse of `pack_payload`. ValueError, KeyError or TypeError if the answer is invalid."""
    fields = json.loads(answer)
    if "problem" in fields:
        return Err(str(fields["problem"]))
    return Ok(tasks.TaskSendPayload(sent_at=UNDATED, good_until=None, **fields))
