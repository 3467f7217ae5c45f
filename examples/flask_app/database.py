"""The tables, and a session for each app context: the same as `db.session` of Flask-SQLAlchemy."""

from flask import Flask
from flask.globals import app_ctx
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, scoped_session, sessionmaker

from horsies import Horsies

make_session = sessionmaker()
session = scoped_session(make_session, scopefunc=lambda: id(app_ctx._get_current_object()))  # type: ignore[attr-defined]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "bookshop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    confirmation: Mapped[str | None]


def init_database(flask_app: Flask, app: Horsies) -> None:
    """The database of the queue, so that one transaction can write to both."""
    engine = create_engine(app.config.broker.dsn().replace("postgresql://", "postgresql+psycopg://", 1))
    make_session.configure(bind=engine)
    Base.metadata.create_all(engine)
    app.get_broker().ensure_schema_initialized_sync().unwrap()
    flask_app.extensions["bookshop_engine"] = engine
    flask_app.teardown_appcontext(lambda _problem: session.remove())  # after each request, and after each task
