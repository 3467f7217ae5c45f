"""The dashboard: a JSON API, live updates and pages over one database (M-60). It needs the extra `web`."""

from importlib.util import find_spec

from horsies.core.distribution import pip_install
from horsies.core.errors import ConfigurationError, ErrorCode

MISSING = [name for name in ("starlette", "jinja2") if find_spec(name) is None]
if MISSING:
    raise ConfigurationError(
        f"the dashboard needs the package {MISSING[0]}, which is not installed",
        code=ErrorCode.CLI_INVALID_ARGS,
        help_text=pip_install("web"),
    )

from horsies.web.app import create_monitoring_app  # noqa: E402
from horsies.web.config import WebConfig  # noqa: E402
from horsies.web.login import Token  # noqa: E402
from horsies.web.policies import AllowAll, AuthPolicy, TrustedHeader, ViewOnly  # noqa: E402

__all__ = ["AllowAll", "AuthPolicy", "Token", "TrustedHeader", "ViewOnly", "WebConfig", "create_monitoring_app"]
