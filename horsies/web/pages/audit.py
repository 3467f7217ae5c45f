"""The record of what people did through dashboards and commands (M-94), the newest first."""

from __future__ import annotations

from starlette.responses import Response

from horsies import monitoring
from horsies.web.pages.frame import Viewer, query, with_viewer
from horsies.web.screens import Screen

PAGE_SIZE = 50
POLL_S = 10


async def audit(viewer: Viewer) -> Response:
    asked = {name: viewer.param(name) for name in ("actor", "action", "target")}
    after = viewer.param("after")
    page = await viewer.read(
        monitoring.list_audit,
        actor=asked["actor"] or None,
        action=asked["action"] or None,
        target_id=asked["target"] or None,
        limit=PAGE_SIZE,
        after=after or None,
    )
    return await viewer.show(
        "audit.html",
        "Audit",
        poll=POLL_S,
        page=page,
        asked=asked,
        after=after,
        first_query=query(**asked),
        next_query=query(**asked, after=page.next_cursor) if page.next_cursor else "",
    )


SCREENS = (Screen("/audit", with_viewer(audit)),)
