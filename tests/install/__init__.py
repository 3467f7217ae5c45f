"""What a stranger meets first: the Makefile, the pinned versions, the package and its page."""
