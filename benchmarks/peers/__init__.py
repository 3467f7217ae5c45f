"""Other queues beside ours, on one server in one run: `make bench-peers`."""
