"""What every request and every answer of the dashboard is held to (M-93), whatever its policy says: known hosts, small
bodies that arrive in time, headers that keep a browser from doing more than showing, and for whatever changes something
the same origin and a header that no form can send. The decisions are plain functions of headers; `Guard` is the one
ASGI middleware that applies them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from horsies.web.answers import Refusal, refusal_answer

log = logging.getLogger("horsies.web")
LARGEST_BODY = 64 << 10
BODY_S = 10.0
INTENT_HEADER, INTENT = "X-Horsies-Intent", "action"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(
    r"(?P<name>[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?\.?|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


def host_name(header: str) -> str | None:
    """The name in a Host header, without port and brackets; None if it is not a host."""
    found = _HOST.fullmatch(header.strip().lower())
    return None if found is None else found["name"].strip("[]").rstrip(".")


def is_allowed_host(headers: Headers, allowed: Collection[str] | None) -> bool:
    """Another name for this address may belong to an attacker whose page the browser has loaded (DNS rebinding)."""
    if allowed is None:
        return True
    given = headers.getlist("host")
    names = {name.lower().strip("[]").rstrip(".") for name in allowed}
    return len(given) == 1 and host_name(given[0]) in names


def is_same_origin(headers: Headers) -> bool:
    """Whether the request comes from a page of our own, or from a program that is no browser. A browser says so itself
    (Sec-Fetch-Site), or names the page (Origin); what it says of both must be right."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        return False
    origins = headers.getlist("origin")
    if not origins:
        return True
    hosts = headers.getlist("host")
    return len(origins) == 1 and len(hosts) == 1 and _is_origin_of(origins[0], hosts[0])


def _is_origin_of(origin: str, host: str) -> bool:
    """The scheme is not compared: behind a proxy that ends TLS, ours is another one than the browser's."""
    try:
        parts = urlsplit(origin)
        default = _DEFAULT_PORTS[parts.scheme]
        theirs = (parts.hostname or "").rstrip("."), parts.port or default
    except (ValueError, KeyError):
        return False
    found = _HOST.fullmatch(host.strip().lower())
    if found is None or parts.path or parts.query or parts.fragment or parts.username is not None:
        return False
    return theirs == (found["name"].strip("[]").rstrip("."), int(found["port"] or default))


def is_meant_by_a_person(headers: Headers, *, is_page: bool) -> bool:
    """A page of another site may lead to our pages with a link. But it must not make a browser ask our API, or load our
    pages as its pictures: it could not read them, but asking costs."""
    if headers.get("sec-fetch-site") != "cross-site":
        return True
    return is_page and headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"


def has_intent(headers: Headers) -> bool:
    """A form cannot send this header, and a script of another origin must ask first, which we do not answer."""
    return headers.getlist(INTENT_HEADER) == [INTENT]


def refuse_foreign(request: Request) -> None:
    """Raise unless the request comes from our own origin."""
    if not is_same_origin(request.headers):
        raise Refusal(403, "WRONG_ORIGIN", "this request comes from a page of another origin")


def refuse_embedded(request: Request) -> None:
    """Raise if a page of another site asks by itself."""
    is_page = not path_in(request.scope).startswith("/api/")
    if not is_meant_by_a_person(request.headers, is_page=is_page):
        raise Refusal(403, "WRONG_ORIGIN", "this request comes from a page of another site")


def refuse_unintended(request: Request) -> None:
    """Raise unless the request says that it is meant."""
    if not has_intent(request.headers):
        raise Refusal(403, "INTENT_MISSING", f"an action needs the header {INTENT_HEADER}: {INTENT}")


class Guard:
    """Around everything else: it also answers what nobody has caught."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str] | None, body_seconds: float = BODY_S) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answering = _Answering(send, is_head=scope["method"] == "HEAD")
        headers = Headers(scope=scope)
        try:
            if not is_allowed_host(headers, self._allowed_hosts):
                raise Refusal(400, "UNKNOWN_HOST", "this host name is not allowed here (--allowed-host, allowed_hosts)")
            _refuse_large(headers)
            await self._app(scope, _LimitedBody(receive, self._body_seconds), answering.send)
        except Refusal as refusal:
            await answering.instead(refusal, scope, receive)
        except Exception:
            log.exception("a request to the dashboard failed")
            if answering.has_begun:
                raise
            failed = Refusal(500, "INTERNAL_ERROR", "this request failed; the log of the dashboard says why")
            await answering.instead(failed, scope, receive)


class _Answering:
    """Adds the headers to the answer."""

    def __init__(self, send: Send, *, is_head: bool) -> None:
        self._send = send
        self._is_head = is_head
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
            message = {**message, "headers": headers.raw}
        elif message["type"] == "http.response.body" and self._is_head:
            message = {**message, "body": b""}
        await self._send(message)

    async def instead(self, refusal: Refusal, scope: Scope, receive: Receive) -> None:
        if self.has_begun:
            raise refusal
        await refusal_answer(refusal)(scope, receive, self.send)


class _LimitedBody:
    """The body of a request, which must be small and arrive in time."""

    def __init__(self, receive: Receive, seconds: float) -> None:
        self._receive = receive
        self._seconds = seconds
        self._size = 0
        self._deadline: float | None = None
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()  # to learn that the client has gone, which may take as long as it likes
        loop = asyncio.get_running_loop()
        self._deadline = self._deadline or loop.time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, "BODY_TOO_SLOW", f"the body did not arrive within {self._seconds:g} s") from None
        if message["type"] != "http.request":
            self._is_whole = True
            return message
        self._size += len(message.get("body", b""))
        if self._size > LARGEST_BODY:
            raise _too_large()
        self._is_whole = not message.get("more_body", False)
        return message


def _refuse_large(headers: Headers) -> None:
    length = headers.get("content-length", "0")
    if length.isdigit() and int(length[:20]) > LARGEST_BODY:
        raise _too_large()


def _too_large() -> Refusal:
    return Refusal(413, "BODY_TOO_LARGE", f"a body may have at most {LARGEST_BODY} bytes")


def path_in(scope: Mapping[str, Any]) -> str:
    """The path of a request below the place where the dashboard is mounted."""
    root, path = str(scope.get("root_path", "")).rstrip("/"), str(scope["path"])
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def root_of(scope: Mapping[str, Any]) -> str:
    """Where the dashboard is mounted, without a slash at the end."""
    return str(scope.get("root_path", "")).rstrip("/")
