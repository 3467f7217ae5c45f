"""Can the proof fail? Breaks one thing at a time in a copy of the package and sees whether a story finds it.

`python -m tests.proof.mutants [word]` runs all mutants, or those whose name has the word in it. Not part of the test
suite: it takes minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
STORIES = 200
OWNER = " AND claimed_by_worker_id = %(worker_id)s"


class Mutant(NamedTuple):
    """In this file, this text becomes that one."""

    name: str
    file: str
    old: str
    new: str = ""


def sql(verb: str, name: str, old: str, new: str = "") -> Mutant:
    return Mutant(f"{verb}: {name}", f"horsies/core/sql/tasks/{verb}.sql", old, new)


MUTANTS = (
    sql("complete", "any claim of the owner", "AND t.claim_seq = w.claim_seq"),
    sql("complete", "any owner", "AND t.claimed_by_worker_id = %(worker_id)s"),
    sql("complete", "wrong attempt number", "THEN retry_count + 1", "THEN retry_count + 2"),
    sql("complete", "two attempt rows", "FROM moved\n", "FROM moved UNION ALL SELECT id, 99, 'COMPLETED', FALSE, "
        "started_at, now(), %(worker_id)s, worker_hostname, worker_pid, worker_process_name FROM moved\n"),
    sql("complete", "committed asynchronously", "RETURNING task_id",
        "RETURNING task_id, (SELECT set_config('synchronous_commit', 'off', TRUE))"),
    sql("complete", "the old reason stays", "failed_reason = NULL, "),
    sql("fail", "any claim of the owner", "AND claim_seq = w.claim_seq "),
    sql("fail", "any owner", OWNER),
    sql("fail", "a cancelled task", "status = 'RUNNING'", "status IN ('RUNNING', 'CANCELLED')"),
    sql("fail", "no row for a crash", "FROM moved\n", "FROM moved WHERE outcome <> 'WORKER_FAILURE'\n"),
    sql("retry", "finalizing_at stays", "finalizing_at = NULL,"),
    sql("retry", "beyond the deadline", "< good_until", "< good_until + interval '1 hour'"),
    sql("retry", "not charged", "t.retry_count + l.charge", "t.retry_count"),
    sql("retry", "numbered by the counter alone",
        "GREATEST(l.attempt, 1 + (SELECT max(a.attempt) FROM horsies_task_attempts a WHERE a.task_id = l.id))",
        "l.attempt"),
    sql("requeue", "finalizing_at stays", "finalizing_at = NULL, "),
    sql("requeue", "an ended task", "AND status IN ('CLAIMED', 'RUNNING')"),
    sql("requeue", "to the end of the queue", "SET status", "SET enqueued_at = now(), status"),
    sql("requeue", "the pid stays", "worker_pid = NULL, "),
    sql("start", "any owner", "AND t.claimed_by_worker_id = %(worker_id)s"),
    sql("start", "any claim of the owner", "AND t.claim_seq = w.claim_seq"),
    sql("start", "past the deadline", "AND (t.good_until IS NULL OR t.good_until > now())"),
    sql("start", "committed asynchronously", "RETURNING t.id",
        "RETURNING t.id, (SELECT set_config('synchronous_commit', 'off', TRUE))"),
    sql("expire", "before the deadline", "AND good_until <= now()"),
    sql("expire", "any owner", OWNER),
    sql("expire_waiting", "also what runs", "is_waiting AND"),
    sql("cancel", "what runs, unasked", "AND %(include_running)s"),
    sql("claim", "the same number again", "claim_seq = t.claim_seq + 1", "claim_seq = 1"),
    sql("claim", "before the retry is due", "AND (next_retry_at IS NULL OR next_retry_at <= statement_timestamp())"),
    sql("claim", "past the deadline", "AND (good_until IS NULL OR good_until > statement_timestamp())"),
    sql("claim", "a start that is committed asynchronously",
        "WHERE NOT EXISTS (SELECT FROM chosen WHERE child IS NOT NULL)"),
    sql("claim", "a long one starts behind another one", "OR are_short", "OR TRUE"),
    sql("claim", "a task with a history starts with its claim", "is_plain AND "),
    sql("claim", "in the wrong child", "(%(pids)s::int[])[c.child]", "(%(pids)s::int[])[LEAST(c.child, 1)]"),
    sql("unknown_claims", "only what does not run", "IN ('CLAIMED', 'RUNNING')", "IN ('CLAIMED')"),
    sql("claim", "next_retry_at stays", "next_retry_at = NULL, "),
    sql("claim", "the cap counts what runs only", "COALESCE(held, 2147483647) AS held",
        "COALESCE(running, 2147483647) AS held"),
    sql("claim_expired", "before the lease has run out", "AND claim_expires_at < statement_timestamp() "),
    sql("claim_expired", "also what runs", "AND status = 'CLAIMED' "),
    sql("renew", "any owner", OWNER),
    sql("renew", "however old", " AND claimed_at >= now() - %(max_age)s::interval"),
    sql("heartbeat", "any claim of the owner", "AND claim_seq = h.claim_seq "),
    sql("mark_finalizing", "any owner", OWNER),
    Mutant("one retry too many", "horsies/core/tasks/moves.py",
           "retry_count >= max_retries", "retry_count > max_retries"),
    Mutant("every code is retried", "horsies/core/tasks/moves.py",
           "error_code in BUILTIN_CODE_REGISTRY and error_code not in RETRY_ELIGIBLE", "False"),
    Mutant("a retry beyond the deadline is forgotten", "horsies/core/store/tasks.py",
           "if kind in (Retry, Leave) and batch:", "if False:"),
    Mutant("a claim that is held already is taken twice", "horsies/core/worker/in_hand.py",
           "older is not None and older.claim == claim", "False"),
)  # fmt: skip


def main() -> None:
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = [mutant.name for mutant in MUTANTS if word in mutant.name and not is_killed(mutant)]
    print(f"survived: {', '.join(survivors) or 'none'}")
    sys.exit(1 if survivors else 0)


def is_killed(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="horsies-mutant-") as place:
        copy(mutant, Path(place))
        begun = time.monotonic()
        command = [sys.executable, "-m", "tests.proof", "--stories", str(STORIES), "--seed", "0", "--as-found"]
        run = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    print(f"{seconds:6.1f} s  {mutant.name}: {evidence(run) if run.returncode else 'SURVIVED'}", flush=True)
    return run.returncode != 0


def copy(mutant: Mutant, place: Path) -> None:
    for part in ("horsies", "tests"):
        shutil.copytree(ROOT / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    file = place / mutant.file
    text = file.read_text(encoding="utf-8")
    if mutant.old not in text:
        raise SystemExit(f"{mutant.name}: {mutant.file} has no {mutant.old!r} any more; bring the mutant up to date")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def evidence(run: subprocess.CompletedProcess[str]) -> str:
    """What the story ended with, and in which round."""
    found = re.findall(r"^(?:[\w.]+(?:Error|Violation|Exception)|psycopg[\w.]+): .*$", run.stderr, re.MULTILINE)
    text = found[-1] if found else run.stderr[-200:]
    if "SyntaxError" in text or "UndefinedColumn" in text or "ImportError" in text:
        raise SystemExit(f"the mutant itself is broken: {text}")
    return f"round {len(re.findall('seed', run.stdout))}, {text[:150]}"


if __name__ == "__main__":
    main()
