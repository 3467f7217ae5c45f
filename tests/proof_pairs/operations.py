"""Every function of the store that writes. A new one needs a kind in `task_kinds.py` or `other_kinds.py`
(`test_coverage.py` says so).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.proof_pairs.choices import Choices
from tests.proof_pairs.kinds import Kind, Operation
from tests.proof_pairs.other_kinds import PRUNE_KINDS, SEND_KINDS, WORD_KINDS, WORKER_KINDS
from tests.proof_pairs.rows import OF_WORKFLOWS, Start
from tests.proof_pairs.schedule_kinds import SCHEDULE_KINDS
from tests.proof_pairs.sweep_kinds import SWEEP_KINDS
from tests.proof_pairs.task_kinds import TASK_KINDS
from tests.proof_pairs.workflow_kinds import WORKFLOW_KINDS

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *TASK_KINDS,
        *SEND_KINDS,
        *WORD_KINDS,
        *WORKER_KINDS,
        *PRUNE_KINDS,
        *SWEEP_KINDS,
        *WORKFLOW_KINDS,
        *SCHEDULE_KINDS,
    )
}
WORDS = [kind.name for kind in WORD_KINDS]

_TAKING = ["claim", "counting claim", "claim_expired"]
_ENDING = ["complete", "fail", "retry", "requeue", "finalize", "hand back"]
_BEATING = ["heartbeat", "renew", "mark_finalizing"]
# Who is likely to meet whom: the states most rows are in, and the kinds that are about them.
THEMES: dict[str, tuple[tuple[str, ...], list[str]]] = {
    "waiting": (
        ("PENDING",),
        [*_TAKING[:2] * 2, "expire_waiting", "cancel", "cancel", "cancel many", "change queue", "send", "set aside"],
    ),
    "claimed": (
        ("CLAIMED",),
        [
            "start",
            "start",
            "requeue",
            "expire",
            "hand back",
            "recover",
            "sweep",
            *_TAKING,
            *_BEATING,
            "cancel",
            "mend",
            "set aside",
        ],
    ),
    "running": (
        ("RUNNING",),
        [
            *_ENDING,
            *_ENDING,
            "cancel",
            "cancel",
            "recover",
            "sweep",
            "sweep",
            "mark_finalizing",
            "counting claim",
            "mend",
            "set aside",
        ],
    ),
    "sent": (
        (),
        ["send", "send", "send_many", "send_many", "send copied", "send copied", "cancel", "claim", "prune_tasks"],
    ),
    "ended": (
        ("COMPLETED", "CANCELLED"),
        ["prune_tasks", "prune_tasks", "send", "send_many", "rerun", "prune_workflows"],
    ),
    "words": ((), WORDS),
    "workers": ((), [kind.name for kind in (*WORKER_KINDS, *PRUNE_KINDS, *SWEEP_KINDS)]),
    "workflows": (
        (OF_WORKFLOWS,),
        [
            *(kind.name for kind in WORKFLOW_KINDS),
            *("advance", "advance", "start nodes", "start nodes", "complete", "finalize", "retry", "claim"),
            *("hand back", "expire_waiting", "prune_tasks"),
        ],
    ),
    "schedules": ((), ["fire schedule", *(kind.name for kind in SCHEDULE_KINDS)]),
    "all": ((), list(KINDS)),
}


def operation(pick: Choices, start: Start, kinds: Sequence[str]) -> Operation:
    """Mostly of these kinds, but any can come."""
    kind = KINDS[pick.of(pick.of([kinds] * 7 + [list(KINDS)]))]
    return Operation(kind, kind.draws(pick, start))
