"""Who may look at the dashboard, and who may act (M-62). `login.py` has one more policy, which asks for a token."""

from typing import Protocol, runtime_checkable

from starlette.requests import Request

from horsies.core.errors import ConfigurationError, ErrorCode

ANONYMOUS = "anonymous"
LONGEST_ACTOR = 200


class AuthPolicy(Protocol):
    """Decides about each request. It may also have `actor(request) -> str`, which says who acts, and `async
    login_url(request) -> str | None`: where a person goes who may not look."""

    async def can_view(self, request: Request) -> bool: ...

    async def can_act(self, request: Request) -> bool: ...


@runtime_checkable
class NamesActors(Protocol):
    """A policy that knows who sends a request."""

    def actor(self, request: Request) -> str: ...


@runtime_checkable
class HasLogin(Protocol):
    """A policy with a place to log in."""

    async def login_url(self, request: Request) -> str | None: ...


class AllowAll:
    """Everybody may look and act."""

    async def can_view(self, request: Request) -> bool:
        return True

    async def can_act(self, request: Request) -> bool:
        return True


class ViewOnly:
    """Everybody may look, nobody may act."""

    async def can_view(self, request: Request) -> bool:
        return True

    async def can_act(self, request: Request) -> bool:
        return False


class TrustedHeader:
    """Whoever a proxy has named in this header may look and, with `allow_actions`, act. The proxy must remove the
    header from what its own clients send."""

    def __init__(self, header_name: str = "X-Forwarded-User", allow_actions: bool = False) -> None:
        if not header_name.isascii() or not header_name.replace("-", "").replace("_", "").isalnum():
            raise ConfigurationError(
                f"{header_name!r} is not the name of a header",
                code=ErrorCode.CONFIG_INVALID,
            )
        self._name = header_name
        self._allow_actions = allow_actions

    async def can_view(self, request: Request) -> bool:
        return self._user(request) is not None

    async def can_act(self, request: Request) -> bool:
        return self._allow_actions and self._user(request) is not None

    def actor(self, request: Request) -> str:
        return self._user(request) or ANONYMOUS

    def _user(self, request: Request) -> str | None:
        """Of two headers one may have been sent by the client."""
        given = request.headers.getlist(self._name)
        return given[0].strip() or None if len(given) == 1 else None


def actor_of(policy: AuthPolicy, request: Request) -> str:
    """Who sends this request, as far as the policy knows."""
    return policy.actor(request)[:LONGEST_ACTOR] if isinstance(policy, NamesActors) else ANONYMOUS
