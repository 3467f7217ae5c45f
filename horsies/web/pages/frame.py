"""What all screens share: the frame around them, who may act, and the parameters in the address.

The state of a screen is in its address (M-91), so that it can be sent to a colleague and is kept when the page
refreshes itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.web import pacing
from horsies.web.answers import Refusal
from horsies.web.api import WebMeta, meta
from horsies.web.dashboard import Dashboard, dashboard_of
from horsies.web.endpoints import Asked, answered
from horsies.web.login import Token
from horsies.web.render import render
from horsies.web.schema_state import SchemaState
from horsies.web.security import root_of

T = TypeVar("T")
LONGEST_VALUE = 300
MOST_VALUES = 20


@dataclass(frozen=True, slots=True)
class NavEntry:
    """An entry of the navigation; `key` follows `g` on the keyboard."""

    name: str
    path: str
    key: str


NAVIGATION = (
    NavEntry("Overview", "/", "o"),
    NavEntry("Tasks", "/tasks", "t"),
    NavEntry("Failures", "/failures", "f"),
    NavEntry("Queues", "/queues", "q"),
    NavEntry("Workflows", "/workflows", "w"),
    NavEntry("Workers", "/workers", "k"),
    NavEntry("Schedules", "/schedules", "s"),
    NavEntry("Audit", "/audit", "a"),
)


@dataclass(frozen=True, slots=True)
class Notice:
    """A line above every page."""

    text: str
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Viewer:
    """One request for a page: the dashboard, and what whoever looks may do."""

    request: Request
    dashboard: Dashboard
    meta: WebMeta
    now: datetime

    @property
    def root(self) -> str:
        return root_of(self.request.scope)

    def param(self, name: str, default: str = "") -> str:
        """A parameter of the address, at most so long."""
        return self.request.query_params.get(name, default).strip()[:LONGEST_VALUE]

    def params(self, name: str) -> list[str]:
        """A parameter that may be given several times."""
        given = (value.strip()[:LONGEST_VALUE] for value in self.request.query_params.getlist(name))
        return [value for value in dict.fromkeys(given) if value][:MOST_VALUES]

    def one_of(self, name: str, known: Sequence[str], default: str) -> str:
        """A parameter that has one of these values; anything else counts as not given."""
        value = self.param(name)
        return value if value in known else default

    async def read(self, question: Callable[..., Awaitable[MonitoringResult[T | None]]], *args: Any, **named: Any) -> T:
        """The answer of the query API, masked; raises a `Refusal` if there is none."""
        return await self.masked(answered(await question(self.dashboard.broker, *args, **named)))

    async def masked(self, answer: T) -> T:
        """The same without what is not shown (M-93)."""
        masking = self.dashboard.masking
        return answer if masking.is_off else await asyncio.to_thread(masking.applied_to, answer)

    def path(self, *parts: object) -> str:
        """A path below the mount; parts may be foreign texts."""
        return f"{self.root}/" + "/".join(quote(str(part), safe="") for part in parts)

    async def show(
        self,
        template: str,
        current: str,
        *,
        topics: str = "",
        ids: str = "",
        poll: int = 0,
        drawn: Callable[[], Mapping[str, Any]] = dict,
        **values: Any,
    ) -> Response:
        """The page. `topics` are those of live updates that concern it, `ids` those it is about, and `poll` is how
        often it refreshes without them, in seconds. `drawn` makes those of its values that take a while. All is made in
        a thread, because streams and other requests must not wait for a large page."""
        frame = {
            "screens": NAVIGATION,
            "current": current,
            "notice": self._notice(),
            "can_act": self.meta.can_act,
            "why_not": self.meta.actions_disabled_reason,
            "has_app": self.meta.has_app,
            "can_log_out": isinstance(self.dashboard.policy, Token),
            "now": self.now,
            "path": self.path,
            "task_path": lambda task_id: self.path("tasks", task_id),
            "workflow_path": lambda workflow_id: self.path("workflows", workflow_id),
            "worker_path": lambda worker_id: self.path("workers", worker_id),
            "query": query,
            "topics": topics,
            "ids": ids,
            "poll": poll or "",
        }
        return await asyncio.to_thread(lambda: render(self.request, template, **{**frame, **values, **drawn()}))

    def _notice(self) -> Notice | None:
        if self.meta.schema_state is SchemaState.MISMATCH:
            known, found = self.meta.expected_schema_version, self.meta.schema_version
            return Notice(
                f"The tables are of version {found}, and this dashboard knows version {known}: it can only read."
            )
        return None


def query(**params: Any) -> str:
    """The query of an address, without empty parameters; begins with `?` if there are any."""
    pairs = [
        (name, str(one))
        for name, value in params.items()
        for one in (value if isinstance(value, list | tuple) else [value])
        if one not in (None, "", False)
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


async def viewer_of(request: Request) -> Viewer:
    dashboard = dashboard_of(request)
    return Viewer(request, dashboard, await meta(Asked(dashboard, request)), datetime.now(UTC))


def with_viewer(show: Callable[[Viewer], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A function of a viewer as the answer of a route. Pages that refresh themselves share answers, and are told when
    to come again."""

    async def answer(request: Request) -> Response:
        viewer = await viewer_of(request)

        async def make() -> Response:
            began = monotonic()
            made = await show(viewer)
            wait_s = pacing.wait_after(monotonic() - began, len(viewer.dashboard.streams))
            made.headers[pacing.WAIT_HEADER] = str(round(wait_s * 1000))
            return made

        if pacing.REFRESH_HEADER not in request.headers:
            return await make()
        scope = request.scope  # not `request.url`: what stands in the Host header could change its path
        key = (viewer.root, scope["path"], scope["query_string"], viewer.meta.can_act)
        return await viewer.dashboard.shared.get(key, make, told_at=viewer.dashboard.streams.told_at)

    return answer


def not_found(what: str) -> Refusal:
    return Refusal(404, "NOT_FOUND", f"there is no such {what}")


def grouped(rows: Sequence[T], by: Callable[[T], str]) -> Mapping[str, list[T]]:
    """The rows by a text, in the order of their first appearance."""
    found: dict[str, list[T]] = {}
    for row in rows:
        found.setdefault(by(row), []).append(row)
    return found
