"""`horsies schema` (X-40): a table, JSON Schema, a client, and publishing without a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from horsies.cli.typescript import client_of
from horsies.core.tasks.documents import document_of
from tests.apps import doors
from tests.cli.support import Terminal
from tests.psql_support import psql
from tests.worker_support import ROOT

APP = f"{ROOT / 'tests' / 'apps' / 'doors.py'}:app"
DOCUMENT = document_of(doors.app.tasks)


def test_x40_a_table_and_the_document(terminal: Terminal) -> None:
    assert "to: string, copies?: integer" in terminal.type_plain("schema", APP).out
    assert terminal.type_plain("schema", APP, "--json").json == DOCUMENT


def test_x40_a_client_in_a_file_is_the_one_that_is_printed(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "tasks.ts"
    assert "5 tasks" in terminal.type_plain("schema", APP, "--typescript", "--output", str(file)).err
    assert file.read_text() == terminal.type_plain("schema", APP, "--typescript").out == client_of(DOCUMENT)


def test_x40_d59b_publishing_gives_early_tasks_their_queue(terminal: Terminal) -> None:
    sent = psql(terminal.url, "SELECT horsies_send('mail.send', '{\"to\": \"a@b\"}');")
    said = terminal.type("schema", APP, "--publish").out
    assert "5 tasks published" in said and "1 task that had been sent before" in said
    row = terminal.rows()[sent]
    assert (row["queue_name"], row["priority"], row["max_retries"]) == ("mail", 7, 1)
    assert terminal.type("schema", APP, "--publish").out == "5 tasks published\n"


@pytest.mark.parametrize(
    "words", [("--json", "--typescript"), ("--output", "x"), ("--database-url", "postgresql://x/y")]
)
def test_x40_options_that_do_not_go_together(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.type_plain("schema", APP, *words, code=1)
