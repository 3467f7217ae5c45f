"""Tasks of a Flask application with a factory, for a real worker."""

from __future__ import annotations

import asyncio
import os

from flask import Flask, current_app, g
from flask.globals import app_ctx

from horsies import AppConfig, Horsies
from horsies.contrib.flask import bind

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "postgresql://nobody@localhost:1/none")))
bind("tests.contrib.flask_shop:create_app", app)
arrived: set[int] = set()


def create_app() -> Flask:
    made = Flask("flask_shop")
    made.config["NAME"] = "shop"
    bind(made, app)
    return made


@app.task("flask_shop.meet")
async def meet(number: int, of: int) -> tuple[int, int]:
    """Waits until all are here, each with its own context."""
    g.number = number
    arrived.add(number)
    while len(arrived) < of:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert current_app.config["NAME"] == "shop"
    return g.number, id(app_ctx._get_current_object())
