"""How log lines look, in both formats, and when they are coloured."""

from __future__ import annotations

import io
import json
import logging
import re
import sys

import pytest

from horsies.core import logs
from tests import hostile_support as hostile
from tests.each import each


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def said(fmt: str, *, level: str = "INFO", stream: io.StringIO | None = None) -> tuple[logging.Logger, io.StringIO]:
    stream = stream if stream is not None else io.StringIO()
    logs.configure(level, fmt, stream)
    return logging.getLogger("horsies.worker"), stream


def test_a_text_line_has_clock_level_source_message_and_facts() -> None:
    log, out = said("text")
    log.warning(
        "task failed", extra={"horsies": {"task_id": "1-2", "task": "mail.send", "attempt": 2, "error_code": None}}
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d WARNING worker  task failed  task_id=1-2 task=mail\.send attempt=2\n", out.getvalue()
    )


def test_facts_that_the_message_says_are_not_said_twice_to_people() -> None:
    facts = {"task_id": "1-2", "task": "mail.send", "attempt": 2}
    for fmt, expected in (("text", "worker  task failed: mail.send 1-2: BAD: no\\nanswer  attempt=2"), ("json", "1-2")):
        log, out = said(fmt)
        logs.log_failure(log, logging.WARNING, "task failed", facts, code="BAD", reason="no\\nanswer\nat all")
        if fmt == "text":
            assert out.getvalue().endswith(f" {expected}\n")
        else:
            entry = json.loads(out.getvalue())
            assert (entry["task_id"], entry["error_code"], entry["reason"]) == (expected, "BAD", "no\\nanswer")


def test_info_is_padded_so_that_most_lines_align() -> None:
    log, out = said("text")
    log.info("ready")
    assert out.getvalue().endswith(" INFO  worker  ready\n")


@each(
    ("value", "shown"),
    [("two words", '"two words"'), ("", '""'), ('say "hi"', '"say \\"hi\\""'), ("a\nb", '"a\\nb"'), ("ü", "ü")],
)
def test_a_fact_that_would_not_be_one_word_is_quoted(value: str, shown: str) -> None:
    log, out = said("text")
    log.info("event", extra={"horsies": {"reason": value}})
    assert out.getvalue().endswith(f"  reason={shown}\n")


def test_a_json_line_is_one_object_with_the_facts_as_fields() -> None:
    log, out = said("json")
    log.error(
        "task %s", "failed", extra={"horsies": {"task_id": "1", "attempt": 3, "message": "not this", "queue": None}}
    )
    [line] = out.getvalue().splitlines()
    entry = json.loads(line)
    assert entry["message"] == "task failed"
    assert entry["level"] == "ERROR"
    assert entry["logger"] == "horsies.worker"
    assert (entry["task_id"], entry["attempt"]) == ("1", 3)
    assert "queue" not in entry
    assert entry["time"].endswith("Z")


def test_a_json_line_stays_one_line_whatever_is_in_it() -> None:
    # Not through a logger: pytest keeps what is logged, and cannot hand such text on.
    try:
        raise ValueError("first\nsecond \ud800 \x00")
    except ValueError:
        record = logging.LogRecord("mine", logging.ERROR, __file__, 1, "it\nfailed \ud800", (), sys.exc_info())
    record.horsies = {"what": object()}
    [line] = logs.JsonFormatter().format(record).splitlines()
    assert "ValueError: first\nsecond" in json.loads(line)["exception"]


def test_m15_a_json_line_has_no_number_that_json_does_not_know() -> None:
    record = logging.LogRecord("mine", logging.INFO, __file__, 1, "x", (), None)
    record.horsies = {"rate": float("inf"), "all": [float("nan")]}
    entry = json.loads(logs.JsonFormatter().format(record), parse_constant=pytest.fail)
    assert (entry["rate"], entry["all"]) == ("Infinity", ["NaN"])


def test_a_text_line_is_followed_by_the_traceback() -> None:
    log, out = said("text")
    try:
        raise ValueError("because")
    except ValueError:
        log.exception("it failed")
    assert "Traceback (most recent call last)" in out.getvalue()
    assert "ValueError: because" in out.getvalue()


def test_records_of_a_child_name_their_process() -> None:
    log, out = said("text")
    record = log.makeRecord("mine", logging.INFO, __file__, 1, "hello", (), None)
    record.processName = "horsies-child-1"
    log.handle(record)
    assert out.getvalue().endswith(" INFO  mine  hello  process=horsies-child-1\n")


def test_configuring_twice_writes_each_line_once_and_at_the_new_level() -> None:
    logs.configure("INFO", "text", io.StringIO())
    log, out = said("text", level="error")
    log.warning("not wanted")
    log.error("wanted")
    assert len(out.getvalue().splitlines()) == 1


