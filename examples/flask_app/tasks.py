"""The tasks. A worker loads this module, which must not import the Flask application: that one imports this module, for
its views send these tasks. So the factory is given by its name, and called when the first task is about to run.
"""

import os

from flask import current_app

from horsies import AppConfig, Horsies
from horsies.contrib.flask import bind

from .database import Order, session

app = Horsies(AppConfig.for_database_url(os.environ.get("DATABASE_URL", "embedded:.horsies/postgres")))
bind("flask_app:create_app", app)


@app.task("bookshop.confirm")
def confirm(order_id: int) -> str:
    """Runs in an app context of its own, with a session of its own."""
    order = session.get_one(Order, order_id)
    order.confirmation = f"{current_app.config['SHOP_NAME']} thanks you for ordering {order.item}."
    session.commit()
    return order.confirmation
