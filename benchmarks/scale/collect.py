"""The page and the picture from several runs, each of some parts: what takes long need not be measured in one go.

    python -m benchmarks --only scale.idle --out benchmarks/out/idle        (and so on, each part into its folder)
    python -m benchmarks.scale.collect benchmarks/out/*/bench.json

Facts about machine and server are those of the first file. A figure that is in several files is taken from the last.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Curves
from benchmarks.report import Report, Row, facts
from benchmarks.scale import page

DOCS = Path(__file__).resolve().parents[2] / "docs"


def joined(found: Sequence[Mapping[str, Any]]) -> tuple[Report, Curves]:
    """All rows and curves, in the order of the files."""
    rows: dict[str, Row] = {}
    curves: Curves = {}
    for one in found:
        rows |= {row["key"]: Row.from_json(row) for row in one["rows"]}
        curves |= {name: [(x, y) for x, y in points] for name, points in one["curves"].items()}
    return Report(found[0]["machine"], found[0]["server"], list(rows.values())), curves


def main(files: Sequence[str]) -> None:
    from benchmarks.scale import plot

    report, curves = joined([json.loads(Path(file).read_text()) for file in files])
    rows = max((int(x) for x, _ in curves.get("claim_ms", [])), default=0)
    workers = max((int(x) for x, _ in curves.get("claims_per_send", [])), default=16)
    target = DOCS / "scale.md"
    target.write_text(page.written(target.read_text(), report, rows, workers))
    plot.draw(curves, facts(report.machine), DOCS / "scale.png")


if __name__ == "__main__":
    main(sys.argv[1:])
