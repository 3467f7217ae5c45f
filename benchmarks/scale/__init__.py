"""`make bench ONLY=scale`: how cost grows with rows, workers, queues, bytes and nodes, beside its bars."""
