"""Can the proof fail? Breaks one thing at a time in a copy of the package and sees whether a story, a crowd or a storm
finds it. `python -m tests.proof_workflows.mutants [word]` runs all mutants, or those whose name has the word in it.
Not part of the test suite: it takes minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.proof.mutants import Mutant, copy

PARTS = ("stories", "storms", "crowds")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-o", "asyncio_mode=auto")


def sql(name: str, what: str, old: str, new: str = "") -> Mutant:
    return Mutant(f"{name}: {what}", f"horsies/core/sql/workflows/{name}.sql", old, new)


def code(name: str, what: str, old: str, new: str) -> Mutant:
    return Mutant(f"{name}: {what}", f"horsies/core/workflows/{name}.py", old, new)


MUTANTS = (
    code("settle", "any needs two", "needed = 1 if", "needed = 2 if"),
    code("settle", "skipped too early", "total - unsuccessful < needed", "total - unsuccessful <= needed"),
    code("settle", "a failed dependency is allowed", "unsuccessful and not allow_failed_deps", "False"),
    code("settle", "a failure does not pause", 'flow.row.on_error == "PAUSE"', "False"),
    code("settle", "a skip is not counted", "case Readiness.SKIP:\n                self.end(key, SKIPPED)",
         "case Readiness.SKIP:\n                node.status, node.end = SKIPPED.status, SKIPPED"),
    code("settle", "a paused workflow goes on", "or not self.flows[key[0]].is_running", ""),
    code("step", "what has just ended is not seen", "if state is None or state.end is None:", "if True:"),
    code("inputs", "a skipped source is left out", "if source.status is WorkflowTaskStatus.SKIPPED:", "if False:"),
    code("control", "children are not cancelled", "tree = await _tree(conn, workflow_id, UNFINISHED)",
         "tree = await _tree(conn, workflow_id, ())"),
    code("control", "children are not paused",
         "tree = await _tree(conn, workflow_id, UNFINISHED)\n"
         "        if tree is None or tree[0].status is not WorkflowStatus.RUNNING",
         "tree = await _tree(conn, workflow_id, ())\n"
         "        if tree is None or tree[0].status is not WorkflowStatus.RUNNING"),
    code("control", "a child is retried beside its parent",
         "[workflow_id, *await workflows.parents(conn, [workflow_id])]",
         "[workflow_id]"),
    Mutant("recovery: ended children are not told", "horsies/core/recovery/reconcile.py",
           "(What.CHILD, self._advance_parents),", ""),
    Mutant("recovery: READY nodes are left", "horsies/core/recovery/reconcile.py", "(What.READY, self._enqueue),", ""),
    sql("lock", "nobody waits", "FOR NO KEY UPDATE"),
    sql("ended", "an end is taken twice", "n.status IN ('ENQUEUED', 'RUNNING')", "TRUE"),
    sql("ready", "a map has room for all", "$.max_parallel ?", "$.nothing ?"),
    sql("move", "open_nodes stay", "w.open_nodes + c.open", "w.open_nodes"),
    sql("open_nodes", "nobody waits", "FOR NO KEY UPDATE"),
)  # fmt: skip


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = [mutant.name for mutant in MUTANTS if word in mutant.name and not is_killed(mutant)]
    print(f"survived: {', '.join(survivors) or 'none'}")
    sys.exit(1 if survivors else 0)


def is_killed(mutant: Mutant) -> bool:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="horsies-mutant-") as place:
        copy(mutant, Path(place))
        for part in PARTS:
            run = subprocess.run(
                [*PYTEST, f"tests/proof_workflows/test_workflow_{part}.py"],
                cwd=place, capture_output=True, text=True, check=False, env={**os.environ, "PROOF_AS_FOUND": "1"},
            )  # fmt: skip
            if run.returncode:
                print(f"{time.monotonic() - begun:6.1f} s  {mutant.name}: {part}, {evidence(run.stdout)}", flush=True)
                return True
    print(f"{time.monotonic() - begun:6.1f} s  {mutant.name}: SURVIVED", flush=True)
    return False


def evidence(text: str) -> str:
    found = re.findall(r"^E   +(.*(?:should be|assert|Error|Stuck|no arrow).*)$", text, re.MULTILINE)
    return found[0][:160] if found else text[-200:]


if __name__ == "__main__":
    main()
