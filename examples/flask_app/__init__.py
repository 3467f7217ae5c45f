"""A Flask application with a factory, whose requests send tasks in their own transaction."""

from flask import Flask

from horsies.contrib.flask import bind

from .database import init_database
from .orders import orders
from .tasks import app as horsies_app


def create_app() -> Flask:
    """Called by the web server, and by each process of a worker (`tasks.py` says so)."""
    flask_app = Flask(__name__)
    flask_app.config["SHOP_NAME"] = "The Book Shop"
    init_database(flask_app, horsies_app)
    flask_app.register_blueprint(orders)
    bind(flask_app, horsies_app)  # for `flask horsies worker`
    return flask_app
