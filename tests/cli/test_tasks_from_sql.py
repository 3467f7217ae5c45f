"""A task that SQL has sent is shown, explained, cancelled and sent again like any other (X-40), also one that nobody
knows yet."""

from __future__ import annotations

import re

import pytest

from horsies.core.store import defaults
from horsies.core.tasks.catalogue import Catalogue, TaskDefaults
from tests.cli.support import Terminal
from tests.psql_support import psql


@pytest.mark.parametrize("is_early", [False, True])
def test_x40_it_is_like_any_other_on_the_command_line(terminal: Terminal, is_early: bool) -> None:
    known = Catalogue((TaskDefaults("mail.send", "mail", 7, '{"timeout_ms":5000}', None, None),), {"mail": 7})
    if not is_early:
        terminal.doing(lambda db: defaults.publish(db, known))
    sent = psql(terminal.url, "SELECT horsies_send('mail.send', '{\"to\": \"a@b\"}');")
    queue = "(early)" if is_early else "mail"
    [row] = terminal.type("tasks", "--json").json["items"]
    assert (row["task_id"], row["queue_name"], row["status"]) == (sent, queue, "PENDING")
    assert terminal.type("task", sent, "--json").json["kwargs"] == {"to": "a@b"}
    role = psql(terminal.url, "SELECT current_user;")
    assert re.search(rf"sent from SQL by +{role}$", terminal.type("task", sent).out, re.MULTILINE)
    told = terminal.type("explain", sent).out
    assert ("it was sent from SQL" if is_early else "no worker is running") in told
    assert ("--queues" in told) is not is_early, "a worker that knows the task gives it a queue"
    assert queue in {one["name"] for one in terminal.type("queues", "--json").json["queues"]}
    terminal.type("cancel", sent)
    assert terminal.type("task", sent, "--json").json["status"] == "CANCELLED"
    if is_early:
        terminal.doing(lambda db: defaults.publish(db, known))
    terminal.type("rerun", sent)
    [row] = terminal.type("tasks", "--json", "--status", "pending").json["items"]
    assert (row["queue_name"], row["priority"]) == ("mail", 7), "whatever it lacked is known now"
