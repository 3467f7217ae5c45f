"""The setting `HORSIES` of a Django project, as an `AppConfig`: what it may contain, which database it means, and what
is wrong with it. The address is made of what Django would connect with, as libpq reads it; nothing is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from horsies.core.errors import HorsiesError, MultipleValidationErrors
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.queues import QueueMode
from horsies.core.text import instead_of

NAME = "HORSIES"
INLINE = "inline"
# What only Django needs to know. All other names are fields of the `AppConfig`, in small or in capital letters.
OURS = ("DATABASE", "BROKER", "TASK_MODULES", "TESTING", "DASHBOARD_URL", "MASK", "HIDE_PAYLOADS")
OF_THE_APP = tuple(name for name in AppConfig.model_fields if name != "broker")
OF_THE_BROKER = tuple(name for name in PostgresConfig.model_fields if name != "database_url")
# What Django tells psycopg, or itself, and libpq does not know.
_NOT_LIBPQ = ("assume_role", "context", "cursor_factory", "isolation_level", "pool", "prepare_threshold",
              "server_side_binding")  # fmt: skip
_IN_THE_URL = ("user", "password", "host", "port", "dbname", "options", "client_encoding")


def given() -> dict[str, Any]:
    """The setting as the project has it; empty if there is none."""
    value = getattr(settings, NAME, None) or {}
    if not isinstance(value, Mapping):
        raise ImproperlyConfigured(f"{NAME} must be a dict, not {type(value).__name__}")
    return dict(value)


def option(name: str, default: Any = None) -> Any:
    """One of the names that only Django needs."""
    return given().get(name, default)


def alias() -> str:
    """The database of the app, as `DATABASES` calls it."""
    found = option("DATABASE", DEFAULT_DB_ALIAS)
    if not isinstance(found, str) or found not in connections:
        known = ", ".join(sorted(connections))
        raise ImproperlyConfigured(f"{NAME}['DATABASE'] names {found!r}, which is not in DATABASES ({known})")
    return found


def connection_params(using: str) -> dict[str, Any]:
    """What Django would give to psycopg at this moment: the name of a test database while tests run."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        engine = connection.settings_dict["ENGINE"]
        raise ImproperlyConfigured(
            f"horsies needs PostgreSQL, and DATABASES[{using!r}] has the engine {engine!r}; "
            f"{NAME} = {{'DATABASE': '…'}} names another database"
        )
    params = dict(connection.get_connection_params())
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:  # Django sets it with a statement; the server takes it at the start too
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        params["options"] = f"{params.get('options') or ''} -c role={escaped}".strip()
    return params


def url_of(params: Mapping[str, Any]) -> str:
    """A URL for libpq. A socket's directory, and whatever else a URL has no place for, are parameters of it."""
    text = {name: str(value) for name, value in params.items() if name not in _NOT_LIBPQ and value not in (None, "")}
    rest = {name: value for name, value in text.items() if name not in _IN_THE_URL}
    if "options" in text:
        rest["options"] = text["options"]
    host, port = text.get("host", ""), text.get("port", "")
    if host.startswith(("/", "@")) or "," in host:  # a socket, or several servers
        rest |= {"host": host} | ({"port": port} if port else {})
        place = ""
    else:
        place = (f"[{host}]" if ":" in host else quote(host, safe="")) + (f":{port}" if port else "")
    who = quote(text.get("user", ""), safe="")
    if "password" in text:
        who += f":{quote(text['password'], safe='')}"
    query = f"?{urlencode(rest, quote_via=quote)}" if rest else ""
    return f"postgresql+psycopg://{who}{'@' if who else ''}{place}/{quote(text.get('dbname', ''), safe='')}{query}"


def key_of(using: str) -> tuple[Any, ...]:
    """What the address is made of. It is compared at every send, so it is only looked up."""
    facts = connections[using].settings_dict
    return using, facts["NAME"], facts["USER"], facts["PASSWORD"], facts["HOST"], facts["PORT"]


def problems() -> Iterator[str]:
    """What is wrong with the names in `HORSIES`."""
    for name in given():
        if not isinstance(name, str) or (name not in OURS and name.lower() not in OF_THE_APP):
            known = (*OURS, *OF_THE_APP)
            hint = (
                instead_of(str(name), known)
                or instead_of(str(name).lower(), known)
                or f"; known are {', '.join(known)}"
            )
            yield f"{NAME} has no option {name!r}{hint}"
    broker = option("BROKER", {})
    for name in broker if isinstance(broker, Mapping) else ():
        if name not in OF_THE_BROKER:
            hint = instead_of(str(name), OF_THE_BROKER) or f"; known are {', '.join(OF_THE_BROKER)}"
            why = " (the address comes from DATABASES)" if name == "database_url" else hint
            yield f"{NAME}['BROKER'] has no option {name!r}{why}"
    if option("TESTING") not in (None, False, INLINE):
        yield f"{NAME}['TESTING'] must be {INLINE!r} or None, not {option('TESTING')!r}"
    modules = option("TASK_MODULES", ())
    if isinstance(modules, str) or not all(isinstance(module, str) for module in modules):
        yield f"{NAME}['TASK_MODULES'] must be a list of names of modules"


def make_config() -> AppConfig:
    """The configuration for this moment, or `ImproperlyConfigured` with everything that is wrong."""
    if found := list(problems()):
        raise ImproperlyConfigured("; ".join(found))
    fields = {name.lower(): value for name, value in given().items() if name not in OURS}
    if fields.get("custom_queues"):
        fields.setdefault("queue_mode", QueueMode.CUSTOM)
    url = url_of(connection_params(alias()))
    try:
        broker = PostgresConfig(**{**dict(option("BROKER", {})), "database_url": url})
        return AppConfig(broker=broker, **fields)
    except (HorsiesError, MultipleValidationErrors) as problem:
        for one in getattr(problem, "errors", [problem]):
            one.location = None  # the setting is a dict, wherever it is read
        raise ImproperlyConfigured(f"{NAME}: {problem}") from None