def test_configuring_leaves_the_handlers_of_others_alone() -> None:
    other = logging.NullHandler()
    logging.getLogger().addHandler(other)
    said("text")
    assert other in logging.getLogger().handlers


def test_debugging_a_worker_does_not_bring_the_chatter_of_the_event_loop() -> None:
    log, out = said("text", level="DEBUG")
    logging.getLogger("asyncio").debug("Using selector: EpollSelector")
    log.debug("claimed")
    assert out.getvalue().endswith(" DEBUG worker  claimed\n")
    assert "selector" not in out.getvalue()


@each(
    ("environment", "is_terminal", "colored"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"HORSIES_FORCE_COLOR": "1"}, False, True),
        ({"HORSIES_FORCE_COLOR": "1", "NO_COLOR": "1"}, False, True),
        ({"HORSIES_FORCE_COLOR": "0"}, False, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_m12_when_colours_are_used(environment: dict[str, str], is_terminal: bool, colored: bool) -> None:
    assert logs.wants_color(Terminal() if is_terminal else io.StringIO(), environment) is colored


def test_m12_colours_reach_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("HORSIES_FORCE_COLOR", "1")
    log, out = said("text")
    log.error("failed", extra={"horsies": {"task": "t"}})
    assert "\x1b[31mERROR\x1b[0m" in out.getvalue()
    monkeypatch.setenv("HORSIES_FORCE_COLOR", "0")
    log, plain = said("text")
    log.error("failed")
    assert "\x1b" not in plain.getvalue()


def test_m12_json_lines_are_never_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORSIES_FORCE_COLOR", "1")
    log, out = said("json")
    log.error("failed")
    assert "\x1b" not in out.getvalue()


def test_what_goes_on_and_on_gets_ever_fewer_lines() -> None:
    assert [count for count in range(1, 100) if logs.is_worth_a_line(count)] == [1, 2, 4, 8, 16, 32, 64]


def test_m12_nothing_in_a_text_line_is_obeyed_or_passes_for_another_line() -> None:
    for color in (False, True):
        try:
            raise ValueError(hostile.LONG)
        except ValueError:
            record = logging.LogRecord(
                f"mine{hostile.SHORT}", logging.ERROR, __file__, 1, f"it failed: %s {hostile.LONG}", (hostile.LONG,),
                sys.exc_info(),
            )  # fmt: skip
        record.processName = hostile.SHORT
        record.horsies = {"task_id": hostile.LONG, "task": hostile.SHORT, hostile.SHORT: 1, "n": 2}
        line, *more = logs.TextFormatter(color=color).format(record).split("\n")
        assert hostile.obeyed("\n".join([line, *more]), allowed="\n\t") == set()
        assert more and all(part.startswith("    ") for part in more), "no line begins like ours"
        assert "    Traceback (most recent call last):" in more
        assert any(part.startswith("    ValueError: \\u001b[8m") for part in more)
        assert re.search(r'task_id="\\u001b.*müde 疲れた ✓"', line) and "n=2" in line
        assert ("\x1b[31m" in line) is color, "our own colours work"


def test_m12_a_failed_task_cannot_forge_a_line() -> None:
    log, out = said("text")
    facts = {"task_id": hostile.SHORT, "task": hostile.LONG, "attempt": 1}
    logs.log_failure(log, logging.WARNING, "task failed", facts, code=hostile.SHORT, reason=hostile.LONG)
    assert len(out.getvalue().splitlines()) == 1
    assert hostile.obeyed(out.getvalue()) == set() and hostile.forged(out.getvalue()) == []


def test_m12_json_lines_are_ascii() -> None:
    record = logging.LogRecord("mine", logging.ERROR, __file__, 1, hostile.LONG, (), None)
    record.horsies = {hostile.SHORT: hostile.LONG}
    line = logs.JsonFormatter().format(record)
    assert line.isascii() and hostile.obeyed(line, allowed="") == set()
    assert json.loads(line)["message"] == hostile.LONG and json.loads(line)[hostile.SHORT] == hostile.LONG


def test_m12_warnings_without_a_handler_are_cleaned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    last = logging._StderrHandler(logging.WARNING)  # type: ignore[attr-defined]
    monkeypatch.setattr(logging, "lastResort", last)
    logs.clean_last_resort()
    written = last.format(logging.LogRecord("mine", logging.WARNING, __file__, 1, hostile.LONG, (), None))
    assert hostile.obeyed(written, allowed="\n\t") == set()
    assert all(line.startswith("    ") for line in written.split("\n")[1:])
