"""The states as pictures show them: a class for the colour, a sign for those who do not see it, and a word."""

from collections import Counter
from collections.abc import Iterable, Mapping

from horsies.web.svg.markup import Svg, tag

# The most urgent first: of a group, this is what the eye must find.
URGENCY = (
    "FAILED",
    "EXPIRED",
    "CANCELLED",
    "PAUSED",
    "RUNNING",
    "CLAIMED",
    "ENQUEUED",
    "READY",
    "PENDING",
    "COMPLETED",
    "SKIPPED",
)
FAILED = "FAILED"
_RANK = {status: place for place, status in enumerate(URGENCY)}

# Each sign is drawn in a square from -5 to 5. Fonts differ; these do not.
_SIGNS = {
    "COMPLETED": "M -4 0L-1 3L4 -3",
    "FAILED": "M -3.5 -3.5L3.5 3.5M 3.5 -3.5L-3.5 3.5",
    "RUNNING": "M -3 -4L4 0L-3 4Z",
    "CLAIMED": "M -3 -4L4 0L-3 4ZM -5 -4V4",
    "ENQUEUED": "M -4 -3H4M -4 0H4M -4 3H4",
    "READY": "M -4 0H4M 1 -3L4 0L1 3",
    "PENDING": "M -4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    "SKIPPED": "M -4 -3L-1 0L-4 3M 0 -3L3 0L0 3",
    "CANCELLED": "M -4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0ZM -2.8 -2.8L2.8 2.8",
    "EXPIRED": "M -3 -4H3L-3 4H3Z",
    "PAUSED": "M -2 -4V4M 2 -4V4",
}
_UNKNOWN_SIGN = "M -2 -2A2 2 0 1 1 0 0.5V1.5M 0 3.5V4"


def status_class(status: str) -> str:
    """The class of a state. A state that is not known has one too."""
    return f"status-{status.lower()}" if status in _RANK else "status-unknown"


def sign(status: str, x: float, y: float) -> Svg:
    """The sign of a state around a point."""
    shape = {"class": "sign", "d": _SIGNS.get(status, _UNKNOWN_SIGN)}
    return tag("path", {**shape, "transform": f"translate({round(x, 1):g} {round(y, 1):g})"})


def urgency(status: str) -> int:
    """The place of a state in the order of urgency; unknown ones are last."""
    return _RANK.get(status, len(URGENCY))


def most_urgent(statuses: Iterable[str]) -> str:
    """The state that stands for many."""
    return min(statuses, key=lambda status: (urgency(status), status), default="")


def counted(statuses: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """How many are in each state, the most urgent first."""
    found = Counter(statuses)
    return tuple(sorted(found.items(), key=lambda pair: (urgency(pair[0]), pair[0])))


def added(counts: Iterable[tuple[tuple[str, int], ...]]) -> tuple[tuple[str, int], ...]:
    """The sum of several counts."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(dict(one))
    return tuple(sorted(total.items(), key=lambda pair: (urgency(pair[0]), pair[0])))


def in_words(counts: Iterable[tuple[str, int]] | Mapping[str, int]) -> str:
    """`2 failed, 28 completed`."""
    pairs = counts.items() if isinstance(counts, Mapping) else counts
    return ", ".join(f"{number:,} {status.lower() or 'unknown'}" for status, number in pairs)
