"""Any two (or three) statements of the store that run at the same time end as some serial order of them (invariant 7).

On a real server a few rows are put in random states, and random operations of the store run on connections of their
own, in a random interleaving: one transaction is held open while the next statement runs into its rows; a statement
stands still between its snapshot and its locks while others commit; a function stands still between two of its
statements; a bystander has a row locked and lets it go; all run at once from a barrier; the held ones commit in any
order, roll back, or their connection is lost. Then all tables, all notifications and all return values must be those
of the same operations one after the other, on the same rows, in an order that agrees with what ended before what began.
Nobody may meet a deadlock, nobody may wait without end, and heartbeats and scans may not wait for a row at all.

What is admitted beyond a serial order:

- A statement with SKIP LOCKED (`skips`) may leave out rows. Each must be one that it and another operation, whose
  transaction was open at some moment while this one ran, could both lock, or the bystander's. That is checked by
  running the serial order with exactly these rows locked while the statement runs: to all others it must do what it
  does in that order, to those nothing. A row left out is as it was, so whoever looks again gets it. Two counting
  claims share a lock and have no such allowance against each other; a second pruner leaves everything to the first.
- Heartbeats (`reads`) lock nothing, so as not to wait: one that overlaps a recovery may answer as if it came before,
  while the recovery has not seen its beat. The claim is lost then, which the next beat tells, and the fence guards.
- Words of the doorbell have nothing to do with each other: where several operations are about words, each word may have
  an order of its own.

Time is a value here, not an accident: the sessions see clock functions of a schema of ours in front of the built-in
ones. Each operation has its own fixed now, the same in every replay, so that timestamps compare exactly; and a reading
of the clock is where a statement can be made to stand still, which is after its snapshot and before the next row it
locks. The statements themselves are the package's own, called through its own functions.
"""
