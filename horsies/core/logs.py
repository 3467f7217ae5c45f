"""The format of log lines: text for people, one JSON object per line for programs. Workers and their children use it.

The facts of an event are passed with its message: `log.info("task failed", extra={"horsies": {"task_id": …}})`. The
text form appends them as `key=value`, the JSON form makes them fields of the object. Facts that the message already
contains are listed (`extra={"horsies": …, "horsies_said": ("task_id",)}`), and the text form leaves them out. A handler
of another library shows only the message.

Nothing in a message, a fact or an exception is obeyed by the terminal that shows the text form, and nothing passes for
a line of its own: what follows the first line of an event (a traceback, a longer message) is indented.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, TextIO, TypeAlias

from horsies.core.text import json_text, visible, visible_lines

Format: TypeAlias = Literal["text", "json"]
_FACTS = "horsies"
_SAID = "horsies_said"
_LONGEST_LINE = 300
_OUR_PREFIX = "horsies."
_CHATTY = ("asyncio", "psycopg")  # their debug lines say little about a worker
_MAIN = "MainProcess"
_INDENT = " " * 4
_DIM, _RESET = "\x1b[2m", "\x1b[0m"
_COLORS = {
    logging.DEBUG: "\x1b[2m",
    logging.INFO: "\x1b[32m",
    logging.WARNING: "\x1b[33m",
    logging.ERROR: "\x1b[31m",
    logging.CRITICAL: "\x1b[1;31m",
}


def configure(level: str = "INFO", fmt: Format | str = "text", stream: TextIO | None = None) -> None:
    """Send all log records from `level` up to `stream` (standard error). Calling it again replaces the earlier call."""
    stream = stream if stream is not None else sys.stderr
    handler = Handler(stream)
    handler.setFormatter(JsonFormatter() if fmt == "json" else TextFormatter(color=wants_color(stream)))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def clean_last_resort() -> None:
    """Where no handler is configured, Python itself writes warnings to standard error: they are cleaned too."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_MessageFormatter())


def wants_color(stream: TextIO, environment: Mapping[str, str] | None = None) -> bool:
    """`HORSIES_FORCE_COLOR=1` forces colours, otherwise `NO_COLOR` disables them, otherwise only a terminal has them
    (M-12)."""
    environment = os.environ if environment is None else environment
    if environment.get("HORSIES_FORCE_COLOR", "") not in ("", "0"):
        return True
    if environment.get("NO_COLOR"):
        return False
    return stream.isatty() and environment.get("TERM") != "dumb"


class Handler(logging.StreamHandler[TextIO]):
    """The handler of `configure`; its class distinguishes it from the handlers of others."""


class TextFormatter(logging.Formatter):
    """`12:00:01 INFO  worker  message  task_id=… task=…`"""

    def __init__(self, *, color: bool = False) -> None:
        super().__init__()
        self._color = color

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = self._paint(f"{visible(record.levelname):<5}", _COLORS.get(record.levelno, ""))
        said = getattr(record, _SAID, ())
        told = {visible(key): _plain(value) for key, value in _facts_of(record).items() if key not in said}
        facts = " ".join(f"{key}={value}" for key, value in told.items())
        first, *more = visible_lines(record.getMessage()).split("\n")
        parts = [f"{clock} {level} {visible(source_of(record))}", first]
        if facts:
            parts.append(self._paint(facts, _DIM))
        trace = trace_of(self, record)
        more += visible_lines(trace).split("\n") if trace else ()
        return "\n".join(["  ".join(parts), *(f"{_INDENT}{line}".rstrip() for line in more)])

    def _paint(self, text: str, color: str) -> str:
        return f"{color}{text}{_RESET}" if self._color and color else text


class _MessageFormatter(logging.Formatter):
    """Only the message and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_lines(super().format(record), _INDENT)


class JsonFormatter(logging.Formatter):
    """One object per line: time (UTC), level, logger, message, pid, then the facts, then the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts = {"pid": record.process, **_facts_of(record)}
        entry.update((key, value) for key, value in facts.items() if key not in entry)
        if trace := trace_of(self, record):
            entry["exception"] = trace
        return json_text(entry, default=str)


def first_line(text: str | None) -> str:
    """The part of a foreign text that a log line may show: its first line, visible, and not too long."""
    line = next((line for line in (text or "").splitlines() if line.strip()), "").strip()
    line = visible(line[: _LONGEST_LINE + 1])
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


def is_worth_a_line(count: int) -> bool:
    """Whether to log what has now happened `count` times in a row: the 1st, 2nd, 4th, 8th time and so on. What goes on
    and on stays visible and does not flood the log."""
    return count.bit_count() == 1


def log_failure(
    log: logging.Logger, level: int, event: str, facts: Mapping[str, object], *, code: str | None, reason: str | None
) -> None:
    """The log line of one failed task: `task failed: mail.send 0198…: TIMED_OUT: no answer from the server`."""
    facts = {**facts, "error_code": code, "reason": first_line(reason) or None}
    why = ": ".join(str(part) for part in (code, facts["reason"]) if part)
    said = ("task", "task_id", "error_code", "reason")
    task, task_id = (visible(str(facts.get(name))) for name in ("task", "task_id"))
    log.log(
        level, "%s: %s %s: %s", event, task, task_id, visible(why) or "no error code",
        extra={_FACTS: facts, _SAID: said},
    )  # fmt: skip


def source_of(record: logging.LogRecord) -> str:
    """The source of a record: `worker` for our `horsies.worker`, the full name for a logger of the user."""
    return record.name.removeprefix(_OUR_PREFIX)


def _facts_of(record: logging.LogRecord) -> dict[str, object]:
    given = getattr(record, _FACTS, None)
    facts = {str(key): value for key, value in given.items() if value is not None} if isinstance(given, dict) else {}
    if record.processName not in (None, _MAIN):
        facts.setdefault("process", record.processName)
    return facts


def _plain(value: object) -> str:
    text = str(value)
    needs_quotes = not text or not text.isprintable() or any(mark in text for mark in ' "=')
    return visible(json.dumps(text, ensure_ascii=False) if needs_quotes else text)


def trace_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback and the stack of a record, if it has them."""
    parts = []
    if record.exc_info:
        parts.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
