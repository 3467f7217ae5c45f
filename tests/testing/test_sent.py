"""What was sent, in both modes, and what a failed assertion says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from horsies import Horsies, TaskContext
from tests.app_support import an_app


@pytest.fixture(params=["inline", "database"])
def app(request: pytest.FixtureRequest) -> Iterator[Horsies]:
    """The same app in both modes; nothing of it runs in the second."""
    if request.param == "database":
        with an_app(request.getfixturevalue("database_url")) as made:
            yield made
        return
    with an_app("postgresql://nobody@localhost:1/none") as made, made.testing.inline():
        yield made


@pytest.fixture
def mail(app: Horsies) -> Any:
    @app.task("mail")
    def mail(ctx: TaskContext, to: str, urgent: bool = False, *copies: str) -> None:
        pass

    return mail


def test_x12_what_was_sent_is_found_with_its_arguments(app: Horsies, mail: Any) -> None:
    @app.task("never")
    def never() -> None:
        pass

    mail.send("a@b")
    mail.send(to="c@d", urgent=True)
    assert [(sent.task_name, dict(sent.arguments)) for sent in app.testing.sent.tasks] == [
        ("mail", {"to": "a@b", "urgent": False, "copies": ()}),
        ("mail", {"to": "c@d", "urgent": True, "copies": ()}),
    ]
    assert app.testing.sent.assert_sent(mail, "c@d", True).arguments["to"] == "c@d"
    app.testing.sent.assert_sent(mail, to="a@b")
    app.testing.sent.assert_sent(mail)
    app.testing.sent.assert_not_sent(never)
    assert [sent.queue for sent in app.testing.sent.of("mail")] == ["default", "default"]


def test_x12_one_wants_exactly_one(app: Horsies, mail: Any) -> None:
    with pytest.raises(AssertionError, match="mail was sent never, not once; nothing was sent"):
        app.testing.sent.one(mail)
    handle = mail.send("a@b").unwrap()
    assert app.testing.sent.one(mail).task_id == handle.task_id
    mail.send("c@d")
    with pytest.raises(AssertionError, match=r"mail was sent 2 times, not once; what was sent:\n  mail\(to='a@b'"):
        app.testing.sent.one(mail)


def test_x12_failures_show_the_difference(app: Horsies, mail: Any) -> None:
    with pytest.raises(AssertionError, match="mail was not sent; nothing was sent"):
        app.testing.sent.assert_sent(mail, "a@b")
    mail.send("z@z", True)
    mail.send("a@c")
    with pytest.raises(AssertionError) as failed:
        app.testing.sent.assert_sent(mail, "a@b")
    assert str(failed.value).splitlines() == [
        "mail was not sent with these arguments",
        "  expected: to='a@b', urgent=False, copies=()",
        "  sent:     to='a@c', urgent=False, copies=()",
        "    to: expected 'a@b', was 'a@c'",
        "  sent:     to='z@z', urgent=True, copies=()",
        "    to: expected 'a@b', was 'z@z'",
        "    urgent: expected False, was True",
    ]
    with pytest.raises(AssertionError, match="cannot be sent with these arguments: missing argument"):
        app.testing.sent.assert_sent(mail, urgent=True)
    with pytest.raises(AssertionError, match="mail was sent; what was sent:"):
        app.testing.sent.assert_not_sent(mail)


def test_x12_a_send_that_was_rolled_back_was_not_sent(database_url: str) -> None:
    with an_app(database_url) as app:

        @app.task("mail")
        def mail(to: str) -> None:
            pass

        with psycopg.connect(database_url) as conn:
            mail.with_options(connection=conn).send("a@b").unwrap()
            app.testing.sent.assert_not_sent(mail)
            conn.rollback()
            app.testing.sent.assert_not_sent(mail)
            mail.with_options(connection=conn).send("c@d").unwrap()
            conn.commit()
        app.testing.sent.assert_sent(mail, "c@d")
        with pytest.raises(AssertionError, match="expected 'a@b', was 'c@d'"):
            app.testing.sent.assert_sent(mail, "a@b")


async def test_x12_sent_can_be_read_inside_a_running_loop(database_url: str) -> None:
    with an_app(database_url) as app:

        @app.task("mail")
        def mail(to: str) -> None:
            pass

        await mail.send_async("a@b")
        app.get_broker().enqueue("by_name", [1], {"a": 2})
        assert [dict(sent.arguments) for sent in app.testing.sent.tasks] == [{"to": "a@b"}, {"0": 1, "a": 2}]
