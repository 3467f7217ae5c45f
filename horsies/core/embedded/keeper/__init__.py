"""The detached process that keeps an embedded server. Relative imports and the standard library only: it is run without
the rest of horsies, so that it starts in milliseconds and needs nothing of the user's Python path (see `server.py`).
"""
