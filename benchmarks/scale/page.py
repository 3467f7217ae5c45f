"""What a run writes into docs/scale.md, between its markers. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import Report, replaced, shown

MARKS = ("carries", "figures")
CARRIES: Sequence[tuple[str, str, str]] = (
    ("drain", "tasks a second that one worker with two children works off", "tasks/s"),
    ("cpu_postgres", "processor time of PostgreSQL for a task, from claim to end", "µs"),
    ("wal", "write-ahead log of a task, from claim to end", "bytes"),
    ("rows_bytes", "disk for a task, with its indexes", "bytes"),
    ("idle_connections", "connections of a worker", ""),
    ("idle_statements", "statements of an idle worker", "/s"),
    ("idle_cpu", "processor time of all idle workers of the run and the server, of one core", "%"),
    ("retention_rate", "tasks that retention deletes meanwhile", "tasks/s"),
)


def carries(report: Report, rows: int, workers: int) -> str:
    """The short table on top of the page."""
    lines = ["| what | measured |", "|---|---|"]
    lines += [f"| rows of the largest table | {f'{rows:,}' if rows else '–'} |", f"| workers | {workers} |"]
    for key, what, unit in CARRIES:
        value = report.value_of(key)
        lines.append(f"| {what} | {'–' if value is None else shown(value, unit)} |")
    if (cost := report.value_of("cpu_postgres")) is not None and cost > 0:
        lines.append(f"| … so a core of the server carries at most | {shown(1e6 / cost, 'tasks/s')} |")
    return "\n".join(lines)


def written(page: str, report: Report, rows: int, workers: int) -> str:
    """The page with the figures of this run."""
    for mark, text in zip(MARKS, (carries(report, rows, workers), report.markdown()), strict=True):
        page = replaced(page, text, f"<!-- {mark} -->", f"<!-- /{mark} -->")
    return page
