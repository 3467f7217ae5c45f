"""What stories are made of: who wants what, how workers are set up, how code ends, when connections break."""

from __future__ import annotations

from typing import TypeAlias

from hypothesis import strategies as st

from horsies.core.child.wire import Done
from tests.proof import interference
from tests.proof.values import Policy, Wish
from tests.proof.worker import Shape

Onward: TypeAlias = list[tuple[int, Done | str | None, int | None]]

# Retries and deadlines are minutes apart, jitter included, so that a slow machine does not change who comes first.
POLICIES = (
    None,
    Policy(("FLAKY", "WORKER_CRASHED"), (600, 2400), 2),
    Policy(("FLAKY", "TASK_TIMEOUT", "WORKER_RESOLUTION_ERROR"), (600,), 3, is_exponential=True, jitter=True),
    Policy(("WORKER_CRASHED",), (9600,), 1, jitter=True),
)
OK = Done(True, '{"ok":"{\\"NULL\\",\\\\}"}', None, None, False, 1, 1)
FLAKY = Done(False, '{"err":{"error_code":"FLAKY"}}', "FLAKY", 'it is {"NULL"}\\,', False, 1, 1)
BROKEN = Done(False, '{"err":{"error_code":"BROKEN"}}', "BROKEN", "NULL", False, 1, 1)
UNKNOWN = Done(False, '{"err":{"error_code":"…"}}', "WORKER_RESOLUTION_ERROR", "who?", False, 1, 1)
WITHOUT_CODE = Done(False, '{"err":{}}', None, None, False, 1, 1)
TIMEOUT = None
DEATH = "death"  # no report: the child dies in it

reports = st.sampled_from([OK, OK, OK, OK, FLAKY, FLAKY, FLAKY, BROKEN, UNKNOWN, WITHOUT_CODE, TIMEOUT, DEATH, DEATH])
picks = st.integers(0, 59)
amounts = st.integers(1, 4)
# None: the connection holds. 0: it breaks before anything arrives. Else: after so many statements, at the latest after
# the commit and before the answer.
faults = st.sampled_from([*[None] * 12, 0, 1, 2, 3, 9, 9])
rare_faults = st.sampled_from([*[None] * 12, 9, 0])
# Which workers do next what they would do: how code ends that ends now, and whether the connection holds.
onwards = st.lists(st.tuples(picks, reports, rare_faults), max_size=4)
wishes = st.builds(
    Wish,
    task_name=st.sampled_from(["one", "two"]),
    queue_name=st.sampled_from(["a", "b"]),
    priority=st.sampled_from([100, 1]),
    args=st.sampled_from(["[]", "[1]", None]),
    flags=st.sampled_from([(), (("f", 1),)]),
    policy=st.sampled_from([*POLICIES, POLICIES[1]]),
    delay=st.sampled_from([*[None] * 7, 0, 3600]),
    deadline=st.sampled_from([*[None] * 5, 820.0, 5000.0, 5000.0, 50_000.0, interference.FAR_PAST]),
    age=st.sampled_from([0.0, 0.0, 5.0]),
    key=st.sampled_from([*[None] * 6, "x", "y"]),
)
shapes = st.builds(
    Shape,
    processes=st.integers(1, 3),
    queues=st.sampled_from([("a", "b"), ("b", "a"), ("b",)]),
    max_claim_batch=st.sampled_from([0, 0, 1]),
    max_claim_per_worker=st.sampled_from([0, 0, 2]),
    lease=st.sampled_from([600, 1200]),
    ahead=st.sampled_from([0, 3]),
)
recoveries = st.sampled_from([None, 0, 300])
