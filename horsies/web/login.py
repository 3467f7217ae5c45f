"""One token for all (M-93): it is given once on a login page, and from then on a cookie stands for it. The cookie is
signed with a key that is derived from the token and says until when it is valid, so nothing has to be stored, and a new
token makes all old cookies invalid. Attempts are limited, for each address and for all of them together.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from horsies.core.errors import ConfigurationError, ErrorCode
from horsies.web.answers import Refusal
from horsies.web.render import render
from horsies.web.security import path_in, refuse_foreign, root_of

COOKIE = "horsies_session"
VALID_S = 12 * 3600
SHORTEST_TOKEN = 16
PER_MINUTE = 5  # failed attempts of one address
PER_MINUTE_IN_ALL = 30
MINUTE_S = 60.0
MOST_ADDRESSES = 1_000
MOST_ENDED = 10_000
FORM = "application/x-www-form-urlencoded"
_COOKIE = re.compile(r"(?P<until>[0-9]{1,12})\.(?P<nonce>[0-9a-f]{32})\.(?P<mac>[0-9a-f]{64})", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x20\x7f\\]")


class Token:
    """Who knows the token may look and, with `allow_actions`, act."""

    def __init__(
        self,
        token: str,
        *,
        allow_actions: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if len(token) < SHORTEST_TOKEN:
            raise ConfigurationError(
                f"the token of the dashboard must have at least {SHORTEST_TOKEN} characters",
                code=ErrorCode.CONFIG_INVALID,
                help_text="openssl rand -hex 32 makes one",
            )
        self._digest = _digest(token)
        self._key = hmac.digest(token.encode(), b"horsies dashboard session", "sha256")
        self._allow_actions = allow_actions
        self._clock = clock
        self._ended: OrderedDict[str, None] = OrderedDict()  # cookies of those who have logged out, here
        self.attempts = LoginAttempts()

    async def can_view(self, request: Request) -> bool:
        return self.is_valid(request.cookies.get(COOKIE, ""))

    async def can_act(self, request: Request) -> bool:
        return self._allow_actions and await self.can_view(request)

    def actor(self, request: Request) -> str:
        return "token"

    async def login_url(self, request: Request) -> str:
        """The login page, which leads back."""
        query = request.scope.get("query_string", b"").decode("latin-1")
        path = path_in(request.scope)
        wanted = safe_next(f"{path}?{query}" if query else path)
        return f"{root_of(request.scope)}/login?next={quote(wanted, safe='')}"

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(_digest(given), self._digest)

    def new_cookie(self) -> str:
        signed = f"{int(self._clock()) + VALID_S}.{secrets.token_hex(16)}"
        return f"{signed}.{self._mac(signed)}"

    def is_valid(self, cookie: str) -> bool:
        found = _COOKIE.fullmatch(cookie)
        if found is None or not hmac.compare_digest(found["mac"], self._mac(f"{found['until']}.{found['nonce']}")):
            return False
        return self._clock() < int(found["until"]) and found["nonce"] not in self._ended

    def end(self, cookie: str) -> None:
        """This cookie is not accepted any more by this process."""
        if self.is_valid(cookie):
            self._ended[cookie.split(".")[1]] = None
            while len(self._ended) > MOST_ENDED:
                self._ended.popitem(last=False)

    def _mac(self, signed: str) -> str:
        return hmac.new(self._key, signed.encode(), "sha256").hexdigest()


class LoginAttempts:
    """Failed attempts of the last minute. Few addresses are remembered; whoever uses many meets the limit for all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: deque[float] = deque()
        self._by_address: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_for(self, address: str) -> float:
        """After how many seconds this address may try; 0: now."""
        now = self._clock()
        waits = [_wait(self._all, PER_MINUTE_IN_ALL, now)]
        if (known := self._by_address.get(address)) is not None:
            waits.append(_wait(known, PER_MINUTE, now))
        return max(waits)

    def failed(self, address: str) -> None:
        now = self._clock()
        self._all.append(now)
        self._by_address.setdefault(address, deque()).append(now)
        self._by_address.move_to_end(address)
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._by_address.pop(address, None)


def login_routes(policy: Token) -> list[Route]:
    """The page that asks for the token, and what it sends."""

    async def ask(request: Request) -> Response:
        return render(request, "login.html", next=safe_next(request.query_params.get("next", "")), problem=None)

    async def check(request: Request) -> Response:
        refuse_foreign(request)
        address = request.client.host if request.client is not None else ""
        given, wanted = await _form(request)
        if (wait := policy.attempts.wait_for(address)) > 0:
            headers = {"Retry-After": str(int(wait) + 1)}
            problem = "Too many attempts. Try again in a minute."
            return render(request, "login.html", 429, headers, next=wanted, problem=problem)
        if not policy.is_token(given):
            policy.attempts.failed(address)
            return render(request, "login.html", 403, next=wanted, problem="This is not the token.")
        policy.attempts.succeeded(address)
        answer = RedirectResponse(f"{root_of(request.scope)}{quote(wanted, safe='/?&=%:,+~')}", 303)
        answer.set_cookie(
            COOKIE,
            policy.new_cookie(),
            max_age=VALID_S,
            path=_cookie_path(request),
            secure=_is_https(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    async def leave(request: Request) -> Response:
        refuse_foreign(request)
        policy.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(f"{root_of(request.scope)}/login", 303)
        answer.delete_cookie(COOKIE, path=_cookie_path(request), httponly=True, samesite="strict")
        return answer

    return [
        Route("/login", ask, methods=["GET"], name="login"),
        Route("/login", check, methods=["POST"]),
        Route("/logout", leave, methods=["POST"], name="logout"),
    ]


def safe_next(path: str) -> str:
    """A place of our own to go to after the login: nothing that a browser could take for another host."""
    if not path.startswith("/") or path.startswith("//") or _CONTROL.search(path) or not path.isprintable():
        return "/"
    return path


async def _form(request: Request) -> tuple[str, str]:
    """The token and the place to go to."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Refusal(415, "UNSUPPORTED_MEDIA_TYPE", f"the login expects a form ({FORM})")
    try:
        fields = parse_qs((await request.body()).decode("utf-8"), max_num_fields=10)
    except ValueError:
        raise Refusal(400, "BAD_FORM", "this is not a form") from None
    return fields.get("token", [""])[0].strip(), safe_next(fields.get("next", ["/"])[0])


def _cookie_path(request: Request) -> str:
    """As a browser writes it in addresses, with which it compares the path."""
    return quote(root_of(request.scope), safe="/:@!$&'()*+=~") or "/"


def _is_https(request: Request) -> bool:
    """Behind a proxy that ends TLS only the browser knows."""
    return request.scope["scheme"] == "https" or request.headers.get("origin", "").startswith("https://")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _wait(times: deque[float], most: int, now: float) -> float:
    while times and times[0] <= now - MINUTE_S:
        times.popleft()
    return 0.0 if len(times) < most else times[-most] + MINUTE_S - now
