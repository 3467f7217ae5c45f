"""The parts of `ONLY=scale`, by name, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Bench
from benchmarks.scale.caps import caps
from benchmarks.scale.carries import carries
from benchmarks.scale.claims import claims
from benchmarks.scale.fleet import fleet
from benchmarks.scale.graphs import graphs
from benchmarks.scale.idle import idle
from benchmarks.scale.looks import looks
from benchmarks.scale.payloads import payloads
from benchmarks.scale.retention import retention
from benchmarks.scale.waiters import waiters
from benchmarks.scale.web import web

# The idle workers come first: what other parts leave to the server (vacuum, checkpoints) would be counted as theirs.
PARTS: dict[str, Callable[[Bench], None]] = {
    "idle": idle,
    "fleet": fleet,
    "waiters": waiters,
    "carries": carries,
    "caps": caps,
    "claims": claims,
    "graphs": graphs,
    "retention": retention,
    "bytes": payloads,
    "looks": looks,
    "web": web,
}
# What every server of these measurements gets: a session for everyone.
SETTINGS = {"max_connections": "400"}
