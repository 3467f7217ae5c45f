"""Finds the mistakes in a workflow when it is built (F-90): all of them together, each with the place of its node or of
the workflow.
"""

from __future__ import annotations

from horsies.core.errors import MultipleWorkflowErrors, ValidationReport
from horsies.core.workflows.checks import children, graph, inputs, options, shape
from horsies.core.workflows.draft import Draft

KINDS = (shape.problems, graph.problems, options.problems, children.problems, inputs.problems)


def check(draft: Draft) -> None:
    """Raise the mistakes in the draft."""
    report = ValidationReport(phase=f"workflow {draft.name!r}")
    for problems in KINDS:
        for error in problems(draft):
            report.add(error)
    if len(report) > 1:
        raise MultipleWorkflowErrors(report)
    report.raise_if_any()
