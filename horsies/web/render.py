"""Pages for people, from the templates beside this module. Everything that a template inserts is escaped, and a name
that does not exist is an error (M-93: nothing from a row is ever HTML).
"""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from horsies.web.format import FILTERS
from horsies.web.security import root_of

TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment() -> Environment:
    """Autoescaping is on for every template, whatever its name."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    return made


def render(
    request: Request, template: str, status: int = 200, headers: dict[str, str] | None = None, /, **values: Any
) -> Response:
    """A page. Templates also know `root`, the path where the dashboard is mounted, and `title`."""
    known = {"root": root_of(request.scope), "title": request.app.state.dashboard.config.title, "request": request}
    return HTMLResponse(environment().get_template(template).render({**known, **values}), status, headers)
