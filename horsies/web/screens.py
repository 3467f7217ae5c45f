"""How a screen is declared, and what is shown to people instead of one: a refusal as a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from horsies.web.answers import Refusal
from horsies.web.endpoints import with_any_text
from horsies.web.render import render


@dataclass(frozen=True, slots=True)
class Screen:
    """A screen: `path` below the mount, and the function that answers. It may raise a `Refusal`. A screen that
    `needs_tables` is not asked while nothing can be read. One that `acts` answers to POST, for those who may act and
    mean it, as an action of the API does. The part of the path that is called `any_text` may have slashes in it."""

    path: str
    show: Callable[[Request], Awaitable[Response]]
    needs_tables: bool = True
    acts: bool = False
    any_text: str = ""

    @property
    def route(self) -> str:
        """The path as the router reads it."""
        return with_any_text(self.path, {self.any_text})

    @property
    def method(self) -> str:
        return "POST" if self.acts else "GET"


def refusal_page(request: Request, refusal: Refusal) -> Response:
    return render(
        request,
        "error.html",
        refusal.status,
        refusal.headers,
        status=refusal.status,
        code=refusal.code,
        message=refusal.message,
    )
