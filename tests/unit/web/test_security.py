"""The decisions about hosts, origins and bodies (M-93), and what policies and settings refuse (M-60, M-62)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from horsies.core.errors import ConfigurationError
from horsies.web import AllowAll, Token, TrustedHeader, ViewOnly, WebConfig, create_monitoring_app
from horsies.web.login import MOST_ADDRESSES, PER_MINUTE, LoginAttempts, safe_next
from horsies.web.policies import actor_of
from horsies.web.security import Guard, host_name, is_allowed_host, is_same_origin
from horsies.web.server import addresses_of, are_loopback
from tests.each import each
from tests.web_support import raw, scope_of

URL = "postgresql://nobody@localhost:1/none"


def headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.lower().encode(), value.encode("latin-1")) for name, value in pairs])


@each(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8600", "localhost"),
        ("localhost.", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8600", "::1"),
        ("[::1]", "::1"),
        ("::1", None),
        ("localhost:", None),
        ("localhost:99999999", None),
        ("user@localhost", None),
        ("localhost/evil", None),
        ("localhost, evil", None),
        ("local host", None),
        ("", None),
        ("[::1", None),
        ("-x", None),
        ("lоcalhost", None),  # with a letter of another alphabet
    ],
)
def test_m93_the_name_in_a_host_header(header: str, name: str | None) -> None:
    assert host_name(header) == name


def test_m93_a_request_has_one_host_and_it_is_a_known_one() -> None:
    known = ("LOCALHOST", "[::1]", "jobs.example.com.")
    for host in ("localhost", "[::1]:8600", "jobs.example.com"):
        assert is_allowed_host(headers(("Host", host)), known)
    assert not is_allowed_host(headers(), known)
    assert not is_allowed_host(headers(("Host", "localhost"), ("Host", "localhost")), known)
    assert not is_allowed_host(headers(("Host", "x.jobs.example.com")), known)
    assert is_allowed_host(headers(("Host", "anything at all")), None), "an outer application checks it"


@each(
    ("origin", "host", "is_same"),
    [
        ("http://localhost:8600", "localhost:8600", True),
        ("http://localhost", "localhost", True),
        ("http://localhost", "localhost:80", True),
        ("https://example.com", "example.com", True),
        ("https://example.com", "example.com:443", True),
        ("http://[::1]:8600", "[::1]:8600", True),
        ("http:" + "//LOCALHOST:8600", "localhost:8600", True),
        ("https://example.com", "example.com:80", False),
        ("http://localhost:8601", "localhost:8600", False),
        ("http://localhost", "localhost:8600", False),
        ("http://localhost:8600/path", "localhost:8600", False),
        ("http://user@localhost:8600", "localhost:8600", False),
        ("ftp://localhost", "localhost", False),
        ("file://", "localhost", False),
        ("null", "localhost", False),
        ("", "localhost", False),
        ("http://[::1", "localhost", False),
        ("http://localhost:99999", "localhost", False),
    ],
)
def test_m93_an_origin_is_ours_or_not(origin: str, host: str, is_same: bool) -> None:
    assert is_same_origin(headers(("Host", host), ("Origin", origin))) is is_same


def test_m93_what_a_browser_says_of_the_site_counts() -> None:
    assert is_same_origin(headers(("Host", "x")))
    assert is_same_origin(headers(("Host", "x"), ("Sec-Fetch-Site", "same-origin")))
    for site in ("cross-site", "same-site", "none", ""):
        assert not is_same_origin(headers(("Host", "x"), ("Sec-Fetch-Site", site)))
    twice = (("Host", "localhost"), ("Origin", "http://localhost"), ("Origin", "http://localhost"))
    assert not is_same_origin(headers(*twice))


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


async def test_m93_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    guarded = Guard(echo, allowed_hosts=None, body_seconds=0.05)
    status, _, body = await raw(guarded, scope_of("/", method="POST"), b"{", b"")
    assert status == 408 and b"BODY_TOO_SLOW" in body
    assert (await raw(guarded, scope_of("/", method="POST"), b"{}", is_whole=True))[0] == 200


async def test_m93_a_body_in_many_small_pieces_has_no_more_time() -> None:
    guarded = Guard(echo, allowed_hosts=None, body_seconds=0.2)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await guarded(scope_of("/", method="POST"), receive, send)
    assert sent[0]["status"] == 408


async def test_m93_a_length_that_is_a_lie_is_refused() -> None:
    guarded = Guard(echo, allowed_hosts=None)
    large = {"Content-Length": "99999999999999999999999999"}
    assert (await raw(guarded, scope_of("/", large, method="POST"), b""))[0] == 413
    small = {"Content-Length": "1"}
    assert (await raw(guarded, scope_of("/", small, method="POST"), b"x" * 70_000))[0] == 413


async def test_m64_what_nobody_expected_is_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the secret reason")

    status, found, body = await raw(Guard(broken, allowed_hosts=None), scope_of("/"))
    assert status == 500 and b"secret" not in body and "content-security-policy" in found
    assert "the secret reason" in caplog.text


def request_with(*pairs: tuple[str, str]) -> Request:
    return Request({"type": "http", "headers": headers(*pairs).raw})


async def test_m62_the_policies() -> None:
    nobody = request_with()
    for policy, may in [(AllowAll(), (True, True)), (ViewOnly(), (True, False))]:
        assert (await policy.can_view(nobody), await policy.can_act(nobody)) == may
        assert actor_of(policy, nobody) == "anonymous"


@each(
    ("pairs", "is_known"),
    [
        ([("X-User", "ada")], True),
        ([("x-user", " ada ")], True),
        ([], False),
        ([("X-User", "")], False),
        ([("X-User", "  ")], False),
        ([("X-User", "ada"), ("X-User", "eve")], False),
        ([("X-Users", "ada")], False),
    ],
)
async def test_m62_a_trusted_header_names_exactly_one_user(pairs: list[tuple[str, str]], is_known: bool) -> None:
    request = request_with(*pairs)
    assert await TrustedHeader("X-User").can_view(request) is is_known
    assert not await TrustedHeader("X-User").can_act(request)
    policy = TrustedHeader("X-User", allow_actions=True)
    assert await policy.can_act(request) is is_known
    assert policy.actor(request) == ("ada" if is_known else "anonymous")


@each("policy", [None, AllowAll, object(), "none"])
def test_m60_a_policy_must_be_given_and_be_one(policy: Any) -> None:
    with pytest.raises(ConfigurationError):
        create_monitoring_app(URL, auth_policy=policy)
    with pytest.raises(TypeError):
        create_monitoring_app(URL)  # type: ignore[call-arg]


def test_m60_settings_that_mean_something_else_are_refused() -> None:
    for wrong in ({"allowed_hosts": "localhost"}, {"mask": "password"}):
        with pytest.raises(ConfigurationError):
            WebConfig(**wrong)  # type: ignore[arg-type]
    for name in ("", "X User", "X:User", "Ünïcode"):
        with pytest.raises(ConfigurationError):
            TrustedHeader(name)
    with pytest.raises(ConfigurationError):
        Token("too short")


def test_m93_attempts_are_forgotten_after_a_minute_and_by_a_success() -> None:
    now = [0.0]
    attempts = LoginAttempts(clock=lambda: now[0])
    for _ in range(PER_MINUTE):
        assert attempts.wait_for("a") == 0
        attempts.failed("a")
    assert attempts.wait_for("a") > 0 and attempts.wait_for("b") == 0
    now[0] = 60.0
    assert attempts.wait_for("a") == 0
    attempts.failed("a")
    attempts.succeeded("a")
    assert attempts.wait_for("a") == 0


def test_m93_the_memory_of_attempts_is_bounded() -> None:
    now = [0.0]
    attempts = LoginAttempts(clock=lambda: now[0])
    for number in range(3 * MOST_ADDRESSES):
        now[0] += 10.0
        attempts.failed(str(number))
    assert len(attempts._by_address) <= MOST_ADDRESSES
    attempts.wait_for("x")
    assert len(attempts._all) <= 6


def test_m93_a_place_of_our_own() -> None:
    assert safe_next("/tasks") == "/tasks"
    for place in ("tasks", "//x", "/\\x", "/ x", "/\x00", "http://localhost", ""):
        assert safe_next(place) == "/"


@each(
    ("host", "is_private"),
    [("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("0.0.0.0", False), ("192.0.2.1", False), ("::", False)],
)
def test_m61_only_loopback_is_private(host: str, is_private: bool) -> None:
    assert are_loopback(addresses_of(host)) is is_private


@each("host", ["no such host", "x" * 300, "999.1.1.1"])
def test_m60_a_host_that_does_not_exist_is_an_error(host: str) -> None:
    with pytest.raises(ConfigurationError):
        addresses_of(host)
