"""Foreign text for people: whatever a row, an exception or an argument contains, a terminal shows it and does not obey
it, and it cannot pass for a line of ours. Values for programs: whatever they contain, they become JSON. And a name that
is almost right is answered with the right one.

Control characters (C0, DEL, C1), line and paragraph separators, marks that turn the direction of text, invisible marks
and lone surrogates become the escapes of JSON: `\\u001b`, `\\n`, `\\u202e`. So a JSON text is still the same JSON
afterwards. Everything else stays, in any script; the joiners of Persian and of emoji too.
"""

import difflib
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_HIDDEN = "\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_OBEYED = re.compile(f"[\x00-\x1f\x7f-\x9f{_HIDDEN}\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}\ud800-\udfff]")  # without tab and newline


# What to write instead of options that belong elsewhere, or that other libraries have.
RETRIES: Final = dict.fromkeys(
    ("auto_retry_for", "autoretry_for", "intervals", "max_retries", "retries", "retry", "retry_backoff", "retry_policy"),
    "a task is retried once after each interval of its policy: "
    'retry_policy=RetryPolicy.fixed([60, 300], auto_retry_for=["CODE"])',
)
_OF_A_SEND = ("connection", "delay", "eta", "good_until", "idempotency_key", "priority")
OF_TASKS: Final = {
    **RETRIES,
    **{name: f"it belongs to a send: task.with_options({name}=...)" for name in _OF_A_SEND},
    "countdown": "use delay=..., in seconds: task.with_options(delay=60)",
    "expires": "use good_until=..., a datetime: task.with_options(good_until=...)",
    "exception_mapper": "it belongs to the task: @app.task(exception_mapper=...)",
}


def visible(text: str) -> str:
    """The text on one line, with an escape for each character that a terminal would obey."""
    return _OBEYED.sub(_escape, text)


def visible_lines(text: str, indent: str = "") -> str:
    """The same for a text of several lines: its lines and tabs are kept, and all lines but the first are indented."""
    return _OBEYED_IN_LINES.sub(_escape, text.replace("\r\n", "\n")).replace("\n", f"\n{indent}")


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def json_text(value: Any, default: Callable[[Any], Any] | None = None, indent: int | None = None) -> str:
    """JSON that every parser reads (M-15). It knows neither NaN nor Infinity, so these become texts."""
    try:
        return json.dumps(value, allow_nan=False, default=default, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, default=default, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)  # as Python writes them: NaN, Infinity, -Infinity
    return value


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant, by its letters or as a part: `queue` for `queu`, `timeout_ms` for
    `timeout`."""
    if close := difflib.get_close_matches(name, known, n=1, cutoff=0.7):
        return close[0]
    parts = [other for other in known if name and (other.startswith(f"{name}_") or other.endswith(f"_{name}"))]
    return min(parts, key=len, default=None)


def instead_of(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: a question, or nothing."""
    meant = nearest(name, known)
    return "" if meant is None else f"; did you mean {meant!r}?"


def about_unknown(name: str, known: Collection[str], elsewhere: Mapping[str, str] = RETRIES) -> str:
    """The end of a message about an unknown option: what to write instead, which one was probably meant, or which there
    are."""
    if name in elsewhere:
        return f"; {elsewhere[name]}"
    return instead_of(name, known) or f"; the options are {', '.join(sorted(known))}"


def refuse_unknown(method: str, given: Iterable[str], known: Collection[str], hint: str = "") -> None:
    """Raise a `TypeError` about an option of a task, a send, a node or a workflow that does not exist."""
    for name in given:
        if name not in known:
            raise TypeError(f"{method}() has no option {name!r}{about_unknown(name, known, OF_TASKS)}{hint}")


def explains_keywords(fn: Callable[P, R]) -> Callable[P, R]:
    """The same for a function whose parameters are its options."""
    known = tuple(name for name in inspect.signature(fn).parameters if name not in ("self", "cls"))

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(fn.__name__, kwargs, known)
        return fn(*args, **kwargs)

    return call


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def some_of(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def duration(seconds: float) -> str:
    """For people: `12 s`, `5 min 3 s`, `2 h 10 min`, `3 d 4 h`."""
    left = round(max(0.0, seconds))
    for unit, small, size, step in (("d", "h", 86_400, 3_600), ("h", "min", 3_600, 60), ("min", "s", 60, 1)):
        if left >= size:
            rest = left % size // step
            return f"{left // size} {unit}" + (f" {rest} {small}" if rest else "")
    return f"{left} s"
