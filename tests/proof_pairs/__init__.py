"""Any two (or three) statements of the store that run at the same time end as some serial order of them (invariant 7).

On a real server a few rows are put in random states, and random operations of the store run on connections of their
own, in a random interleaving: one transaction is held open while the next statement runs into its rows; a statement
stands still between its snapshot and its locks while others commit; a function stands still between two of its
statements; all run at once from a barrier; the held ones commit in any order, roll back, or their connection is lost.
Then all tables, all notifications and all return values must be those of the same operations one after the other, on
the same rows, in one of the possible orders. Nobody may meet a deadlock, nobody may wait without end, and heartbeats
and scans may not wait at all.

What is admitted beyond a serial order. A statement with SKIP LOCKED (`skips` in `operations.py`) leaves out what is
locked. So it may have left out a set of rows, if each of them is a row that another operation, whose transaction was open
at some moment while this one ran, names or could have taken. That is checked by running the serial order with exactly that
set locked by a bystander while the statement runs: it must do to all other rows what it does in the serial order, and to the
rows left out nothing. A row left out is as it was, so whoever looks again gets it. Two counting claims share a lock and
get no such allowance against each other.

Time is a value here, not an accident: the sessions see clock functions of a schema of ours in front of the built-in ones.
Each operation has its own fixed now, the same in every replay, so that timestamps compare exactly; and the first,
second, … reading of the clock is where a statement can be made to stand still, which is after its snapshot and before the
row it is about to lock. The statements themselves are the package's own, called through its own functions.
"""
