"""The tasks of the chaos app as the checker knows them: how each of them can end. The functions are in `app.py`."""

from __future__ import annotations

from dataclasses import dataclass

VARIABLE = (
    "HORSIES_CHAOS"  # of the environment; JSON: the journal's file, the server's own URL, settings of the profile
)
CRASHED = "WORKER_CRASHED"
TIMEOUT = "TASK_TIMEOUT"
FLAKY = "FLAKY"
BOOM = "UNHANDLED_EXCEPTION"
NOT_SENT = "NOT_SENT"
# Errors that the library writes without asking the run.
WITHOUT_RUN = frozenset({TIMEOUT})


@dataclass(frozen=True, slots=True)
class Ends:
    """The codes with which a task can fail, and whether it can succeed at all."""

    codes: frozenset[str]
    never_succeeds: bool = False
    stops_late: bool = False  # its child may have to be killed to stop it


def _ends(*codes: str, never_succeeds: bool = False, stops_late: bool = False) -> Ends:
    return Ends(frozenset({CRASHED, *codes}), never_succeeds, stops_late)


ERRORS_OF = {
    "short": _ends(),
    "few": _ends(),
    "long": _ends(),
    "patient": _ends(),
    "grind": _ends(),
    "nap": _ends(),
    "patient_nap": _ends(),
    "flaky": _ends(FLAKY),
    "boom": _ends(BOOM, never_succeeds=True),
    "slow": _ends(TIMEOUT, stops_late=True),
    "slow_nap": _ends(TIMEOUT, stops_late=True),
    "crash": _ends(never_succeeds=True),
    "crash_again": _ends(),
    "poison": _ends(),
    "relay": _ends(NOT_SENT),
    # Nodes of workflows
    "step": _ends(),
    "step_nap": _ends(),
    "step_flaky": _ends(FLAKY),
    "step_plain": _ends(),
    "listing": _ends(),
    "element": _ends(FLAKY),
    "gather": _ends(),
}
